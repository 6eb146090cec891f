//! Every fixture opens, and its tensors are exactly the plan's, with passes on and off.

use mettle_models::{LoadFormat, Model, OpenOptions, PlanOptions, plans};
use mettle_plan::{KvLayer, KvSource, Node, Op, RopeStyle, bind, passes};
use mettle_tensor::DType;
use std::path::{Path, PathBuf};

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/models")
}

/// Folders (opened by their config) and GGUF files.
fn all() -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(fixtures()).unwrap() {
        let folder = entry.unwrap().path();
        found.extend(folder.join("config.json").exists().then(|| folder.clone()));
        let gguf = folder.join("model.gguf");
        found.extend(gguf.exists().then_some(gguf));
    }
    found.sort();
    found
}

#[test]
fn every_fixture_binds_with_passes_on_and_off() {
    let all = all();
    assert!(all.len() >= 21, "only {} fixtures", all.len());
    let names: Vec<String> = passes::ALL.iter().map(|p| p.name.to_owned()).collect();
    for path in all {
        let model = Model::open(&path, OpenOptions::default())
            .unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        for disabled in [&[][..], &names[..]] {
            let mut plans = model.plans();
            for plan in &mut plans {
                passes::apply(plan, disabled).unwrap();
            }
            bind(&plans, &*model.tensors).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        }
        // An encoder makes no tokens that could end.
        if model.spec.decoder().is_some() {
            assert_eq!(model.eos_ids, [1], "{}", path.display());
        }
        // The quantized folders are about weights alone.
        if path.is_file() || path.join("tokenizer.json").exists() {
            let tokenizer = model.tokenizer().unwrap();
            assert!(tokenizer.vocab_size() <= model.vocab_size);
        }
    }
}

/// The same model in both formats: the same ops and sizes, but for names, types and the style of rotation.
#[test]
fn both_formats_describe_the_same_model() {
    for name in [
        "llama",
        "llama31",
        "mistral",
        "qwen2",
        "qwen3",
        "smollm2",
        "gemma2",
        "gemma3",
        "gemma4",
        "phi3",
        "phi4-mini",
    ] {
        let folder = fixtures().join(name);
        let open = |path: &Path| Model::open(path, OpenOptions::default()).unwrap();
        let (hf, gguf) = (open(&folder), open(&folder.join("model.gguf")));
        let shape = |model: &Model| {
            let s = model.spec.decoder().unwrap();
            let sizes = [s.vocab, s.hidden, s.layers, s.heads, s.kv_heads, s.head_dim];
            (
                sizes,
                s.intermediate,
                s.eps,
                s.rope_base,
                s.biases,
                s.qk_norm,
                s.tied,
                s.context_length,
            )
        };
        assert_eq!(shape(&hf), shape(&gguf), "{name}");
        let ops = |model: &Model| -> Vec<&str> {
            model.plan().nodes.iter().map(|n| n.op.name()).collect()
        };
        assert_eq!(ops(&hf), ops(&gguf), "{name}");
        assert_eq!(hf.plan().kv_groups, gguf.plan().kv_groups, "{name}");
        let (ropes, other) = (hf.plan().ropes, gguf.plan().ropes);
        assert_eq!(ropes.len(), other.len(), "{name}");
        for (a, b) in ropes.iter().zip(&other) {
            assert!((a.magnitude / b.magnitude - 1.0).abs() < 1e-6, "{name}");
            assert_eq!((a.dims, a.inverse_frequencies.len()), (b.dims, b.dims / 2));
            for (a, b) in a.inverse_frequencies.iter().zip(&b.inverse_frequencies) {
                assert!((a / b - 1.0).abs() < 1e-5, "{name}: {a} and {b}");
            }
        }
        let (a, b) = (&ropes[0], &other[0]);
        let style = match hf.architecture() {
            "llama" | "mistral" => RopeStyle::Interleaved,
            _ => RopeStyle::Neox,
        };
        assert_eq!((a.style, b.style), (RopeStyle::Neox, style), "{name}");
        assert_eq!(hf.eos_ids, gguf.eos_ids);
        let (a, b) = (hf.tokenizer().unwrap(), gguf.tokenizer().unwrap());
        assert_eq!((a.eos(), a.vocab_size()), (b.eos(), b.vocab_size()));
    }
}

#[test]
fn long_rope_depends_on_the_longest_context() {
    let open = |context_length| {
        let options = OpenOptions {
            context_length,
            ..OpenOptions::default()
        };
        Model::open(&fixtures().join("phi3"), options).unwrap()
    };
    let frequency = |model: &Model| model.plan().ropes[0].inverse_frequencies[0];
    // The first factors of the fixture: 1 up to 32 tokens, 1.5 beyond.
    assert_eq!(frequency(&open(Some(32))), 1.0);
    assert_eq!(frequency(&open(Some(33))), 1.0 / 1.5);
    assert_eq!(frequency(&open(None)), 1.0 / 1.5);
}

#[test]
fn layers_that_share_a_cache_have_none() {
    let model = Model::open(&fixtures().join("gemma4"), OpenOptions::default()).unwrap();
    let plan = model.plan();
    let layers: Vec<usize> = plan.kv_groups.iter().map(|group| group.layers).collect();
    assert_eq!(layers, [3, 1], "of windows and of the whole context");
    let read: Vec<KvSource> = plan.nodes.iter().filter_map(attention_source).collect();
    let at = |group, layer| KvSource::Paged(KvLayer { group, layer });
    let own = [at(0, 0), at(1, 0), at(0, 1), at(0, 2)];
    assert_eq!(read[..4], own);
    assert_eq!(read[4..], [at(1, 0), at(0, 2), at(1, 0)]);
}

fn attention_source(node: &Node) -> Option<KvSource> {
    match &node.op {
        Op::Attention(attention) => Some(attention.kv),
        _ => None,
    }
}

#[test]
fn taps_have_their_names_in_every_layer() {
    let model = Model::open(&fixtures().join("qwen3"), OpenOptions::default()).unwrap();
    let plan = model.plan();
    let taps: Vec<&str> = plan
        .nodes
        .iter()
        .flat_map(|n| &n.taps)
        .map(|t| t.name.as_str())
        .collect();
    let of_layer = [
        "attn_norm",
        "q",
        "attn_out",
        "attn_residual",
        "ffn_norm",
        "ffn_act",
        "out",
    ];
    let mut expected = vec!["embed".to_owned()];
    for layer in 0..3 {
        expected.extend(of_layer.map(|tap| format!("layer.{layer}.{tap}")));
    }
    expected.extend(["final_norm".to_owned(), "logits".to_owned()]);
    assert_eq!(taps, expected);
}

#[test]
fn random_weights_need_a_config_alone() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::copy(
        fixtures().join("llama31/config.json"),
        folder.path().join("config.json"),
    )
    .unwrap();
    let options = OpenOptions {
        load_format: LoadFormat::Dummy { seed: 7 },
        weight_type: Some(DType::F16),
        context_length: Some(100),
        ..OpenOptions::default()
    };
    let model = Model::open(folder.path(), options).unwrap();
    assert_eq!(
        (model.context_length, model.spec.context_length()),
        (100, 512)
    );
    bind(&[model.plan()], &*model.tensors).unwrap();
    for tensor in model.tensors.tensors() {
        let expected = if tensor.shape.len() == 1 {
            DType::F32
        } else {
            DType::F16
        };
        assert_eq!(tensor.dtype, expected, "{}", tensor.name);
    }
    let error = match model.tokenizer() {
        Ok(_) => panic!("there are no tokenizer files"),
        Err(error) => error.to_string(),
    };
    assert!(error.contains("tokenizer.json is missing"), "{error}");
    assert!(Model::open(folder.path(), OpenOptions::default()).is_err());
}

#[test]
fn a_folder_with_one_gguf_file_opens_as_that_file() {
    let model = Model::open(&fixtures().join("llama31-q8_0"), OpenOptions::default()).unwrap();
    assert_eq!(model.name, "llama31-q8_0");
    let head = model.plan().nodes.into_iter().find_map(|n| match n.op {
        Op::LmHead(head) => Some(head.weight),
        _ => None,
    });
    let plan = model.plan();
    assert_eq!(plan.weight_of(head.unwrap()).parts[0].dtype, DType::Q8_0);
}

#[test]
fn chat_templates_are_found_in_all_their_places() {
    let folder = tempfile::tempdir().unwrap();
    let source = fixtures().join("llama");
    for name in ["config.json", "model.safetensors", "tokenizer.json"] {
        std::fs::copy(source.join(name), folder.path().join(name)).unwrap();
    }
    let template = || {
        Model::open(folder.path(), OpenOptions::default())
            .unwrap()
            .chat_template
    };
    assert_eq!(template(), None);
    let config = br#"{"chat_template": [{"name": "default", "template": "listed"}]}"#;
    std::fs::write(folder.path().join("tokenizer_config.json"), config).unwrap();
    assert_eq!(template().as_deref(), Some("listed"));
    std::fs::write(folder.path().join("chat_template.jinja"), "a file").unwrap();
    assert_eq!(template().as_deref(), Some("a file"));
}

#[test]
fn plans_come_from_files_and_folders() {
    for (source, types) in [("llama", 1), ("llama/config.json", 1), ("llama31-q8_0", 3)] {
        let source = fixtures().join(source);
        let plan = plans(source.to_str().unwrap(), &PlanOptions::default())
            .unwrap()
            .remove(0);
        let mut found: Vec<DType> = plan.tensors().iter().map(|t| t.dtype).collect();
        found.sort();
        found.dedup();
        assert_eq!(found.len(), types, "{}: {found:?}", source.display());
    }
}
