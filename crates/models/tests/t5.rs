//! T5 from both formats: the same model, the plans it makes, the names files may give its embedding, and what is refused.

use expect_test::{Expect, expect};
use mettle_models::{LoadFormat, Model, OpenOptions, Spec, T5Spec, t5};
use mettle_plan::{KvElement, Op, Plan, bind};
use mettle_tensor::{DType, TensorInfo, TensorSource, TensorView};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

fn fixture(name: &str) -> PathBuf {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/models");
    fixtures.join(name)
}

fn open(path: &Path) -> Model {
    Model::open(path, OpenOptions::default()).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn spec(model: &Model) -> &T5Spec {
    match &model.spec {
        Spec::EncoderDecoder(spec) => spec,
        _ => panic!("{} is no encoder-decoder", model.name),
    }
}

#[test]
fn both_formats_describe_the_same_model() {
    for name in ["t5", "t5-gated"] {
        let (hf, gguf) = (
            open(&fixture(name)),
            open(&fixture(name).join("model.gguf")),
        );
        let named = |model: &Model| T5Spec {
            names: spec(&hf).names,
            embedding: String::new(),
            unread: Vec::new(),
            ..spec(model).clone()
        };
        assert_eq!(named(&hf), named(&gguf), "{name}");
        let ops = |model: &Model| -> Vec<&str> {
            let plans = model.plans();
            let nodes = plans.iter().flat_map(|plan| &plan.nodes);
            nodes.map(|node| node.op.name()).collect()
        };
        assert_eq!(ops(&hf), ops(&gguf), "{name}");
        assert_eq!(
            (hf.decoder_start(), gguf.decoder_start()),
            (Some(0), Some(0))
        );
        assert_eq!((&hf.eos_ids[..], &gguf.eos_ids[..]), (&[1][..], &[1][..]));
        let (a, b) = (hf.tokenizer().unwrap(), gguf.tokenizer().unwrap());
        assert_eq!((a.eos(), a.vocab_size()), (b.eos(), b.vocab_size()));
    }
}

/// Every op with the tensors that it reads.
fn listing(plan: &Plan) -> String {
    let mut lines = vec![plan.name.clone()];
    for node in &plan.nodes {
        let weights = node.op.accesses().weights;
        let mut words = vec![node.op.name().to_owned()];
        words.extend(weights.iter().map(|id| plan.weight_of(*id).name()));
        lines.push(words.join(" "));
    }
    lines.join("\n") + "\n"
}

#[test]
fn the_plans_are_a_decoder_and_its_encoder() {
    let mut config = config();
    config["num_layers"] = json!(1);
    config["num_decoder_layers"] = json!(1);
    let plans = t5::from_hf(&config).unwrap();
    let plans = plans.plans("tiny", DType::F32, KvElement::F16);
    assert!(!plans[0].fills_encoder() && plans[1].fills_encoder());
    expect![[r#"
        tiny decoder
        embed shared.weight
        rms_norm decoder.block.0.layer.0.layer_norm.weight
        linear decoder.block.0.layer.0.SelfAttention.q.weight
        linear decoder.block.0.layer.0.SelfAttention.k.weight
        linear decoder.block.0.layer.0.SelfAttention.v.weight
        rope_kv_write
        attention decoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight
        linear decoder.block.0.layer.0.SelfAttention.o.weight
        elementwise
        rms_norm decoder.block.0.layer.1.layer_norm.weight
        linear decoder.block.0.layer.1.EncDecAttention.q.weight
        cross_attention
        linear decoder.block.0.layer.1.EncDecAttention.o.weight
        elementwise
        rms_norm decoder.block.0.layer.2.layer_norm.weight
        linear decoder.block.0.layer.2.DenseReluDense.wi.weight
        elementwise
        linear decoder.block.0.layer.2.DenseReluDense.wo.weight
        elementwise
        gather
        rms_norm decoder.final_layer_norm.weight
        elementwise
        lm_head shared.weight
    "#]]
    .assert_eq(&listing(&plans[0]));
    expect![[r#"
        tiny encoder
        embed shared.weight
        rms_norm encoder.block.0.layer.0.layer_norm.weight
        linear encoder.block.0.layer.0.SelfAttention.q.weight
        linear encoder.block.0.layer.0.SelfAttention.k.weight
        linear encoder.block.0.layer.0.SelfAttention.v.weight
        attention encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight
        linear encoder.block.0.layer.0.SelfAttention.o.weight
        elementwise
        rms_norm encoder.block.0.layer.1.layer_norm.weight
        linear encoder.block.0.layer.1.DenseReluDense.wi.weight
        elementwise
        linear encoder.block.0.layer.1.DenseReluDense.wo.weight
        elementwise
        rms_norm encoder.final_layer_norm.weight
        linear decoder.block.0.layer.1.EncDecAttention.k.weight
        linear decoder.block.0.layer.1.EncDecAttention.v.weight
        rope_kv_write
    "#]]
    .assert_eq(&listing(&plans[1]));
}

/// A file with these tensors, of which nobody reads a byte.
struct Listed(Vec<TensorInfo>);

impl TensorSource for Listed {
    fn tensors(&self) -> &[TensorInfo] {
        &self.0
    }
    fn view(&self, _: usize) -> TensorView<'_> {
        unreachable!("binding reads no bytes")
    }
}

#[test]
fn the_embedding_goes_by_any_of_its_names() {
    let mut spec = t5::from_hf(&config()).unwrap();
    let plans = spec.plans("tiny", DType::F32, KvElement::F16);
    let tensors = || {
        let mut tensors: Vec<TensorInfo> = plans.iter().flat_map(Plan::tensors).collect();
        tensors.sort_by(|a, b| a.name.cmp(&b.name));
        tensors.dedup_by(|a, b| a.name == b.name);
        tensors
    };
    let other = |name: &str, like: &str| {
        let tensors = tensors();
        let like = tensors.iter().find(|t| t.name == like).unwrap().clone();
        TensorInfo {
            name: name.to_owned(),
            ..like
        }
    };
    // By another name; by all of them, with a head that the config calls tied and a bias that nothing reads.
    let mut renamed = tensors();
    renamed.retain(|t| t.name != "shared.weight");
    renamed.push(other("decoder.embed_tokens.weight", "shared.weight"));
    let mut doubled = tensors();
    doubled.push(other("encoder.embed_tokens.weight", "shared.weight"));
    doubled.push(other("decoder.embed_tokens.weight", "shared.weight"));
    doubled.push(other("lm_head.weight", "shared.weight"));
    doubled.push(other(
        "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight",
        "decoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight",
    ));
    for (tensors, table, head) in [
        (
            renamed,
            "decoder.embed_tokens.weight",
            "decoder.embed_tokens.weight",
        ),
        (doubled, "shared.weight", "lm_head.weight"),
    ] {
        let file = Listed(tensors);
        spec.look_at(&file);
        let plans = spec.plans("tiny", DType::F32, KvElement::F16);
        bind(&plans, &file).unwrap();
        for plan in &plans {
            let Op::Embed(embed) = &plan.nodes[0].op else {
                panic!("{} starts with another op", plan.name);
            };
            assert_eq!(plan.weight_of(embed.table).name(), table);
        }
        let last = &plans[0].nodes.last().unwrap().op;
        let Op::LmHead(found) = last else {
            panic!("{last:?}");
        };
        assert_eq!(plans[0].weight_of(found.weight).name(), head);
    }
}

#[test]
fn random_weights_need_the_config_alone() {
    let options = OpenOptions {
        load_format: LoadFormat::Dummy { seed: 1 },
        ..OpenOptions::default()
    };
    let model = Model::open(&fixture("t5-gated"), options).unwrap();
    bind(&model.plans(), &*model.tensors).unwrap();
}

fn config() -> Value {
    let text = std::fs::read(fixture("t5").join("config.json")).unwrap();
    serde_json::from_slice(&text).unwrap()
}

fn check(change: impl FnOnce(&mut Value), message: Expect) {
    let mut config = config();
    change(&mut config);
    let text = match t5::from_hf(&config) {
        Ok(_) => "no error".to_owned(),
        Err(error) => error.to_string(),
    };
    message.assert_eq(&text);
}

#[test]
fn configs_are_read_strictly() {
    check(|_| {}, expect!["no error"]);
    check(
        |c| c["rope_theta"] = json!(10000.0),
        expect![
            "config.json: rope_theta = 10000.0 is not known to this architecture and could change its maths"
        ],
    );
    check(
        |c| c["feed_forward_proj"] = json!("gated-silu"),
        expect![[
            r#"config.json: feed_forward_proj = "gated-silu" is not supported (relu and gated-gelu are)"#
        ]],
    );
    check(
        |c| c["decoder_start_token_id"] = json!(800),
        expect!["config.json: the decoder starts with token 800 of a vocabulary of 800"],
    );
    check(
        |c| c["relative_attention_num_buckets"] = json!(30),
        expect![
            "config.json: 30 buckets up to a distance of 128; they must be a multiple of 4, and less than twice as many"
        ],
    );
    check(
        |c| c["relative_attention_max_distance"] = json!(16),
        expect![
            "config.json: 32 buckets up to a distance of 16; they must be a multiple of 4, and less than twice as many"
        ],
    );
    // What older files leave out.
    let mut older = config();
    let keys = [
        "decoder_start_token_id",
        "relative_attention_max_distance",
        "tie_word_embeddings",
        "scale_decoder_outputs",
        "is_gated_act",
        "dense_act_fn",
        "n_positions",
    ];
    for key in keys {
        older.as_object_mut().unwrap().remove(key);
    }
    assert_eq!(
        t5::from_hf(&older).unwrap(),
        t5::from_hf(&config()).unwrap()
    );
}
