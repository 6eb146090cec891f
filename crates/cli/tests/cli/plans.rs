//! `mettle plan`, for a model that runs and for configs that only have a plan.

use crate::mettle::{Mettle, fixture};
use expect_test::expect;

#[test]
fn a_small_model_prints_its_ops() {
    let mettle = Mettle::new();
    let plan = mettle.succeed(&["plan", "-m", &fixture("llama/config.json")]);
    expect![[r#"
        llama
          op   kind            shape                                                   bytes    FLOPs  weights
           0   embed           tokens x 1 -> tokens x 80                                644        0   model.embed_tokens.weight (F32)
           1 | rms_norm        tokens x 80 -> tokens x 80                               960      320   model.layers.0.input_layernorm.weight (F32)
           2 | linear          tokens x 80 -> tokens x 240                            78.1 k   38.4 k  model.layers.0.self_attn.q_proj.weight + model.layers.0.self_attn.k_proj.weight + model.layers.0.self_attn.v_proj.weight (F32)
           3 | rope_kv_write   tokens x 80 -> tokens x 80, kv full                    1.92 k     480   
           4 | attention       tokens x 80, kv full -> tokens x 80                      640        0   + 320 B and 320 FLOP per token of context
           5 | linear          tokens x 80 -> tokens x 80                             26.6 k   12.8 k  model.layers.0.self_attn.o_proj.weight (F32)
           6 | rms_norm        tokens x 80 -> tokens x 80                               960      320   model.layers.0.post_attention_layernorm.weight (F32)
           7 | linear          tokens x 80 -> tokens x 272                            88.4 k   43.5 k  model.layers.0.mlp.gate_proj.weight + model.layers.0.mlp.up_proj.weight (F32)
           8 | gated_act       tokens x 136 -> tokens x 136                           1.63 k     680   
           9 | linear          tokens x 136, tokens x 80 -> tokens x 80               44.7 k   21.8 k  model.layers.0.mlp.down_proj.weight (F32)
               ... the 9 ops above 1 more time ...
          19 | rms_norm        tokens x 80 -> tokens x 80                               960      320   model.layers.2.input_layernorm.weight (F32)
          20 | linear          tokens x 80 -> tokens x 240                            78.1 k   38.4 k  model.layers.2.self_attn.q_proj.weight + model.layers.2.self_attn.k_proj.weight + model.layers.2.self_attn.v_proj.weight (F32)
          21 | rope_kv_write   tokens x 80 -> tokens x 80, kv full                    1.92 k     480   
          22 | attention       tokens x 80, kv full -> tokens x 80                      640        0   + 320 B and 320 FLOP per token of context
          23 | gather          tokens x 80, logit_rows x 1 -> logit_rows x 80           644        0   
          24   gather          tokens x 80, logit_rows x 1 -> logit_rows x 80           644        0   
          25 | linear          logit_rows x 80 -> logit_rows x 80                     26.6 k   12.8 k  model.layers.2.self_attn.o_proj.weight (F32)
          26 | rms_norm        logit_rows x 80 -> logit_rows x 80                       960      320   model.layers.2.post_attention_layernorm.weight (F32)
          27 | linear          logit_rows x 80 -> logit_rows x 272                    88.4 k   43.5 k  model.layers.2.mlp.gate_proj.weight + model.layers.2.mlp.up_proj.weight (F32)
          28 | gated_act       logit_rows x 136 -> logit_rows x 136                   1.63 k     680   
          29 | linear          logit_rows x 136, logit_rows x 80 -> logit_rows x 80   44.7 k   21.8 k  model.layers.2.mlp.down_proj.weight (F32)
          30 | rms_norm        logit_rows x 80 -> logit_rows x 80                       960      320   model.norm.weight (F32)
          31 | lm_head         logit_rows x 80 -> logit_rows x 267                    86.8 k   42.7 k  lm_head.weight (F32)

        32 ops, 30 barriers (| before the op: everything earlier is finished)
        weights   218 k parameters, 872 kB
        a token   788 kB read and written, 398 kFLOP at context 0
        a token   1.77 MB read and written, 1.38 MFLOP at context 1024
        a token   8.65 MB read and written, 8.26 MFLOP at context 8192
        KV group  full: 3 layers of 5x16 F16 + 5x16 F16, kept whole, 960 B a token
        scratch   1.82 MB for steps of up to 512 tokens of 1 sequence(s), 256 logit rows
    "#]].assert_eq(&plan);
}

#[test]
fn a_pass_that_is_switched_off_shows() {
    let mettle = Mettle::new();
    let ops = |more: &[&str]| {
        let model = fixture("qwen2");
        let args = ["plan", "--json", "-m", &model];
        let json = mettle.succeed(&[&args[..], more].concat());
        let plan: serde_json::Value = serde_json::from_str(&json).unwrap();
        plan["ops"].as_array().unwrap().len()
    };
    // Three layers, each with two more projections.
    assert_eq!(ops(&["--disable-pass", "fuse-qkv"]), ops(&[]) + 6);
}

#[test]
fn configs_that_are_built_in_print() {
    let mettle = Mettle::new();
    for name in [
        "gpt-oss-20b",
        "qwen3-next-80b-a3b",
        "deepseek-v3",
        "gemma-3-4b",
        "t5-small",
        "llama-3.1-8b",
        "smollm2:135m",
    ] {
        let text = mettle.succeed(&["plan", "-m", name]);
        for part in ["ops, ", " barriers", "a token ", "scratch "] {
            assert!(text.contains(part), "{name}: {part}\n{text}");
        }
    }
    let adapted = mettle.succeed(&["plan", "-m", "llama-3.1-8b", "--adapters", "4x16"]);
    assert!(adapted.contains("lora_a"), "{adapted}");
}

#[test]
fn ranks_that_do_the_same_print_once() {
    let mettle = Mettle::new();
    let args = ["plan", "-m", "llama-3.1-8b", "--ranks", "2"];
    let ranks = mettle.succeed(&args[..]);
    assert_eq!(ranks.matches("KV group").count(), 1);
    assert!(ranks.contains("all_reduce"), "{ranks}");
    let end = "\n\nllama-3.1-8b rank 1 of 2\nas llama-3.1-8b rank 0 of 2, with other parts of the same tensors\n";
    assert!(ranks.ends_with(end), "{ranks}");
    let all = mettle.succeed(&[&args[..], &["--all"]].concat());
    assert_eq!(all.matches("KV group").count(), 2);
}

#[test]
fn a_folder_with_one_gguf_file_is_a_model() {
    let mettle = Mettle::new();
    let folder = fixture("llama31-q8_0");
    let plan = mettle.succeed(&["plan", "-m", &folder]);
    assert!(plan.starts_with("llama31-q8_0\n"), "{plan}");
    mettle.succeed(&["run", "--raw", "--max-tokens", "1", "-m", &folder, "hi"]);
    assert_eq!(mettle.succeed(&["pull", &folder]), "MODELS/llama31-q8_0\n");
}

#[test]
fn an_unknown_config_names_the_known_ones() {
    let error = Mettle::new().fail(1, &["plan", "-m", "gpt-7"]);
    assert!(error.contains("gpt-oss-20b, "), "{error}");
}
