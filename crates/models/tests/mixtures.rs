//! What configs say of experts: read, or refused with the numbers.

use expect_test::{Expect, expect};
use mettle_models::{BUILT_IN, DecoderSpec, StoredExperts, decoder_from_hf};
use serde_json::{Value, json};

fn built_in(name: &str) -> Value {
    let (_, json) = BUILT_IN.iter().find(|(known, _)| *known == name).unwrap();
    serde_json::from_str(json).unwrap()
}

fn with(name: &str, key: &str, value: Value) -> Value {
    let mut config = built_in(name);
    config[key] = value;
    config
}

fn mixtures(spec: &DecoderSpec) -> Vec<bool> {
    let mixture = spec.mixture.as_ref().unwrap();
    (0..spec.layers).map(|l| mixture.is_mixture(l)).collect()
}

#[test]
fn some_layers_are_dense() {
    let mut config = with("qwen3-30b-a3b", "decoder_sparse_step", json!(2));
    config["num_hidden_layers"] = json!(6);
    let spec = decoder_from_hf(&config).unwrap();
    assert_eq!(mixtures(&spec), [false, true, false, true, false, true]);
    config["mlp_only_layers"] = json!([3]);
    let spec = decoder_from_hf(&config).unwrap();
    assert_eq!(mixtures(&spec), [false, true, false, false, false, true]);
}

/// transformers 5 writes Qwen3-MoE's experts and gpt-oss's rotation under other names.
#[test]
fn newer_spellings_mean_the_same() {
    let mut config = built_in("qwen3-30b-a3b");
    let older = decoder_from_hf(&config).unwrap();
    let experts = config.as_object_mut().unwrap().remove("num_experts");
    config["num_local_experts"] = experts.unwrap();
    assert_eq!(decoder_from_hf(&config).unwrap(), older);
    let mut config = built_in("gpt-oss-20b");
    let older = decoder_from_hf(&config).unwrap();
    let object = config.as_object_mut().unwrap();
    let (theta, rope) = (object.remove("rope_theta"), object.remove("rope_scaling"));
    object.insert("rope_parameters".into(), rope.unwrap());
    config["rope_parameters"]["rope_theta"] = theta.unwrap();
    assert_eq!(decoder_from_hf(&config).unwrap(), older);
}

#[test]
fn dense_experts_of_gpt_oss_have_the_input_as_rows() {
    let stored = |config: &Value| {
        let spec = decoder_from_hf(config).unwrap();
        spec.mixture.unwrap().stored
    };
    let quantized = built_in("gpt-oss-20b");
    let transposed = false;
    assert_eq!(
        stored(&quantized),
        StoredExperts::Interleaved { transposed }
    );
    let mut dense = quantized;
    dense.as_object_mut().unwrap().remove("quantization_config");
    let transposed = true;
    assert_eq!(stored(&dense), StoredExperts::Interleaved { transposed });
}

fn refused(config: Value, expected: Expect) {
    match decoder_from_hf(&config) {
        Ok(_) => panic!("accepted"),
        Err(error) => expected.assert_eq(&error.to_string()),
    }
}

#[test]
fn what_cannot_be_is_refused() {
    refused(
        with("mixtral-8x7b", "num_experts_per_tok", json!(9)),
        expect!["config.json: 9 of 8 experts a token"],
    );
    refused(
        with("qwen3-30b-a3b", "decoder_sparse_step", json!(0)),
        expect!["config.json: decoder_sparse_step = 0 is not supported (1 or more is)"],
    );
    refused(
        with("qwen3-30b-a3b", "norm_topk_prob", Value::Null),
        expect!["config.json: norm_topk_prob is missing"],
    );
    refused(
        with(
            "qwen1.5-moe-a2.7b",
            "shared_expert_intermediate_size",
            json!(0),
        ),
        expect!["config.json: shared_expert_intermediate_size is 0; it must be 1 to 1048576"],
    );
    refused(
        with(
            "gpt-oss-20b",
            "quantization_config",
            json!({"quant_method": "awq"}),
        ),
        expect![[
            r#"config.json: quantization_config: quant_method = "awq" is not supported (only "mxfp4" is)"#
        ]],
    );
    refused(
        with("gpt-oss-20b", "expert_bias", json!(1)),
        expect![
            "config.json: expert_bias = 1 is not known to this architecture and could change its maths"
        ],
    );
}
