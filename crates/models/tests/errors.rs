//! What is wrong with a model is named: keys, values, tensors, numbers.

use expect_test::{Expect, expect};
use mettle_models::{
    BUILT_IN, LoadFormat, Model, OpenOptions, PlanOptions, decoder_from_hf, plans,
};
use mettle_plan::bind;
use mettle_tensor::{DType, TensorInfo, TensorSource, TensorView};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../fixtures/models")
        .join(name)
}

fn config(name: &str) -> Value {
    let bytes = std::fs::read(fixture(name).join("config.json")).unwrap();
    serde_json::from_slice(&bytes).unwrap()
}

/// The error of a fixture's config after `change`.
fn check_config(name: &str, change: impl Fn(&mut Value), expected: Expect) {
    let mut config = config(name);
    change(&mut config);
    let text = match decoder_from_hf(&config) {
        Ok(_) => "no error".to_owned(),
        Err(error) => error.to_string(),
    };
    expected.assert_eq(&text);
}

fn set(key: &'static str, value: Value) -> impl Fn(&mut Value) {
    move |config| config[key] = value.clone()
}

fn without(key: &'static str) -> impl Fn(&mut Value) {
    move |config| drop(config.as_object_mut().unwrap().remove(key))
}

#[test]
fn keys_that_could_change_the_maths() {
    check_config(
        "llama",
        set("logit_scale", json!(0.5)),
        expect![
            "config.json: logit_scale = 0.5 is not known to this architecture and could change its maths"
        ],
    );
    check_config("llama", set("bos_token_id", json!(7)), expect!["no error"]);
    check_config(
        "llama",
        set("pretraining_tp", json!(2)),
        expect!["config.json: pretraining_tp = 2 is not supported (only 1 is)"],
    );
    check_config(
        "llama",
        set("hidden_act", json!("gelu")),
        expect![[r#"config.json: hidden_act = "gelu" is not supported (only "silu" is)"#]],
    );
    check_config(
        "llama",
        set("model_type", json!("mamba")),
        expect![
            "architecture mamba (model_type in config.json) is not supported (supported: bert, gemma2, gemma3, gemma3_text, gemma4_text, gpt_oss, llama, mistral, mixtral, phi3, qwen2, qwen2_moe, qwen3, qwen3_moe, t5)"
        ],
    );
    check_config(
        "llama",
        without("rms_norm_eps"),
        expect!["config.json: rms_norm_eps is missing"],
    );
    check_config(
        "llama",
        set("vocab_size", json!("many")),
        expect![[
            r#"config.json: vocab_size must be an integer that is not negative, found "many""#
        ]],
    );
}

#[test]
fn windows_are_said_completely() {
    check_config(
        "mistral",
        set("sliding_window", json!(0)),
        expect!["config.json: an attention window of 0 tokens"],
    );
    check_config(
        "mistral",
        without("sliding_window"),
        expect!["config.json: sliding_window is missing"],
    );
    check_config(
        "qwen2",
        |config| {
            config["use_sliding_window"] = json!(true);
            config["sliding_window"] = json!(null);
        },
        expect!["config.json: sliding_window is missing"],
    );
    check_config(
        "qwen3",
        set(
            "layer_types",
            json!(["full_attention", "full_attention", "sliding_attention"]),
        ),
        expect!["config.json: sliding_window is missing"],
    );
    check_config(
        "qwen3",
        set("layer_types", json!(["full_attention"])),
        expect![[
            r#"config.json: layer_types = ["full_attention"] is not supported (3 of sliding_attention or full_attention are)"#
        ]],
    );
}

#[test]
fn rotary_embedding_in_both_styles() {
    let both = |config: &mut Value| config["rope_theta"] = json!(5.0);
    check_config(
        "llama",
        both,
        expect!["config.json: rope_theta = 5.0 is not supported (rope_parameters says 10000)"],
    );
    check_config(
        "smollm2",
        set("rope_scaling", json!({"type": "dynamic", "factor": 2.0})),
        expect![[
            r#"config.json: rope_scaling: type = "dynamic" is not supported (default, linear, llama3 and longrope are)"#
        ]],
    );
    check_config(
        "smollm2",
        set("rope_scaling", json!({"type": "linear", "factor": 0.0})),
        expect!["config.json: rotary factor is 0; it must be finite and above 0"],
    );
    check_config(
        "llama31",
        |config| config["rope_parameters"]["truncate"] = json!(true),
        expect![
            "config.json: rope_parameters: truncate = true is not known to this architecture and could change its maths"
        ],
    );
    check_config(
        "smollm2",
        set("rope_theta", json!(-1.0)),
        expect!["config.json: rope_theta is -1; it must be finite and above 0"],
    );
    check_config(
        "llama31",
        |config| config["rope_parameters"]["high_freq_factor"] = json!(1.0),
        expect![
            "config.json: high_freq_factor - low_freq_factor is 0; it must be finite and above 0"
        ],
    );
    // The same scaling as transformers 4 writes it gives the same model.
    let new = config("llama31");
    let mut old = new.clone();
    let parameters = old
        .as_object_mut()
        .unwrap()
        .remove("rope_parameters")
        .unwrap();
    old["rope_theta"] = parameters["rope_theta"].clone();
    old["rope_scaling"] = parameters;
    old["rope_scaling"]
        .as_object_mut()
        .unwrap()
        .remove("rope_theta");
    assert_eq!(
        decoder_from_hf(&new).unwrap(),
        decoder_from_hf(&old).unwrap()
    );
}

#[test]
fn absurd_dimensions() {
    check_config(
        "llama",
        set("num_attention_heads", json!(0)),
        expect!["config.json: attention heads is 0; it must be 1 to 1048576"],
    );
    check_config(
        "llama",
        set("num_key_value_heads", json!(3)),
        expect!["config.json: 5 attention heads do not divide among 3 KV heads"],
    );
    check_config(
        "llama",
        set("head_dim", json!(15)),
        expect!["config.json: head size 15 is odd; rotary embedding turns pairs"],
    );
    check_config(
        "llama",
        set("num_hidden_layers", json!(1_000_000_000)),
        expect!["config.json: layers is 1000000000; it must be 1 to 2000"],
    );
    check_config(
        "llama",
        set("hidden_size", json!(u64::MAX)),
        expect!["config.json: hidden size is 18446744073709551615; it must be 1 to 1048576"],
    );
    check_config(
        "llama",
        set("num_attention_heads", json!(1_000_000)),
        expect!["config.json: heads x head size is 16000000; it must be 1 to 1048576"],
    );
    check_config(
        "llama",
        set("rms_norm_eps", json!(-1)),
        expect!["config.json: norm epsilon -1 is not between 0 and 1"],
    );
}

/// A source with a model's tensors, some of them changed.
struct Listed(Vec<TensorInfo>);

impl TensorSource for Listed {
    fn tensors(&self) -> &[TensorInfo] {
        &self.0
    }
    fn view(&self, _: usize) -> TensorView<'_> {
        unreachable!("binding reads no bytes")
    }
}

fn check_tensors(path: &str, change: impl Fn(&mut Vec<TensorInfo>), expected: Expect) {
    let model = Model::open(&fixture(path), OpenOptions::default()).unwrap();
    let mut tensors = model.tensors.tensors().to_vec();
    change(&mut tensors);
    let text = match bind(&[model.plan()], &Listed(tensors)) {
        Ok(_) => "no error".to_owned(),
        Err(error) => error.to_string(),
    };
    expected.assert_eq(&text);
}

fn extra(name: &'static str) -> impl Fn(&mut Vec<TensorInfo>) {
    move |tensors| {
        tensors.push(TensorInfo {
            name: name.to_owned(),
            dtype: DType::F32,
            shape: vec![4],
        })
    }
}

#[test]
fn tensors_that_are_missing_extra_or_misshapen() {
    let remove = |name: &'static str| move |t: &mut Vec<TensorInfo>| t.retain(|t| t.name != name);
    check_tensors(
        "qwen3",
        remove("model.layers.1.self_attn.q_norm.weight"),
        expect!["tensor model.layers.1.self_attn.q_norm.weight is missing from the model file"],
    );
    check_tensors(
        "qwen2/model.gguf",
        remove("blk.2.attn_v.bias"),
        expect!["tensor blk.2.attn_v.bias is missing from the model file"],
    );
    check_tensors(
        "llama",
        extra("model.layers.0.self_attn.q_proj.bias"),
        expect![
            "the model file has a tensor that this architecture does not use: model.layers.0.self_attn.q_proj.bias"
        ],
    );
    check_tensors(
        "llama/model.gguf",
        extra("blk.0.attn_q_norm.weight"),
        expect![
            "the model file has a tensor that this architecture does not use: blk.0.attn_q_norm.weight"
        ],
    );
    check_tensors(
        "mistral",
        |tensors| {
            let found = tensors
                .iter_mut()
                .find(|t| t.name.ends_with("2.mlp.down_proj.weight"));
            found.unwrap().shape.reverse();
        },
        expect![
            "tensor model.layers.2.mlp.down_proj.weight has shape [112, 48], the model's config makes it [48, 112]"
        ],
    );
}

#[test]
fn tensors_that_may_be_there_unread() {
    let frequencies = "model.layers.0.self_attn.rotary_emb.inv_freq";
    check_tensors("llama", extra(frequencies), expect!["no error"]);
    // Tied: the head may be stored all the same. Untied: it is read.
    check_tensors("qwen2", extra("lm_head.weight"), expect!["no error"]);
    let model = Model::open(&fixture("llama31/model.gguf"), OpenOptions::default()).unwrap();
    assert_eq!(model.plan().unread, ["rope_freqs.weight"]);
}

fn check_gguf(name: &str, from: &[u8], to: &[u8], expected: Expect) {
    expected.assert_eq(&gguf_error(name, from, to));
}

/// The error of a fixture's GGUF file after replacing `from` by as many bytes.
fn gguf_error(name: &str, from: &[u8], to: &[u8]) -> String {
    assert_eq!(from.len(), to.len());
    let mut bytes = std::fs::read(fixture(name).join("model.gguf")).unwrap();
    let at = bytes.windows(from.len()).position(|w| w == from).unwrap();
    bytes[at..at + from.len()].copy_from_slice(to);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    std::fs::write(&path, bytes).unwrap();
    open_error(&path, OpenOptions::default())
}

#[test]
fn gguf_keys_that_could_change_the_maths() {
    check_gguf(
        "llama",
        b"llama.rope.freq_base",
        b"llama.rope.freq_bend",
        expect![
            "GGUF metadata: llama.rope.freq_bend = F32(10000.0) is not known to this architecture and could change its maths"
        ],
    );
    check_gguf(
        "llama",
        b"llama.block_count",
        b"llama.block_cound",
        expect!["GGUF metadata: llama.block_count is missing"],
    );
    check_gguf(
        "qwen3",
        b"\x05\0\0\0\0\0\0\0qwen3",
        b"\x05\0\0\0\0\0\0\0qwen9",
        expect![
            "architecture qwen9 (general.architecture in the GGUF file) is not supported (supported: bert, gemma2, gemma3, gemma4, gpt-oss, llama, phi3, qwen2, qwen2moe, qwen3, qwen3moe, t5)"
        ],
    );
    // An unsigned 32-bit 16 becomes 18: more would be rotated than a head has.
    check_gguf(
        "llama",
        b"llama.rope.dimension_count\x04\0\0\0\x10",
        b"llama.rope.dimension_count\x04\0\0\0\x12",
        expect!["GGUF metadata: 18 rotated elements of heads of 16"],
    );
    check_gguf(
        "llama",
        b"llama.attention.head_count\x04\0\0\0\x05",
        b"llama.attention.head_count\x04\0\0\0\0",
        expect!["GGUF metadata: attention heads is 0; it must be 1 to 1048576"],
    );
    check_gguf(
        "llama",
        b"llama.vocab_size\x04\0\0\0\x0b\x01",
        b"llama.vocab_size\x04\0\0\0\x0c\x01",
        expect!["GGUF metadata: token_embd.weight has 267 rows, the vocabulary size is 268"],
    );
}

#[test]
fn gguf_rotary_numbers_that_no_model_has() {
    let bytes =
        |value: f32| [&b"llama.rope.freq_base\x06\0\0\0"[..], &value.to_le_bytes()].concat();
    for value in [f32::NAN, 0.0, -10_000.0, f32::INFINITY] {
        let expected = format!(
            "GGUF metadata: llama.rope.freq_base is {value}; it must be finite and above 0"
        );
        let found = gguf_error("llama", &bytes(10_000.0), &bytes(value));
        assert_eq!(found, expected);
    }
    // The first divisor is the tensor's first value: Llama 3 leaves the highest frequency as it is.
    let divisors = |first: f32| [first, 1.0, 1.0].map(f32::to_le_bytes).concat();
    let found = gguf_error("llama31", &divisors(1.0), &divisors(f32::NAN));
    expect![
        "GGUF metadata: a divisor of the rotary frequencies is NaN; it must be finite and above 0"
    ]
    .assert_eq(&found);
}

/// The error of a built-in config's plans after `change`.
fn plans_error(name: &str, change: impl Fn(&mut Value)) -> String {
    let (_, text) = BUILT_IN.iter().find(|(known, _)| *known == name).unwrap();
    let mut config: Value = serde_json::from_str(text).unwrap();
    change(&mut config);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config.json");
    std::fs::write(&path, config.to_string()).unwrap();
    match plans(path.to_str().unwrap(), &PlanOptions::default()) {
        Ok(_) => "no error".to_owned(),
        Err(error) => error.to_string(),
    }
}

#[test]
fn rotary_numbers_of_plans_are_above_zero() {
    for (name, key) in [
        ("deepseek-v3", "/rope_theta"),
        ("deepseek-v3", "/rope_scaling/factor"),
        ("gemma-3-4b", "/text_config/rope_theta"),
        ("gemma-3-4b", "/text_config/rope_local_base_freq"),
        ("gemma-3-4b", "/text_config/rope_scaling/factor"),
        ("gpt-oss-20b", "/rope_theta"),
        ("qwen3-next-80b-a3b", "/rope_theta"),
    ] {
        let error = plans_error(name, |c| *c.pointer_mut(key).unwrap() = json!(-2.0));
        let says_so = error.contains(" is -2; it must be ") && error.ends_with("above 0");
        assert!(says_so, "{name} {key}: {error}");
    }
}

#[test]
fn experts_beyond_all_bounds() {
    for (name, experts) in [
        ("deepseek-v3", "n_routed_experts"),
        ("qwen3-next-80b-a3b", "num_experts"),
    ] {
        let error = plans_error(name, |config| {
            config[experts] = json!(4096);
            config["num_hidden_layers"] = json!(2000);
        });
        expect!["config.json: 2000 layers of 4096 experts are 24576000 tensors; at most 262144 are supported"]
            .assert_eq(&error);
    }
}

#[test]
fn random_weights_larger_than_memory() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = config("llama");
    config["vocab_size"] = json!(1 << 28);
    config["hidden_size"] = json!(1 << 20);
    std::fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
    let options = OpenOptions {
        load_format: LoadFormat::Dummy { seed: 1 },
        ..OpenOptions::default()
    };
    let error = open_error(folder.path(), options);
    assert!(
        error.starts_with("random weights need 2251809.0 GB of memory"),
        "{error}"
    );
}

fn open_error(path: &Path, options: OpenOptions) -> String {
    match Model::open(path, options) {
        Ok(_) => "no error".to_owned(),
        Err(error) => error.to_string(),
    }
}

#[test]
fn paths_that_are_no_model() {
    let folder = tempfile::tempdir().unwrap();
    let shown = |error: String| error.replace(&folder.path().display().to_string(), "DIR");
    let open = || shown(open_error(folder.path(), OpenOptions::default()));
    expect!["DIR is not a model: the folder has neither config.json nor a .gguf file"]
        .assert_eq(&open());
    for name in ["a.gguf", "b.gguf"] {
        std::fs::write(folder.path().join(name), b"").unwrap();
    }
    expect!["DIR is not a model: the folder has 2 .gguf models; name one of them"]
        .assert_eq(&open());
    std::fs::write(folder.path().join("config.json"), b"{").unwrap();
    std::fs::write(folder.path().join("model.safetensors"), b"").unwrap();
    expect!["DIR/config.json is not valid JSON: EOF while parsing an object at line 1 column 1"]
        .assert_eq(&open());
    let part = folder.path().join("model.safetensors");
    let error = shown(open_error(&part, OpenOptions::default()));
    expect!["DIR/model.safetensors is not a model: give the folder that holds the .safetensors files and config.json"]
        .assert_eq(&error);
    let missing = folder.path().join("none");
    let error = shown(open_error(&missing, OpenOptions::default()));
    expect!["cannot read DIR/none: No such file or directory (os error 2)"].assert_eq(&error);
    let error = match plans("no-such-model", &PlanOptions::default()) {
        Ok(_) => "no error".to_owned(),
        Err(error) => error.to_string(),
    };
    expect!["there is no model or config called no-such-model; built in are: deepseek-v3, gemma-3-4b, gpt-oss-20b, llama-3.1-8b, mistral-7b, mixtral-8x7b, qwen1.5-moe-a2.7b, qwen2-0.5b, qwen3-0.6b, qwen3-30b-a3b, qwen3-next-80b-a3b, smollm2-135m, t5-small"]
    .assert_eq(&error);
}

#[test]
fn quantization_that_cannot_be_read_is_refused_before_the_weights() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = config("llama");
    config["quantization_config"] = json!({"quant_method": "gptq", "bits": 3, "group_size": 128});
    std::fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
    std::fs::write(folder.path().join("model.safetensors"), b"").unwrap();
    expect!["config.json: quantization_config: gptq (format gptq) with 3 bits is not supported (supported: MLX affine with 4 or 8 bits in groups of 32, 64 or 128; awq (gemm) and gptq with 4 bits; fp8 (e4m3); mxfp4 experts)"]
        .assert_eq(&open_error(folder.path(), OpenOptions::default()));
}

#[test]
fn options_that_do_not_fit() {
    let path = fixture("llama");
    let long = OpenOptions {
        context_length: Some(513),
        ..OpenOptions::default()
    };
    let error = open_error(&path, long);
    assert!(
        error.ends_with("a context of 513 tokens was asked for; the model's is 512"),
        "{error}"
    );
    let quantized = OpenOptions {
        load_format: LoadFormat::Dummy { seed: 1 },
        weight_type: Some(DType::Q4_K),
        ..OpenOptions::default()
    };
    expect!["random weights of type Q4_K for model.embed_tokens.weight: rows of 80 are not whole blocks of 256"]
        .assert_eq(&open_error(&path, quantized));
}
