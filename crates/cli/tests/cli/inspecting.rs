//! What `mettle inspect` says of models that can run, and of those that cannot.

use crate::mettle::{Mettle, fixture};
use expect_test::{Expect, expect};

/// Compares stdout, without the number that is the machine's own.
fn check(mettle: &Mettle, args: &[&str], expected: Expect) {
    let text = mettle.succeed(&[&["inspect"], args].concat());
    let lines = text.lines().map(|line| match line.starts_with("memory") {
        true => line.rsplit_once(", ").unwrap().0,
        false => line,
    });
    let text: Vec<&str> = lines.collect();
    expected.assert_eq(&text.join("\n"));
}

#[test]
fn a_quantized_folder() {
    check(
        &Mettle::new(),
        &[&fixture("llama-mlx4")],
        expect![[r#"
        path      MODELS/llama-mlx4
        format    safetensors, 20 tensors, 244 kB
        metadata  architectures = ["LlamaForCausalLM"]
                  attention_bias = false
                  attention_dropout = 0.0
                  bos_token_id = 0
                  dtype = "float16"
                  eos_token_id = 1
                  head_dim = 32
                  hidden_act = "silu"
                  hidden_size = 128
                  initializer_range = 0.02
                  intermediate_size = 256
                  max_position_embeddings = 512
                  mlp_bias = false
                  model_type = "llama"
                  num_attention_heads = 4
                  num_hidden_layers = 2
                  num_key_value_heads = 2
                  pad_token_id = null
                  pretraining_tp = 1
                  quantization = {"bits":4,"group_size":64,"model.layers.0.mlp.down_proj":{"bits":8,"group_size":32},"model.layers.1.... (124 characters)
                  quantization_config = {"bits":4,"group_size":64,"model.layers.0.mlp.down_proj":{"bits":8,"group_size":32},"model.layers.1.... (124 characters)
                  rms_norm_eps = 0.00001
                  rope_parameters = {"rope_theta":10000.0,"rope_type":"default"}
                  tie_word_embeddings = true
                  transformers_version = "5.22.2"
                  use_cache = true
                  vocab_size = 160
        types     F32          6 tensors    35.3 kB
                  Q4_1        13 tensors     172 kB
                  Affine8      1 tensors    36.9 kB
        memory    244 kB weights, 262 kB KV cache for 512 tokens
        verdict   can run here with all its 512 tokens of context"#]],
    );
}

#[test]
fn every_tensor_of_a_split_file() {
    let path = fixture("llama31-split/tiny-00002-of-00003.gguf");
    check(
        &Mettle::new(),
        &[&path, "--all"],
        expect![[r#"
        path      MODELS/llama31-split/tiny-00002-of-00003.gguf
        format    GGUF, 21 tensors, 223 kB
        metadata  general.architecture = "llama"
                  general.type = "model"
                  general.name = "tiny llama31"
                  general.size_label = "189K"
                  llama.block_count = 2
                  llama.context_length = 512
                  llama.embedding_length = 96
                  llama.feed_forward_length = 112
                  llama.attention.head_count = 3
                  llama.attention.head_count_kv = 1
                  llama.rope.freq_base = 500000
                  llama.attention.layer_norm_rms_epsilon = 0.00001
                  llama.attention.key_length = 64
                  llama.attention.value_length = 64
                  general.file_type = 7
                  llama.vocab_size = 272
                  llama.rope.dimension_count = 64
                  general.quantization_version = 2
                  tokenizer.ggml.model = "gpt2"
                  tokenizer.ggml.pre = "llama-bpe"
                  tokenizer.ggml.tokens = [272 elements]
                  tokenizer.ggml.token_type = [272 elements]
                  tokenizer.ggml.merges = [14 elements]
                  tokenizer.ggml.bos_token_id = 0
                  tokenizer.ggml.eos_token_id = 1
                  tokenizer.ggml.unknown_token_id = 1
                  tokenizer.ggml.padding_token_id = 1
                  tokenizer.ggml.add_bos_token = false
                  split.no = 0
                  split.count = 3
                  split.tensors.count = 21
        types     F32          6 tensors    2.05 kB
                  F16          2 tensors    43.0 kB
                  Q8_0        13 tensors     178 kB
        tensors   rope_freqs.weight         F32           128 B  [32]
                  token_embd.weight         Q8_0        27.7 kB  [272, 96]
                  blk.0.attn_norm.weight    F32           384 B  [96]
                  blk.0.ffn_down.weight     F16         21.5 kB  [96, 112]
                  blk.0.ffn_gate.weight     Q8_0        11.4 kB  [112, 96]
                  blk.0.ffn_up.weight       Q8_0        11.4 kB  [112, 96]
                  blk.0.ffn_norm.weight     F32           384 B  [96]
                  blk.0.attn_k.weight       Q8_0        6.53 kB  [64, 96]
                  blk.0.attn_output.weight  Q8_0        19.6 kB  [96, 192]
                  blk.0.attn_q.weight       Q8_0        19.6 kB  [192, 96]
                  blk.0.attn_v.weight       Q8_0        6.53 kB  [64, 96]
                  blk.1.attn_norm.weight    F32           384 B  [96]
                  blk.1.ffn_down.weight     F16         21.5 kB  [96, 112]
                  blk.1.ffn_gate.weight     Q8_0        11.4 kB  [112, 96]
                  blk.1.ffn_up.weight       Q8_0        11.4 kB  [112, 96]
                  blk.1.ffn_norm.weight     F32           384 B  [96]
                  blk.1.attn_k.weight       Q8_0        6.53 kB  [64, 96]
                  blk.1.attn_output.weight  Q8_0        19.6 kB  [96, 192]
                  blk.1.attn_q.weight       Q8_0        19.6 kB  [192, 96]
                  blk.1.attn_v.weight       Q8_0        6.53 kB  [64, 96]
                  output_norm.weight        F32           384 B  [96]
        memory    223 kB weights, 262 kB KV cache for 512 tokens
        verdict   can run here with all its 512 tokens of context"#]],
    );
}

#[test]
fn what_cannot_run_says_why_in_one_line() {
    let mettle = Mettle::new();
    let folder = mettle.home.path().join("other");
    std::fs::create_dir(&folder).unwrap();
    let weights = std::fs::read(fixture("llama-awq/model.safetensors")).unwrap();
    std::fs::write(folder.join("model.safetensors"), weights).unwrap();
    let config = std::fs::read_to_string(fixture("llama-awq/config.json")).unwrap();
    let config: serde_json::Value = serde_json::from_str(&config).unwrap();
    let verdict = |key: &str, value: serde_json::Value| {
        let mut config = config.clone();
        config[key] = value;
        std::fs::write(folder.join("config.json"), config.to_string()).unwrap();
        let text = mettle.succeed(&["inspect", "other"]);
        let last = text.lines().last().unwrap();
        last.strip_prefix("verdict   ").unwrap().to_owned()
    };
    let lines = [
        verdict("model_type", "mamba".into()),
        verdict("num_hidden_layers", 3.into()),
        verdict(
            "quantization_config",
            serde_json::json!({"quant_method": "hqq", "bits": 2}),
        ),
    ];
    expect![[r#"
        cannot run here: architecture mamba (model_type in config.json) is not supported (supported: bert, gemma2, gemma3, gemma3_text, gemma4_text, gpt_oss, llama, mistral, mixtral, phi3, qwen2, qwen2_moe, qwen3, qwen3_moe, t5)
        cannot run here: tensor model.layers.2.input_layernorm.weight is missing from the model file (and 8 more)
        cannot run here: config.json: quantization_config: hqq with 2 bits is not supported (supported: MLX affine with 4 or 8 bits in groups of 32, 64 or 128; awq (gemm) and gptq with 4 bits; fp8 (e4m3); mxfp4 experts)"#]].assert_eq(&lines.join("\n"));
    expect![[r#"
        error: owner/name is not in the cache: mettle pull owner/name fetches it
    "#]]
    .assert_eq(&mettle.fail(1, &["inspect", "owner/name"]));
    expect![[r#"
        error: other/model.safetensors is not a model: give the folder that holds the .safetensors files and config.json
    "#]].assert_eq(&mettle.fail(1, &["inspect", "other/model.safetensors"]));
}
