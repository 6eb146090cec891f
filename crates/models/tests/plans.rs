//! The plans of published models have the published numbers.

use mettle_models::{AdapterSlots, BUILT_IN, PlanOptions, plans};
use mettle_plan::print::PlanReport;
use mettle_plan::{
    BindError, Dim, Element, KvElement, KvSource, Op, Plan, Retention, Slice, Take, bind, cost,
    passes,
};
use mettle_tensor::{DType, TensorInfo, TensorSource, TensorView};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

fn of(name: &str) -> Vec<Plan> {
    plans(name, &PlanOptions::default()).unwrap_or_else(|e| panic!("{name}: {e}"))
}

/// Elements of every tensor that some plan reads, each counted once.
fn parameters(plans: &[Plan]) -> usize {
    let mut tensors = BTreeMap::new();
    for info in plans.iter().flat_map(Plan::tensors) {
        let elements: usize = info.shape.iter().product();
        let before = tensors.insert(info.name.clone(), elements);
        assert!(before.is_none_or(|b| b == elements), "{}", info.name);
    }
    tensors.values().sum()
}

fn report(plan: &Plan) -> PlanReport {
    PlanReport::new(plan, &plan.bounds(64, 4))
}

#[test]
fn parameter_counts_are_the_published_ones() {
    // Counted from the checkpoints: the hub's numbers, without DeepSeek's and Qwen's multi-token heads.
    let published = [
        ("deepseek-v3", 671.0e9),
        ("gemma-3-4b", 4.300e9),
        ("gpt-oss-20b", 20.91e9),
        ("llama-3.1-8b", 8.030e9),
        ("mistral-7b", 7.248e9),
        ("mixtral-8x7b", 46.70e9),
        ("qwen1.5-moe-a2.7b", 14.32e9),
        ("qwen2-0.5b", 494.0e6),
        ("qwen3-0.6b", 596.0e6),
        ("qwen3-30b-a3b", 30.53e9),
        ("qwen3-next-80b-a3b", 79.67e9),
        ("smollm2-135m", 134.5e6),
        ("t5-small", 60.5e6),
    ];
    assert_eq!(published.len(), BUILT_IN.len());
    for (name, expected) in published {
        let found = parameters(&of(name)) as f64;
        let error = (found - expected).abs() / expected;
        assert!(error < 0.002, "{name}: {found} instead of {expected}");
    }
}

/// A file with these tensors, of which nobody reads a byte.
struct Shapes(Vec<TensorInfo>);

impl TensorSource for Shapes {
    fn tensors(&self) -> &[TensorInfo] {
        &self.0
    }
    fn view(&self, _: usize) -> TensorView<'_> {
        unreachable!("binding reads no bytes")
    }
}

#[test]
fn plans_of_one_model_share_a_pool_and_read_all_of_its_file() {
    let mut several = Vec::new();
    for (name, _) in BUILT_IN {
        let plans = of(name);
        let tensors = plans.iter().flat_map(Plan::tensors);
        let tensors: BTreeMap<String, TensorInfo> = tensors.map(|t| (t.name.clone(), t)).collect();
        let file = Shapes(tensors.into_values().collect());
        bind(&plans, &file).unwrap_or_else(|e| panic!("{name}: {e}"));
        if plans.len() == 1 {
            continue;
        }
        several.push(name);
        for plan in plans {
            assert_eq!(plan.kv_groups, of(name)[0].kv_groups, "{}", plan.name);
            let alone = bind(&[plan], &file);
            assert!(matches!(alone, Err(BindError::Extra { .. })), "{alone:?}");
        }
    }
    assert_eq!(several, ["gemma-3-4b", "t5-small"]);
}

/// The segments of every attention without a cache.
fn segments(plan: &Plan) -> Vec<Option<Slice>> {
    let of = |op: &Op| match op {
        Op::Attention(attention) => match attention.kv {
            KvSource::Rows { segments, .. } => Some(segments),
            KvSource::Paged(_) => panic!("{}: an encoder has no cache of its own", plan.name),
        },
        _ => None,
    };
    plan.nodes.iter().filter_map(|node| of(&node.op)).collect()
}

#[test]
fn images_name_the_rows_that_see_each_other() {
    let plan = &of("gemma-3-4b")[0];
    let all = segments(plan);
    assert!(!all.is_empty());
    for segments in all {
        let buffer = plan.buffer_of(segments.unwrap());
        assert!(buffer.is_input);
        assert_eq!((buffer.rows, buffer.width), (Dim::MediaPatches, 1));
        assert_eq!((buffer.element, &*buffer.name), (Element::U32, "segments"));
    }
    // A text's rows are a sequence's.
    assert_eq!(segments(&of("t5-small")[1]), [None; 6]);
}

#[test]
fn every_part_of_a_cut_tensor_is_used_once() {
    for (name, _) in BUILT_IN {
        for plan in of(name) {
            let mut taken: BTreeMap<&str, usize> = BTreeMap::new();
            let mut whole: BTreeMap<&str, usize> = BTreeMap::new();
            for id in plan.used_weights() {
                for part in &plan.weight_of(id).parts {
                    let size = |shape: &[usize]| shape.iter().product::<usize>();
                    *taken.entry(&part.tensor).or_default() += size(&part.shape);
                    whole.insert(&part.tensor, size(part.source_shape()));
                }
            }
            assert_eq!(taken, whole, "{}", plan.name);
        }
    }
}

#[test]
fn cache_bytes_are_the_known_ones() {
    let per_token = |name: &str| -> usize {
        of(name)
            .iter()
            .map(|p| report(p).kv_bytes_per_token)
            .max()
            .unwrap()
    };
    assert_eq!(per_token("llama-3.1-8b"), 32 * 2 * 8 * 128 * 2);
    assert_eq!(per_token("deepseek-v3"), 576 * 61 * 2);
    assert_eq!(per_token("smollm2-135m"), 30 * 2 * 3 * 64 * 2);
    assert_eq!(per_token("qwen3-next-80b-a3b"), 12 * 2 * 2 * 256 * 2);
    // Self attention of six layers; cross attention caches as much per token of the encoder's.
    assert_eq!(per_token("t5-small"), 6 * 2 * 8 * 64 * 2);
}

#[test]
fn windows_and_states_are_groups_of_their_own() {
    let retention = |name: &str| {
        let plan = of(name).pop().unwrap();
        let groups = plan.kv_groups.iter();
        groups.map(|g| (g.retention, g.layers)).collect::<Vec<_>>()
    };
    let window = Retention::Window;
    assert_eq!(
        retention("gpt-oss-20b"),
        [(window(128), 12), (Retention::Full, 12)]
    );
    assert_eq!(
        retention("gemma-3-4b"),
        [(window(1024), 29), (Retention::Full, 5)]
    );
    assert_eq!(
        retention("qwen3-next-80b-a3b"),
        [(Retention::State, 36), (Retention::Full, 12)]
    );
    // What a decoder keeps of its encoder's input has that input's length, not the context's.
    assert_eq!(
        retention("t5-small"),
        [(Retention::Full, 6), (Retention::Encoder, 6)]
    );
    let next = &of("qwen3-next-80b-a3b")[0];
    let state = 36 * (8192 * 3 + 32 * 128 * 128) * 4;
    assert_eq!(report(next).state_bytes_per_sequence, state);
}

#[test]
fn a_token_costs_two_flops_per_active_parameter() {
    // Active parameters as their makers state them, the embedding's row apart.
    let active = [
        ("llama-3.1-8b", 7.5e9),
        ("gpt-oss-20b", 3.6e9),
        ("mixtral-8x7b", 12.8e9),
        ("qwen1.5-moe-a2.7b", 2.4e9),
        ("qwen3-30b-a3b", 3.0e9),
        ("qwen3-next-80b-a3b", 3.6e9),
        ("deepseek-v3", 36.6e9),
    ];
    for (name, expected) in active {
        let flops = cost::decode(&of(name)[0], 0).flops as f64 / 2.0;
        let ratio = flops / expected;
        assert!(
            (0.85..1.15).contains(&ratio),
            "{name}: {flops} instead of {expected}"
        );
    }
}

#[test]
fn adapters_are_on_every_projection_and_leave_the_rest_alone() {
    let options = PlanOptions {
        adapters: Some(AdapterSlots { slots: 4, rank: 16 }),
        ..PlanOptions::default()
    };
    let plan = plans("llama-3.1-8b", &options).unwrap().remove(0);
    let linears = plan.nodes.iter().filter_map(|n| match &n.op {
        Op::Linear(linear) => Some(linear),
        _ => None,
    });
    assert!(linears.clone().all(|l| l.adapters.is_some()));
    assert_eq!(linears.count(), 7 * 32);
    let added = parameters(&[plan]) - parameters(&of("llama-3.1-8b"));
    let widths = 2 * (4096 + 4096) + 2 * (4096 + 1024) + 3 * (4096 + 14336);
    assert_eq!(added, 32 * 4 * 16 * widths);
}

#[test]
fn two_ranks_hold_half_each_and_add_up_twice_a_layer() {
    let options = PlanOptions {
        ranks: Some(2),
        ..PlanOptions::default()
    };
    let ranks = plans("llama-3.1-8b", &options).unwrap();
    let [first, second] = &ranks[..] else {
        panic!("{} plans", ranks.len());
    };
    let reduces = |plan: &Plan| {
        let reduces = plan
            .nodes
            .iter()
            .filter(|n| matches!(n.op, Op::AllReduce(_)));
        reduces.count()
    };
    assert_eq!((reduces(first), reduces(second)), (64, 64));
    assert_eq!(report(first).kv_bytes_per_token, 131072 / 2);
    // Together they take every element of every projection once.
    let whole: BTreeSet<String> = of("llama-3.1-8b")[0]
        .tensors()
        .into_iter()
        .map(|t| t.name)
        .collect();
    let named: BTreeSet<String> = first.tensors().into_iter().map(|t| t.name).collect();
    assert_eq!(whole, named);
    let starts = |plan: &Plan| -> Vec<usize> {
        let parts = plan.weights.iter().flat_map(|w| &w.parts);
        let cuts = parts.filter_map(|p| p.cut.as_ref());
        cuts.map(|cut| match cut.take {
            Take::Rows { start, .. } | Take::Columns { start, .. } => start,
            other => panic!("{other:?}"),
        })
        .collect()
    };
    assert_eq!(starts(first).len(), 7 * 32);
    assert!(starts(first).iter().all(|s| *s == 0));
    assert!(starts(second).iter().all(|s| *s > 0));
}

#[test]
fn every_plan_prints_with_passes_on_and_off() {
    let all: Vec<String> = passes::ALL.iter().map(|p| p.name.to_owned()).collect();
    for (name, _) in BUILT_IN {
        for disabled in [&[][..], &all[..]] {
            for mut plan in of(name) {
                passes::apply(&mut plan, disabled).unwrap();
                let report = report(&plan);
                let text = report.to_text(false);
                assert!(text.contains(" parameters, "), "{name}");
                // Equal layers are folded and no line lists a thousand experts.
                assert!(
                    text.lines().count() < 160,
                    "{name}: {} lines",
                    text.lines().count()
                );
                assert!(text.lines().all(|l| l.len() < 600), "{name}");
                serde_json::to_string(&report).unwrap();
            }
        }
    }
}

#[test]
fn every_layer_is_fused() {
    let mut plan = of("llama-3.1-8b").remove(0);
    let done = passes::apply(&mut plan, &[]).unwrap();
    let expected = [
        ("fuse-qkv", 32),
        ("fuse-gate-up", 32),
        ("residual-epilogue", 64),
        ("norm-residual", 0),
        // What the last layer does behind its attention.
        ("gather-early", 5),
    ];
    assert_eq!(done, expected);
    let per_layer = 9;
    assert_eq!(plan.nodes.len(), 32 * per_layer + 5);
}

#[test]
fn types_can_be_declared() {
    let options = PlanOptions {
        weight_type: Some(DType::Q4_K),
        kv_element: KvElement::F32,
        ..PlanOptions::default()
    };
    let plan = plans("llama-3.1-8b", &options).unwrap().remove(0);
    let report = report(&plan);
    assert_eq!(report.kv_bytes_per_token, 2 * 131072);
    let bits = report.weight_bytes as f64 * 8.0 / report.weight_elements as f64;
    assert!((4.4..4.6).contains(&bits), "{bits} bits an element");
}

#[test]
fn yarn_gives_the_frequencies_of_transformers() {
    // From transformers' own function, for the same configs.
    let gpt_oss = [
        (0, 1.0),
        (8, 0.050813273),
        (12, 0.006794959),
        (16, 0.00045648392),
        (31, 3.0235114e-7),
    ];
    let deepseek = [
        (0, 1.0),
        (8, 0.1),
        (12, 0.02687936),
        (16, 0.0055),
        (20, 0.0007905694),
        (31, 3.3338035e-6),
    ];
    for (name, expected) in [
        ("gpt-oss-20b", &gpt_oss[..]),
        ("deepseek-v3", &deepseek[..]),
    ] {
        let rope = of(name).remove(0).ropes.remove(0);
        for (i, expected) in expected {
            let found = rope.inverse_frequencies[*i];
            assert!(
                (found / expected - 1.0).abs() < 1e-4,
                "{name} {i}: {found} instead of {expected}"
            );
        }
    }
    let scale = |name: &str| {
        let plan = of(name).remove(0);
        plan.nodes.iter().find_map(|n| match &n.op {
            Op::Attention(attention) => Some(attention.scale),
            _ => None,
        })
    };
    let near = |found: Option<f32>, expected: f32| (found.unwrap() / expected - 1.0).abs() < 1e-5;
    assert!(near(scale("gpt-oss-20b"), 1.346_573_6_f32.powi(2) / 8.0));
    let sharpened = 0.1 * 40_f32.ln() + 1.0;
    assert!(near(
        scale("deepseek-v3"),
        sharpened.powi(2) / 192_f32.sqrt()
    ));
}

/// Every number of every config, replaced by what a hostile or mistaken file may hold: an error or a plan, no panic.
#[test]
fn broken_numbers_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("config.json");
    let mut refused = 0;
    for (name, json) in BUILT_IN {
        let config: Value = serde_json::from_str(json).unwrap();
        for pointer in numbers(&config) {
            for value in [
                json!(0),
                json!(3),
                json!(-1),
                json!(u64::MAX),
                json!(1e300),
                json!("x"),
            ] {
                let mut broken = config.clone();
                *broken.pointer_mut(&pointer).unwrap() = value;
                std::fs::write(&file, broken.to_string()).unwrap();
                let result = plans(file.to_str().unwrap(), &PlanOptions::default());
                refused += usize::from(result.is_err());
            }
        }
        assert!(refused > 0, "{name}");
    }
    assert!(refused > 400, "only {refused} refused");
}

/// JSON pointers of all numbers but token ids.
fn numbers(value: &Value) -> Vec<String> {
    let Some(object) = value.as_object() else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for (key, value) in object {
        if value.is_number() && !key.ends_with("token_id") {
            found.push(format!("/{key}"));
        }
        found.extend(
            numbers(value)
                .into_iter()
                .map(|inner| format!("/{key}{inner}")),
        );
    }
    found
}
