//! Owns the plans of any config that has one, to be printed: a file, a folder, or a name that is built in.

use crate::architecture::model_type;
use crate::decoder::DecoderSpec;
use crate::error::{ModelError, Result};
use crate::open::{Found, config_type, find, model_name, read_config};
use crate::plan_only::{Declared, deepseek_v3, gemma3, qwen3_next};
use crate::spec::Spec;
use crate::variant::{AdapterSlots, Share, Variant};
use mettle_plan::{KvElement, Plan};
use mettle_tensor::DType;
use mettle_weights::Gguf;
use serde_json::Value;
use std::path::Path;

/// Published configs that need no file.
pub const BUILT_IN: [(&str, &str); 13] = [
    ("deepseek-v3", include_str!("../configs/deepseek-v3.json")),
    ("gemma-3-4b", include_str!("../configs/gemma-3-4b.json")),
    ("gpt-oss-20b", include_str!("../configs/gpt-oss-20b.json")),
    ("llama-3.1-8b", include_str!("../configs/llama-3.1-8b.json")),
    ("mistral-7b", include_str!("../configs/mistral-7b.json")),
    ("mixtral-8x7b", include_str!("../configs/mixtral-8x7b.json")),
    (
        "qwen1.5-moe-a2.7b",
        include_str!("../configs/qwen1.5-moe-a2.7b.json"),
    ),
    ("qwen2-0.5b", include_str!("../configs/qwen2-0.5b.json")),
    ("qwen3-0.6b", include_str!("../configs/qwen3-0.6b.json")),
    (
        "qwen3-30b-a3b",
        include_str!("../configs/qwen3-30b-a3b.json"),
    ),
    (
        "qwen3-next-80b-a3b",
        include_str!("../configs/qwen3-next-80b-a3b.json"),
    ),
    ("smollm2-135m", include_str!("../configs/smollm2-135m.json")),
    ("t5-small", include_str!("../configs/t5-small.json")),
];

type Plans = fn(&Value, Declared) -> Result<Vec<Plan>>;

/// By `model_type`.
const PLAN_ONLY: [(&str, Plans); 3] = [
    (deepseek_v3::NAME, deepseek_v3::plans),
    (gemma3::NAME, gemma3::plans),
    (qwen3_next::NAME, qwen3_next::plans),
];

/// Says so where a config has a plan but nothing runs it.
pub(crate) fn refuse_plan_only(model: &str, config: &Value) -> Result<()> {
    let found = model_type(config)?;
    // Its text part runs; images wait.
    let runs = found == gemma3::NAME;
    match !runs && PLAN_ONLY.iter().any(|(known, _)| *known == found) {
        false => Ok(()),
        true => Err(ModelError::PlanOnly {
            model: model.to_owned(),
            architecture: found.to_owned(),
        }),
    }
}

#[derive(Clone, Copy, Debug)]
pub struct PlanOptions {
    /// Where it is not the one that the config names.
    pub weight_type: Option<DType>,
    pub kv_element: KvElement,
    /// Room for low-rank adapters on every projection (dense decoders).
    pub adapters: Option<AdapterSlots>,
    /// Split over so many ranks, one plan each (dense decoders).
    pub ranks: Option<usize>,
}

impl Default for PlanOptions {
    fn default() -> PlanOptions {
        PlanOptions {
            weight_type: None,
            kv_element: KvElement::F16,
            adapters: None,
            ranks: None,
        }
    }
}

/// The plans of `source`: a `.gguf` file, a config (any `.json` file, or a folder with `config.json`), or a built-in
/// name. Most models have one; encoders, towers and ranks have their own. Weights are not read.
pub fn plans(source: &str, options: &PlanOptions) -> Result<Vec<Plan>> {
    let path = Path::new(source);
    if path.extension().is_some_and(|e| e == "json") && path.is_file() {
        return of_config(&model_name(path), &read_config(path)?, options);
    }
    if path.exists() {
        return match find(path, true)? {
            Found::Config(folder) => {
                let config = read_config(&folder.join("config.json"))?;
                of_config(&model_name(path), &config, options)
            }
            Found::Gguf(file) => of_gguf(&model_name(path), &file, options),
        };
    }
    let Some((name, json)) = BUILT_IN.iter().find(|(name, _)| *name == source) else {
        return Err(ModelError::UnknownName {
            name: source.to_owned(),
            known: BUILT_IN.map(|(name, _)| name).join(", "),
        });
    };
    let config = serde_json::from_str(json).expect("built-in configs are valid JSON");
    of_config(name, &config, options)
}

fn of_config(name: &str, config: &Value, options: &PlanOptions) -> Result<Vec<Plan>> {
    let weight_type = options.weight_type.unwrap_or(config_type(config));
    let found = model_type(config)?;
    let Some((_, plans)) = PLAN_ONLY.iter().find(|(known, _)| *known == found) else {
        return of_spec(name, &Spec::from_hf(config)?, weight_type, options);
    };
    if options.adapters.is_some() || options.ranks.is_some() {
        return Err(ModelError::Architecture {
            found: format!("{found} with adapters or ranks"),
            supported: "dense decoders".into(),
        });
    }
    plans(
        config,
        Declared {
            name,
            weight_type,
            kv_element: options.kv_element,
        },
    )
}

fn of_gguf(name: &str, file: &Path, options: &PlanOptions) -> Result<Vec<Plan>> {
    let gguf = Gguf::open(file)?;
    let spec = Spec::from_gguf(gguf.metadata(), &gguf)?;
    let mut plans = of_spec(
        name,
        &spec,
        options.weight_type.unwrap_or(DType::F16),
        options,
    )?;
    if options.weight_type.is_none() {
        plans.iter_mut().for_each(|plan| plan.adopt_types(&gguf));
    }
    Ok(plans)
}

fn of_spec(
    name: &str,
    spec: &Spec,
    weight_type: DType,
    options: &PlanOptions,
) -> Result<Vec<Plan>> {
    let is_plain = options.adapters.is_none() && options.ranks.is_none();
    match spec {
        Spec::Decoder(spec) => of_decoder(name, spec, weight_type, options),
        _ if is_plain => Ok(spec.plans(name, weight_type, options.kv_element)),
        _ => Err(ModelError::Architecture {
            found: format!("{} with adapters or ranks", spec.architecture()),
            supported: "dense decoders".into(),
        }),
    }
}

fn of_decoder(
    name: &str,
    spec: &DecoderSpec,
    weight_type: DType,
    options: &PlanOptions,
) -> Result<Vec<Plan>> {
    let plan = |name: &str, variant: &Variant| {
        spec.plan_of(name, weight_type, options.kv_element, variant)
    };
    let is_plain = options.adapters.is_none() && options.ranks.is_none();
    if spec.mixture.is_some() && !is_plain {
        return Err(ModelError::Architecture {
            found: format!("{} with adapters or ranks", spec.architecture),
            supported: "dense decoders".into(),
        });
    }
    match (options.adapters, options.ranks) {
        (None, None) => Ok(vec![plan(name, &Variant::Plain)]),
        (Some(slots), None) => {
            let slots = slots.check()?;
            let name = format!(
                "{name} with {} adapters of rank {}",
                slots.slots, slots.rank
            );
            Ok(vec![plan(&name, &Variant::Adapters(slots))])
        }
        (None, Some(ranks)) => {
            Share::check(spec, ranks)?;
            let share = |rank| Variant::Share(Share { rank, ranks });
            let name = |rank| format!("{name} rank {rank} of {ranks}");
            Ok((0..ranks)
                .map(|rank| plan(&name(rank), &share(rank)))
                .collect())
        }
        (Some(_), Some(_)) => Err(ModelError::Architecture {
            found: "adapters on a model split over ranks".into(),
            supported: "either of them".into(),
        }),
    }
}
