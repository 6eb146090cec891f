//! BERT from both formats and all its spellings, and what its files say of pooling.

use expect_test::{Expect, expect};
use mettle_models::{BertNames, BertSpec, Model, OpenOptions, Sentence, Spec, bert};
use mettle_plan::{Pooling, bind, passes};
use mettle_tensor::{TensorInfo, TensorSource, TensorView};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

fn fixture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/models/bert")
}

fn open(path: &Path) -> Model {
    Model::open(path, OpenOptions::default()).unwrap()
}

fn spec(model: &Model) -> BertSpec {
    match &model.spec {
        Spec::Encoder(spec) => spec.clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn both_formats_describe_the_same_model() {
    let (hf, gguf) = (open(&fixture()), open(&fixture().join("model.gguf")));
    let same = BertSpec {
        names: spec(&gguf).names,
        sentence: spec(&gguf).sentence,
        ..spec(&hf)
    };
    assert_eq!(spec(&gguf), same);
    let ops = |model: &Model| {
        let mut plan = model.plan();
        passes::apply(&mut plan, &[]).unwrap();
        plan.nodes.iter().map(|n| n.op.name()).collect::<Vec<_>>()
    };
    assert_eq!(ops(&hf), ops(&gguf));
    assert!(hf.plan().kv_groups.is_empty() && hf.plan().logits.is_none());
    // GGUF files know of the pooling only.
    let mean = Some(Pooling::Mean);
    let of_folder = Sentence {
        pooling: mean,
        normalize: Some(true),
        longest: Some(310),
    };
    let of_file = Sentence {
        pooling: mean,
        ..Sentence::default()
    };
    assert_eq!((hf.sentence, hf.context_length), (of_folder, 310));
    assert_eq!((gguf.sentence, gguf.context_length), (of_file, 320));
    let whole = OpenOptions {
        context_length: Some(320),
        ..OpenOptions::default()
    };
    let whole = Model::open(&fixture(), whole).unwrap();
    assert_eq!(whole.context_length, 320, "if asked for");
}

/// The fixture's tensors under other names.
struct Renamed(Vec<TensorInfo>);

impl Renamed {
    fn new(rename: impl Fn(&str) -> String, more: &[&str]) -> Renamed {
        let mut tensors = open(&fixture()).tensors.tensors().to_vec();
        for tensor in &mut tensors {
            tensor.name = rename(&tensor.name);
        }
        let pooler = tensors[0].clone();
        tensors.extend(more.iter().map(|name| TensorInfo {
            name: (*name).to_owned(),
            ..pooler.clone()
        }));
        Renamed(tensors)
    }
}

impl TensorSource for Renamed {
    fn tensors(&self) -> &[TensorInfo] {
        &self.0
    }

    fn find(&self, name: &str) -> Option<usize> {
        self.0.iter().position(|t| t.name == name)
    }

    fn view(&self, _index: usize) -> TensorView<'_> {
        unreachable!("nothing is read")
    }

    fn release(&self, _index: usize) {}
}

fn bind_renamed(tensors: &Renamed) -> (BertNames, Result<(), String>) {
    let mut spec = spec(&open(&fixture()));
    spec.look_at(tensors);
    let plan = spec.plan(
        "test",
        mettle_tensor::DType::F32,
        mettle_plan::KvElement::F16,
    );
    let bound = bind(&[plan], tensors).map(drop).map_err(|e| e.to_string());
    (spec.names, bound)
}

#[test]
fn every_spelling_of_the_tensors_is_found() {
    let old = |name: &str| {
        let name = name.replace("LayerNorm.weight", "LayerNorm.gamma");
        format!("bert.{}", name.replace("LayerNorm.bias", "LayerNorm.beta"))
    };
    let heads = [
        "cls.predictions.bias",
        "cls.predictions.transform.LayerNorm.gamma",
        "cls.seq_relationship.weight",
    ];
    let plain = |prefix, old_norms| BertNames::Hf { prefix, old_norms };
    let cases = [
        (Renamed::new(str::to_owned, &[]), plain("", false)),
        (
            Renamed::new(|name| format!("bert.{name}"), &heads[..1]),
            plain("bert.", false),
        ),
        (Renamed::new(old, &heads), plain("bert.", true)),
    ];
    for (tensors, names) in cases {
        assert_eq!(bind_renamed(&tensors), (names, Ok(())));
    }
    let classifier = Renamed::new(|name| format!("bert.{name}"), &["classifier.weight"]);
    let refused = bind_renamed(&classifier).1.unwrap_err();
    assert!(refused.contains("classifier.weight"), "{refused}");
}

fn config() -> Value {
    let bytes = std::fs::read(fixture().join("config.json")).unwrap();
    serde_json::from_slice(&bytes).unwrap()
}

fn check_config(key: &str, value: Value, expected: Expect) {
    let mut config = config();
    config[key] = value;
    let text = bert::from_hf(&config).map_or_else(|e| e.to_string(), |_| "no error".into());
    expected.assert_eq(&text);
}

#[test]
fn keys_that_change_the_maths_are_errors() {
    check_config("hidden_act", json!("gelu_new"), expect!["no error"]);
    check_config(
        "hidden_act",
        json!("swish"),
        expect![[
            r#"config.json: hidden_act = "swish" is not supported (gelu, gelu_new and relu are)"#
        ]],
    );
    check_config(
        "position_embedding_type",
        json!("relative_key"),
        expect![[
            r#"config.json: position_embedding_type = "relative_key" is not supported (only "absolute" is)"#
        ]],
    );
    check_config(
        "is_decoder",
        json!(true),
        expect!["config.json: is_decoder = true is not supported (only false is)"],
    );
    check_config(
        "num_attention_heads",
        json!(5),
        expect!["config.json: 5 heads do not share a width of 64"],
    );
    check_config(
        "layer_norm_eps",
        json!(0),
        expect!["config.json: layer_norm_eps is 0; it must be above 0"],
    );
    check_config(
        "rotary_pct",
        json!(1),
        expect![
            "config.json: rotary_pct = 1 is not known to this architecture and could change its maths"
        ],
    );
}

/// A folder with these files of sentence-transformers beside the model's own.
fn folder(modules: Value, pooling: Value) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for name in ["config.json", "model.safetensors"] {
        std::fs::copy(fixture().join(name), folder.path().join(name)).unwrap();
    }
    std::fs::write(folder.path().join("modules.json"), modules.to_string()).unwrap();
    std::fs::create_dir(folder.path().join("pool")).unwrap();
    let place = folder.path().join("pool/config.json");
    std::fs::write(place, pooling.to_string()).unwrap();
    folder
}

fn module(kind: &str, path: &str) -> Value {
    json!({"idx": 0, "name": "0", "path": path, "type": format!("sentence_transformers.models.{kind}")})
}

fn check_sentence(modules: Value, pooling: Value, expected: Expect) {
    let folder = folder(modules, pooling);
    let text = match Model::open(folder.path(), OpenOptions::default()) {
        Ok(model) => format!(
            "{:?} {:?}",
            model.sentence.pooling, model.sentence.normalize
        ),
        Err(error) => error.to_string(),
    };
    expected.assert_eq(&text);
}

#[test]
fn pooling_is_what_the_files_say() {
    let modules = || json!([module("Transformer", ""), module("Pooling", "pool")]);
    let cls = json!({"word_embedding_dimension": 64, "pooling_mode_cls_token": true, "pooling_mode_mean_tokens": false});
    check_sentence(modules(), cls.clone(), expect!["Some(First) Some(false)"]);
    let mut all = modules();
    all.as_array_mut()
        .unwrap()
        .push(module("Normalize", "2_Normalize"));
    check_sentence(all, cls, expect!["Some(First) Some(true)"]);
    check_sentence(
        modules(),
        json!({"pooling_mode": "lasttoken", "include_prompt": true}),
        expect!["Some(Last) Some(false)"],
    );
    check_sentence(
        json!([module("Transformer", "")]),
        json!({}),
        expect!["None Some(false)"],
    );
}

#[test]
fn pooling_that_we_have_not_is_an_error() {
    let modules = || json!([module("Transformer", ""), module("Pooling", "pool")]);
    check_sentence(
        modules(),
        json!({"pooling_mode_max_tokens": true}),
        expect![
            "pool/config.json: pooling_mode_max_tokens = true is not supported (one of cls, mean and lasttoken is)"
        ],
    );
    check_sentence(
        modules(),
        json!({"pooling_mode_cls_token": true, "pooling_mode_mean_tokens": true}),
        expect![
            "pool/config.json: pooling_mode_mean_tokens = true is not supported (one of cls, mean and lasttoken is)"
        ],
    );
    check_sentence(
        modules(),
        json!({"pooling_mode": "weightedmean"}),
        expect![[
            r#"pool/config.json: pooling_mode = "weightedmean" is not supported (one of cls, mean and lasttoken is)"#
        ]],
    );
    check_sentence(
        modules(),
        json!({}),
        expect![
            "pool/config.json: pooling_mode = absent is not supported (one of cls, mean and lasttoken is)"
        ],
    );
    let dense = json!([module("Transformer", ""), module("Dense", "2_Dense")]);
    check_sentence(
        dense,
        json!({}),
        expect![[
            r#"modules.json: type = "sentence_transformers.models.Dense" is not supported (Transformer, Pooling and Normalize are)"#
        ]],
    );
    let outside = json!([module("Pooling", "../../etc")]);
    check_sentence(
        outside,
        json!({}),
        expect![[r#"modules.json: path "../../etc" is not the name of a folder"#]],
    );
    check_sentence(
        json!({}),
        json!({}),
        expect!["modules.json is not valid JSON: it is not a list of modules"],
    );
}
