//! Owns how a path becomes a model: a GGUF file, or a folder with a config and weights.

use crate::error::{ModelError, Result};
use crate::model::Model;
use crate::plans::refuse_plan_only;
use crate::sentence::Sentence;
use crate::spec::Spec;
use crate::text_files::TextFiles;
use mettle_plan::{Attention, KvElement, Op, Plan};
use mettle_tensor::{DType, TensorInfo, TensorSource};
use mettle_weights::gguf::PartName;
use mettle_weights::{Dummy, Gguf, Quantization, Safetensors};
use serde_json::Value;
use std::collections::HashSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LoadFormat {
    /// The weights beside the config.
    #[default]
    Auto,
    /// Random weights; the config alone is enough.
    Dummy { seed: u64 },
}

#[derive(Clone, Copy, Debug)]
pub struct OpenOptions {
    pub load_format: LoadFormat,
    /// The type of random weights, where it is not the one the config names.
    pub weight_type: Option<DType>,
    pub kv_element: KvElement,
    /// A shorter context than the model allows.
    pub context_length: Option<usize>,
}

impl Default for OpenOptions {
    fn default() -> OpenOptions {
        OpenOptions {
            load_format: LoadFormat::Auto,
            weight_type: None,
            kv_element: KvElement::F16,
            context_length: None,
        }
    }
}

impl Model {
    /// Opens a `.gguf` file, a folder with `config.json` and safetensors, or a folder with one `.gguf` model.
    /// Reads no weights but rotary divisors; that the tensors fit the plan is checked when they are bound.
    pub fn open(path: &Path, options: OpenOptions) -> Result<Model> {
        let dummy = options.load_format != LoadFormat::Auto;
        match find(path, dummy)? {
            Found::Gguf(file) => open_gguf(path, &file, options),
            Found::Config(folder) => open_folder(path, folder, options),
        }
    }
}

pub(crate) enum Found {
    Gguf(PathBuf),
    /// A folder with a `config.json`.
    Config(PathBuf),
}

/// What there is to open at `path`; `config_only` does without weights.
pub(crate) fn find(path: &Path, config_only: bool) -> Result<Found> {
    let metadata = std::fs::metadata(path).map_err(|reason| ModelError::Io {
        path: path.to_owned(),
        reason,
    })?;
    if !metadata.is_dir() {
        let is_named = |ending: &str| {
            path.extension()
                .is_some_and(|e| e.eq_ignore_ascii_case(ending))
        };
        if path.file_name().is_some_and(|name| name == "config.json") {
            let folder = path.parent().unwrap_or(Path::new(""));
            return Ok(Found::Config(folder.to_owned()));
        }
        return match is_named("safetensors") {
            true => Err(ModelError::NotAModel {
                path: path.to_owned(),
                reason: "give the folder that holds the .safetensors files and config.json".into(),
            }),
            // Whatever it is called: the file's first bytes say whether it is one.
            false => Ok(Found::Gguf(path.to_owned())),
        };
    }
    let has = |name: &str| path.join(name).exists();
    let has_safetensors = has("model.safetensors") || has("model.safetensors.index.json");
    if has("config.json") && (has_safetensors || config_only) {
        return Ok(Found::Config(path.to_owned()));
    }
    let mut files = gguf_files(path)?;
    files.dedup_by(|later, earlier| same_split(earlier, later));
    match (files.len(), has("config.json")) {
        (1, _) => Ok(Found::Gguf(files.remove(0))),
        // The weights' own error says what is missing.
        (0, true) => Ok(Found::Config(path.to_owned())),
        (0, false) => Err(ModelError::NotAModel {
            path: path.to_owned(),
            reason: "the folder has neither config.json nor a .gguf file".into(),
        }),
        (n, _) => Err(ModelError::NotAModel {
            path: path.to_owned(),
            reason: format!("the folder has {n} .gguf models; name one of them"),
        }),
    }
}

fn gguf_files(folder: &Path) -> Result<Vec<PathBuf>> {
    let io = |reason| ModelError::Io {
        path: folder.to_owned(),
        reason,
    };
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(io)? {
        let path = entry.map_err(io)?.path();
        if path
            .extension()
            .is_some_and(|e| e.eq_ignore_ascii_case("gguf"))
        {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// Whether two files are parts of one model; opening either opens both.
fn same_split(a: &Path, b: &Path) -> bool {
    let name = |path: &Path| path.file_name().and_then(OsStr::to_str).map(str::to_owned);
    let (Some(a), Some(b)) = (name(a), name(b)) else {
        return false;
    };
    match (PartName::parse(&a), PartName::parse(&b)) {
        (Some(a), Some(b)) => (a.model, a.count) == (b.model, b.count),
        _ => false,
    }
}

fn open_gguf(path: &Path, file: &Path, options: OpenOptions) -> Result<Model> {
    let gguf = Arc::new(Gguf::open(file)?);
    let spec = Spec::from_gguf(gguf.metadata(), &*gguf)?;
    let tensors: Arc<dyn TensorSource> = match options.load_format {
        LoadFormat::Auto => gguf.clone(),
        LoadFormat::Dummy { seed } => {
            let dtype = options.weight_type.unwrap_or(DType::F16);
            Arc::new(random(&spec, dtype, seed)?)
        }
    };
    finish(path, spec, tensors, TextFiles::Gguf(gguf), None, options)
}

fn open_folder(path: &Path, folder: PathBuf, options: OpenOptions) -> Result<Model> {
    let config = read_config(&folder.join("config.json"))?;
    refuse_plan_only(&model_name(path), &config)?;
    let mut spec = Spec::from_hf(&config)?;
    let tensors: Arc<dyn TensorSource> = match options.load_format {
        LoadFormat::Auto => {
            let quantization = Quantization::from_config(&config)?;
            Arc::new(Safetensors::open(&folder, quantization.as_ref())?)
        }
        LoadFormat::Dummy { seed } => {
            let dtype = options.weight_type.unwrap_or(config_type(&config));
            Arc::new(random(&spec, dtype, seed)?)
        }
    };
    spec.look_at(&*tensors);
    let text = TextFiles::Folder(folder);
    finish(path, spec, tensors, text, Some(&config), options)
}

fn finish(
    path: &Path,
    mut spec: Spec,
    tensors: Arc<dyn TensorSource>,
    text: TextFiles,
    config: Option<&Value>,
    options: OpenOptions,
) -> Result<Model> {
    let sentence = match (&text, &spec) {
        (TextFiles::Folder(folder), _) => Sentence::of_folder(folder)?,
        (TextFiles::Gguf(_), Spec::Encoder(spec)) => spec.sentence,
        (TextFiles::Gguf(_), _) => Sentence::default(),
    };
    let context_length = match options.context_length {
        Some(asked) if asked == 0 || asked > spec.context_length() => {
            return Err(ModelError::Dimensions {
                source_name: path.display().to_string(),
                problem: format!(
                    "a context of {asked} tokens was asked for; the model's is {}",
                    spec.context_length()
                ),
            });
        }
        Some(asked) => asked,
        None => match sentence.longest {
            Some(longest) if longest > 0 => longest.min(spec.context_length()),
            _ => spec.context_length(),
        },
    };
    spec.limit_context(context_length);
    let generation = text.generation()?;
    let mut eos_ids = generation.eos_token_ids.clone();
    eos_ids.extend(text.eos_ids(config)?);
    eos_ids.sort_unstable();
    eos_ids.dedup();
    Ok(Model {
        name: model_name(path),
        context_length,
        vocab_size: spec.vocab(),
        spec,
        tensors,
        kv_element: options.kv_element,
        chat_template: text.chat_template()?,
        generation,
        sentence,
        eos_ids,
        text,
        tokenizer: OnceLock::new(),
    })
}

/// The folder's name, or the file's without its ending and a part's number.
pub(crate) fn model_name(path: &Path) -> String {
    let full = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let file_name = full.file_name().and_then(OsStr::to_str);
    if let Some(part) = file_name.and_then(PartName::parse) {
        return part.model.to_owned();
    }
    let name = match full.file_name() {
        Some(name) if name == "config.json" => full.parent().and_then(Path::file_name),
        Some(_) if !full.is_dir() => full.file_stem(),
        name => name,
    };
    name.unwrap_or(full.as_os_str())
        .to_string_lossy()
        .into_owned()
}

pub(crate) fn read_config(path: &Path) -> Result<Value> {
    let bytes = std::fs::read(path).map_err(|reason| ModelError::Io {
        path: path.to_owned(),
        reason,
    })?;
    serde_json::from_slice(&bytes).map_err(|e| ModelError::Json {
        file: path.display().to_string(),
        reason: e.to_string(),
    })
}

/// The weight type that a config names; F32 where it names none.
pub(crate) fn config_type(config: &Value) -> DType {
    let name = config.get("dtype").or_else(|| config.get("torch_dtype"));
    match name.and_then(Value::as_str) {
        Some("bfloat16") => DType::BF16,
        Some("float16") => DType::F16,
        _ => DType::F32,
    }
}

/// Seeded random weights. Vectors (norms, biases) and biases by distance are F32, as quantized files store them.
fn random(spec: &Spec, dtype: DType, seed: u64) -> Result<Dummy> {
    let plans = spec.plans("random", dtype, KvElement::F16);
    let mut tensors: Vec<TensorInfo> = Vec::new();
    let mut seen = HashSet::new();
    for tensor in plans.iter().flat_map(Plan::tensors) {
        // An encoder and a decoder share some.
        if seen.insert(tensor.name.clone()) {
            tensors.push(tensor);
        }
    }
    let is_bias = |name: &str| {
        plans.iter().any(|plan| {
            plan.nodes.iter().any(|node| match &node.op {
                Op::Attention(Attention {
                    bias: Some(bias), ..
                }) => {
                    let parts = &plan.weight_of(bias.weight).parts;
                    parts.iter().any(|part| part.tensor == name)
                }
                _ => false,
            })
        })
    };
    for tensor in &mut tensors {
        if tensor.shape.len() == 1 || is_bias(&tensor.name) {
            tensor.dtype = DType::F32;
        }
        if tensor.dtype.tensor_bytes(&tensor.shape).is_none() {
            return Err(ModelError::DummyType {
                tensor: tensor.name.clone(),
                dtype: dtype.name(),
                columns: tensor.shape.last().copied().unwrap_or(0),
                block: dtype.block_len(),
            });
        }
    }
    Ok(Dummy::new(tensors, seed)?)
}
