//! Every weight type end to end: a model in that type against the same weights widened to f32.

mod common;

use common::widened::Widened;
use mettle_cpu::{CpuBackend, Isa};
use mettle_models::{LoadFormat, Model, OpenOptions};
use mettle_plan::KvElement;
use mettle_tensor::{DType, TensorInfo, TensorSource, TensorView};
use mettle_validate::{Difference, Runner, RunnerOptions, log_softmax};
use std::path::Path;
use std::sync::Arc;

/// All experts take part: rounding could choose another one of two that are nearly equal.
const MIXTURE: &str = r#"{
    "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "hidden_act": "silu",
    "hidden_size": 256, "intermediate_size": 256, "moe_intermediate_size": 256, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64, "vocab_size": 203,
    "num_experts": 5, "num_experts_per_tok": 5, "norm_topk_prob": true, "decoder_sparse_step": 1,
    "max_position_embeddings": 128, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
    "tie_word_embeddings": true, "torch_dtype": "bfloat16"
}"#;

const ENCODER_DECODER: &str = r#"{
    "architectures": ["T5ForConditionalGeneration"], "model_type": "t5", "is_encoder_decoder": true,
    "d_model": 256, "d_ff": 768, "d_kv": 64, "num_heads": 4, "num_layers": 2, "num_decoder_layers": 2,
    "feed_forward_proj": "gated-gelu", "vocab_size": 203, "n_positions": 128, "layer_norm_epsilon": 1e-6,
    "relative_attention_num_buckets": 32, "relative_attention_max_distance": 128,
    "tie_word_embeddings": true, "decoder_start_token_id": 0, "eos_token_id": 1, "pad_token_id": 0,
    "torch_dtype": "bfloat16"
}"#;

/// The tensors of another source, some with their columns said to be in an order.
struct Ordered {
    source: Arc<dyn TensorSource>,
    orders: Vec<Option<Vec<u32>>>,
}

impl Ordered {
    /// Projections that are fused have the same order, others, and none.
    fn new(source: Arc<dyn TensorSource>) -> Ordered {
        let step = |name: &str| match name.split('.').rev().nth(1) {
            Some("q_proj" | "k_proj" | "down_proj") => Some(77),
            Some("v_proj" | "up_proj") => Some(301),
            _ => None,
        };
        let order = |info: &TensorInfo| {
            let columns = info.shape[1] as u32;
            // Both are without a common factor with 256 and 768.
            let step = step(&info.name)?;
            Some((0..columns).map(|j| (j * step + 5) % columns).collect())
        };
        let orders = source.tensors().iter().map(|info| match info.shape.len() {
            2 => order(info),
            _ => None,
        });
        Ordered {
            orders: orders.collect(),
            source,
        }
    }
}

impl TensorSource for Ordered {
    fn tensors(&self) -> &[TensorInfo] {
        self.source.tensors()
    }

    fn view(&self, index: usize) -> TensorView<'_> {
        TensorView {
            order: self.orders[index].as_deref(),
            ..self.source.view(index)
        }
    }
}

const CONFIG: &str = r#"{
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu",
    "hidden_size": 256, "intermediate_size": 768, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 203,
    "max_position_embeddings": 128, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
    "tie_word_embeddings": true, "torch_dtype": "bfloat16"
}"#;

fn dummy(path: &Path, dtype: DType) -> Model {
    let options = OpenOptions {
        load_format: LoadFormat::Dummy { seed: 7 },
        weight_type: Some(dtype),
        kv_element: KvElement::F32,
        context_length: None,
    };
    Model::open(path, options).unwrap()
}

#[test]
fn every_type_computes_what_its_values_say() {
    check(CONFIG, 0, 2e-3);
}

#[test]
fn experts_of_every_type_compute_what_their_values_say() {
    check(MIXTURE, 0, 2e-3);
}

#[test]
fn encoders_and_decoders_of_every_type_compute_what_their_values_say() {
    // Four layers, and scores that nothing scales down.
    check(ENCODER_DECODER, 41, 5e-3);
}

/// With so many tokens encoded first. Types that round activations may differ by `rounding`.
fn check(config: &str, encoded: usize, rounding: f64) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config.json");
    std::fs::write(&path, config).unwrap();
    let tokens: Vec<u32> = (0..60).map(|i| i * 31 % 203).collect();
    for dtype in DType::ALL {
        let mut model = dummy(&path, dtype);
        let logits = |model: &Model, isa: Isa, chunk: usize| {
            let backend = CpuBackend::with_isa(2, isa);
            let mut runner = Runner::new(model, &backend, RunnerOptions::new(64)).unwrap();
            if encoded > 0 {
                runner.encode(&tokens[..encoded]).unwrap();
            }
            runner.logits(&tokens, chunk).unwrap()
        };
        let found = logits(&model, Isa::detect(), 60);
        let scalar = logits(&model, Isa::Scalar, 7);
        assert!(found == scalar, "{dtype}: scalar in chunks differs");
        model.tensors = Arc::new(Widened::new(&*model.tensors));
        let expected = logits(&model, Isa::detect(), 60);
        let rows = |l: &[f32]| {
            l.chunks_exact(203)
                .flat_map(log_softmax)
                .collect::<Vec<_>>()
        };
        let difference = Difference::between(&rows(&found), &rows(&expected));
        // Widening weights that take f32 changes nothing, but for the order in which F8 is scaled and added; others round
        // activations to a part in 32512 of the largest in their block, which two layers and the head add up to 8e-4.
        let allowed = match dtype {
            DType::F8 => rounding / 20.0,
            _ if dtype.is_quantized() => rounding,
            _ => f64::MIN_POSITIVE,
        };
        println!("{dtype}: {difference:?}");
        assert!(difference.max < allowed, "{dtype}: {difference:?}");
    }
}

#[test]
fn columns_in_an_order_of_their_own_meet_their_inputs() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config.json");
    std::fs::write(&path, CONFIG).unwrap();
    let tokens: Vec<u32> = (0..60).map(|i| i * 31 % 203).collect();
    for dtype in [DType::Zero4, DType::Q6_K, DType::F16] {
        let mut model = dummy(&path, dtype);
        let logits = |model: &Model, isa: Isa, threads: usize, chunk: usize| {
            let backend = CpuBackend::with_isa(threads, isa);
            let mut runner = Runner::new(model, &backend, RunnerOptions::new(64)).unwrap();
            runner.logits(&tokens, chunk).unwrap()
        };
        let unordered = logits(&model, Isa::detect(), 2, 60);
        model.tensors = Arc::new(Ordered::new(model.tensors.clone()));
        let found = logits(&model, Isa::detect(), 2, 60);
        assert!(
            logits(&model, Isa::Scalar, 1, 7) == found,
            "{dtype}: chunks"
        );
        assert!(
            logits(&model, Isa::detect(), 3, 1) == found,
            "{dtype}: one by one"
        );
        model.tensors = Arc::new(Widened::new(&*model.tensors));
        let expected = logits(&model, Isa::detect(), 2, 60);
        let difference = Difference::between(&found, &expected);
        let moved = Difference::between(&unordered, &expected);
        println!("{dtype}: {difference:?}, without an order {moved:?}");
        // As above.
        assert!(difference.max < 2e-3, "{dtype}: {difference:?}");
        assert!(moved.max > 0.1, "{dtype}: the order does not matter");
    }
}
