//! Timing the ops of a real plan one kind at a time: none is left out, and each kind's plan runs by itself.

use mettle_bench::ops::{OpKind, StepShape, StepTimer, fuse, kinds, only, options, timing};
use mettle_bench::type_products::Products;
use mettle_cpu::CpuBackend;
use mettle_models::{Model, OpenOptions};
use mettle_plan::{Backend, Dim, Executable, Op, PageLayout, Plan, PrepareOptions, Resource};
use mettle_tensor::DType;
use std::path::Path;

const SHAPES: [StepShape; 2] = [
    StepShape {
        rows: 2,
        context: 40,
        is_prefill: false,
    },
    StepShape {
        rows: 48,
        context: 40,
        is_prefill: true,
    },
];

fn model() -> Model {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/models/qwen3");
    Model::open(&folder, OpenOptions::default()).unwrap()
}

fn prepare(model: &Model, plan: Plan) -> Box<dyn Executable> {
    let page_layout = PageLayout::new(&plan.kv_groups, 32);
    let wanted = options(&SHAPES, model.vocab_size);
    let options = PrepareOptions {
        bounds: plan.bounds(48, wanted.batch),
        kv_pages: mettle_bench::latency::pages(&wanted, &page_layout),
        page_layout,
        taps: Vec::new(),
    };
    let backend = CpuBackend::new(1);
    backend.prepare(&[plan], &*model.tensors, options).unwrap()
}

#[test]
fn every_op_but_the_embedding_is_of_one_kind() {
    let mut plan = model().plan();
    fuse(&mut plan, &[]).unwrap();
    let kinds = kinds(&plan);
    let mut places: Vec<usize> = kinds.iter().flat_map(|kind| kind.nodes.clone()).collect();
    places.sort_unstable();
    let nodes = plan.nodes.iter().enumerate();
    let wanted: Vec<usize> = nodes
        .filter(|(_, node)| !matches!(node.op, Op::Embed(_)))
        .map(|(place, _)| place)
        .collect();
    assert_eq!(places, wanted);
    for kind in &kinds {
        let ops = kind.nodes.iter().map(|place| plan.nodes[*place].op.name());
        let names: std::collections::BTreeSet<&str> = ops.collect();
        assert_eq!(names.len(), 1, "{}", kind.name);
        // What one takes is what each of them takes: they write as many rows.
        let written = kind
            .nodes
            .iter()
            .flat_map(|place| plan.nodes[*place].op.accesses().writes);
        let rows = written.filter_map(|resource| match resource {
            Resource::Columns(slice) => Some(plan.buffers[slice.buffer.0 as usize].rows),
            Resource::Kv(_) => None,
        });
        let rows: Vec<Dim> = rows.collect();
        assert!(
            rows.windows(2).all(|two| two[0] == two[1]),
            "{}: {rows:?}",
            kind.name
        );
    }
}

#[test]
fn each_kind_runs_alone_and_is_timed() {
    let model = model();
    let mut plan = model.plan();
    fuse(&mut plan, &[]).unwrap();
    let timer = StepTimer::new(model.vocab_size);
    let time = |kind: Option<&OpKind>| {
        let mut executable = prepare(&model, only(&plan, kind));
        let times = SHAPES.map(|shape| timer.time(&mut *executable, &shape).unwrap());
        let ran = executable.counts().dispatches();
        (times, ran)
    };
    let (without, ran) = time(None);
    assert_eq!(ran.keys().collect::<Vec<_>>(), [&"embed"]);
    let kind = kinds(&plan)
        .into_iter()
        .find(|kind| kind.name.starts_with("attention"))
        .unwrap();
    let (with, ran) = time(Some(&kind));
    assert_eq!(ran["attention"], ran["embed"] * kind.nodes.len() as u64);
    assert_eq!(ran.len(), 2);
    // Times are whatever they are; what is counted is not.
    let found = timing(&plan, &kind, &SHAPES[1], with[1], without[1], 4);
    assert_eq!((found.rows, found.count), (48, kind.nodes.len()));
    let Op::Attention(op) = &plan.nodes[kind.nodes[0]].op else {
        panic!("it was just found")
    };
    // Half of 48 tokens seen by each of 48 rows, a multiply-add for each key and each value element.
    assert_eq!(found.flops, (48 * 24 * 4 * op.heads * op.head_dim) as f64);
    let half = timing(&plan, &kind, &SHAPES[0], 1.5, 0.5, 4).seconds;
    assert_eq!(half, Some(1.0 / kind.nodes.len() as f64));
    assert_eq!(timing(&plan, &kind, &SHAPES[0], 1.0, 2.0, 4).seconds, None);
}

#[test]
fn products_are_named_by_their_rows() {
    let kind = OpKind {
        name: "linear/q4_1/8x4".to_owned(),
        nodes: vec![1],
    };
    assert_eq!(kind.label(1), "gemv/q4_1/8x4");
    assert_eq!(kind.label(2), "gemm/q4_1/8x4");
}

#[test]
fn experts_are_timed_with_what_chooses_them() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/models/qwen2moe");
    let model = Model::open(&folder, OpenOptions::default()).unwrap();
    let mut plan = model.plan();
    fuse(&mut plan, &[]).unwrap();
    let kinds = kinds(&plan);
    let is_experts = |kind: &&OpKind| kind.name.starts_with("experts/");
    let kind = kinds.iter().find(is_experts).unwrap();
    assert_eq!(kind.name, "experts/f32/3of6x32x64");
    let alone = only(&plan, Some(kind));
    let mut names: Vec<&str> = alone.nodes.iter().map(|n| n.op.name()).collect();
    assert_eq!(names.remove(0), "embed");
    let layer = ["rms_norm", "linear", "moe_route", "moe_experts"];
    assert_eq!(names, [layer; 3].concat());
    let timer = StepTimer::new(model.vocab_size);
    let mut executable = prepare(&model, alone);
    timer.time(&mut *executable, &SHAPES[1]).unwrap();
    // A model with windows, in a context beyond them.
    let folder = folder.with_file_name("gptoss");
    let windowed = Model::open(&folder, OpenOptions::default()).unwrap();
    let mut executable = prepare(&windowed, windowed.plan());
    let other_timer = StepTimer::new(windowed.vocab_size);
    other_timer.time(&mut *executable, &SHAPES[1]).unwrap();
    // One token reads three of six experts, many read nearly all.
    let bytes = |shape| timing(&plan, kind, shape, 2.0, 1.0, 0).bytes;
    let all = (6 * 3 * 32 * 64 * 4) as f64;
    let of_two = bytes(&SHAPES[0]) / all;
    assert!((of_two - 0.75).abs() < 1e-6, "{of_two}");
    assert!(bytes(&SHAPES[1]) / all > 0.999);
}

#[test]
fn products_of_a_type_are_one_kind_and_move_its_bytes() {
    let products = Products {
        rows: 8,
        columns: 512,
        count: 3,
    };
    for dtype in DType::ALL {
        let plan = products.plan(dtype);
        let kinds = kinds(&plan);
        let names: Vec<&str> = kinds.iter().map(|kind| kind.name.as_str()).collect();
        let name = format!("linear/{}/8x512", dtype.name().to_lowercase());
        assert_eq!(names, [name]);
        let one = timing(&plan, &kinds[0], &SHAPES[0], 3.0, 0.0, 4);
        let weights = dtype.tensor_bytes(&[8, 512]).unwrap();
        let activations = SHAPES[0].rows * 4 * (8 + 512);
        assert_eq!(one.bytes, (weights + activations) as f64, "{dtype}");
        assert_eq!(one.seconds, Some(1.0));
    }
}
