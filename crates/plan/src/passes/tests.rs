//! Passes on a layer's worth of ops.

use super::*;
use crate::op::*;
use crate::plan::Node;
use crate::{Dim, Element, KvElement};
use expect_test::expect;
use mettle_tensor::DType;

/// One attention-free layer: norm, gate and up, activation, down, residual, norm.
fn layer() -> Plan {
    let mut plan = Plan::new("test", DType::F32, KvElement::F32);
    let h = plan.buffer("h", Dim::Tokens, 8);
    let x = plan.buffer("x", Dim::Tokens, 8);
    let gate = plan.buffer("gate", Dim::Tokens, 16);
    let up = plan.buffer("up", Dim::Tokens, 16);
    let act = plan.buffer("act", Dim::Tokens, 16);
    let down = plan.buffer("down", Dim::Tokens, 8);
    let norm = |plan: &mut Plan, name: &str| {
        let weight = Some(plan.weight(name, &[8]));
        plan.push(Op::RmsNorm(RmsNorm {
            x: h,
            add: None,
            weight,
            weight_offset: 0.0,
            eps: 1e-5,
            out: x,
        }));
    };
    let linear = |plan: &mut Plan, name: &str, x: Slice, out: Slice| {
        let weight = plan.weight(name, &[out.width, x.width]);
        plan.push(Op::Linear(Linear {
            x,
            weight,
            bias: None,
            residual: None,
            adapters: None,
            groups: 1,
            out,
        }));
    };
    norm(&mut plan, "norm");
    linear(&mut plan, "gate", x, gate);
    linear(&mut plan, "up", x, up);
    plan.push(Op::GatedAct(GatedAct {
        gate,
        up,
        activation: Activation::Silu,
        out: act,
    }));
    linear(&mut plan, "down", act, down);
    plan.push(Op::Elementwise(Elementwise {
        expr: Expr::Add,
        a: h,
        b: Some(down),
        out: h,
    }));
    plan.tap("out", h);
    norm(&mut plan, "norm2");
    plan.check();
    plan
}

fn ops(plan: &Plan) -> String {
    let names: Vec<String> = plan
        .nodes
        .iter()
        .map(|n| {
            let taps: Vec<&str> = n.taps.iter().map(|t| t.name.as_str()).collect();
            match taps.is_empty() {
                true => n.op.name().to_owned(),
                false => format!("{}[{}]", n.op.name(), taps.join(",")),
            }
        })
        .collect();
    names.join(" ")
}

#[test]
fn all_passes_leave_the_fewest_ops_and_keep_the_taps() {
    let mut plan = layer();
    let done = apply(&mut plan, &[]).unwrap();
    expect!["rms_norm linear gated_act linear[out] rms_norm"].assert_eq(&ops(&plan));
    expect![[
        r#"[("fuse-qkv", 0), ("fuse-gate-up", 1), ("residual-epilogue", 1), ("norm-residual", 0), ("gather-early", 0)]"#
    ]]
    .assert_eq(&format!("{done:?}"));
    let Op::GatedAct(act) = &plan.nodes[2].op else {
        panic!("the third op is the activation")
    };
    assert_eq!(act.gate.buffer, act.up.buffer);
    assert_eq!((act.gate.start, act.up.start), (0, 16));
}

#[test]
fn the_norm_takes_the_residual_where_the_projection_may_not() {
    let mut plan = layer();
    apply(
        &mut plan,
        &["residual-epilogue".to_owned(), "fuse-gate-up".to_owned()],
    )
    .unwrap();
    expect!["rms_norm linear linear gated_act linear rms_norm[out]"].assert_eq(&ops(&plan));
}

#[test]
fn an_unknown_pass_is_named() {
    let error = apply(&mut layer(), &["fuse".to_owned()]).unwrap_err();
    expect![
        "there is no pass fuse; there are: fuse-qkv, fuse-gate-up, residual-epilogue, norm-residual, gather-early"
    ]
    .assert_eq(&error.to_string());
}

#[test]
fn layers_that_use_the_same_buffers_are_all_fused() {
    let mut plan = layer();
    let first = plan.nodes.clone();
    plan.nodes.extend(first);
    let done = apply(&mut plan, &[]).unwrap();
    assert_eq!(done[1], ("fuse-gate-up", 2));
    let outs: Vec<Slice> = plan
        .nodes
        .iter()
        .filter_map(|n| match &n.op {
            Op::Linear(linear) if linear.out.width == 32 => Some(linear.out),
            _ => None,
        })
        .collect();
    assert_eq!(outs.len(), 2);
    assert_eq!(outs[0], outs[1], "both layers write the same fused buffer");
}

/// The layer, the choice of rows, and a head. `middle` is an op that stands before the projection down.
fn layer_with_head(middle: impl Fn(Slice) -> Option<Op>) -> Plan {
    let mut plan = layer();
    let down = plan.nodes.iter().rposition(|n| n.op.name() == "linear");
    let down = down.expect("it has one");
    let act = plan.nodes[down - 1].op.primary();
    if let Some(op) = middle(act) {
        let taps = Vec::new();
        plan.nodes.insert(down, Node { op, taps });
    }
    let rows = plan.input("rows", Dim::LogitRows, 1, Element::U32);
    plan.logit_rows = Some(rows);
    let x = match &plan.nodes.last().unwrap().op {
        Op::RmsNorm(norm) => norm.out,
        _ => panic!("the last op is the norm"),
    };
    let out = plan.buffer("chosen", Dim::LogitRows, x.width);
    plan.push(Op::Gather(Gather { x, rows, out }));
    plan.tap("hidden", out);
    plan.hidden = Some(plan.mark_output(out));
    let weight = plan.weight("head", &[24, x.width]);
    let logits = plan.buffer("logits", Dim::LogitRows, 24);
    let (x, out) = (out, logits);
    plan.push(Op::LmHead(LmHead { x, weight, out }));
    plan.logits = Some(plan.mark_output(logits));
    plan.check();
    plan
}

/// Each op with what it has rows of.
fn ops_and_rows(plan: &Plan) -> String {
    let rows = |node: &Node| plan.buffer_of(node.op.primary()).rows.name();
    let ops = plan.nodes.iter();
    let ops: Vec<String> = ops
        .map(|n| format!("{} {}", n.op.name(), rows(n)))
        .collect();
    ops.join(", ")
}

#[test]
fn rows_are_chosen_behind_the_last_op_in_which_they_meet() {
    let mix = |x: Slice| {
        let (heads, head_dim) = (2, x.width / 2);
        Some(Op::QkNorm(QkNorm {
            x,
            weight: None,
            heads,
            head_dim,
            weight_offset: 0.0,
            eps: 1e-5,
        }))
    };
    let mut plan = layer_with_head(mix);
    let disabled = ["residual-epilogue", "norm-residual", "fuse-gate-up"].map(str::to_owned);
    apply(&mut plan, &disabled).unwrap();
    expect!["rms_norm tokens, linear tokens, linear tokens, gated_act tokens, qk_norm tokens, gather logit_rows, gather logit_rows, linear logit_rows, elementwise logit_rows, rms_norm logit_rows, lm_head logit_rows"]
    .assert_eq(&ops_and_rows(&plan));
    // The host and the tap find what was chosen where it is now.
    let hidden = plan.hidden.unwrap();
    let norm = &plan.nodes[9];
    assert_eq!(norm.op.primary(), hidden);
    assert_eq!(norm.taps[0].slice, hidden);
    let outputs = plan.buffers.iter().filter(|b| b.is_output).count();
    assert!(plan.buffer_of(hidden).is_output && outputs == 2);
    // What is chosen: the activation, and the stream that its projection is added to.
    let chosen: Vec<String> = plan.nodes[5..7]
        .iter()
        .map(|n| match &n.op {
            Op::Gather(o) => plan.buffer_of(o.x).name.clone(),
            _ => panic!("two choices"),
        })
        .collect();
    assert_eq!(chosen, ["act", "h"]);
}

#[test]
fn rows_are_chosen_first_where_they_never_meet_and_last_where_only_a_norm_is_left() {
    let mut plan = layer_with_head(|_| None);
    apply(&mut plan, &[]).unwrap();
    expect!["gather logit_rows, rms_norm logit_rows, linear logit_rows, gated_act logit_rows, linear logit_rows, rms_norm logit_rows, lm_head logit_rows"]
        .assert_eq(&ops_and_rows(&plan));
    let mut plan = layer_with_head(|_| None);
    let before = plan.nodes.len();
    let adapted = plan.nodes.iter().rposition(|n| n.op.name() == "linear");
    let index = plan.input("adapters", Dim::Sequences, 1, Element::U32);
    let weight = plan.weight("low", &[2, 2]);
    if let Op::Linear(linear) = &mut plan.nodes[adapted.unwrap()].op {
        linear.adapters = Some(Adapters {
            a: weight,
            b: weight,
            slots: 1,
            rank: 2,
            index,
        });
    }
    assert_eq!(gather_early::apply(&mut plan), 0);
    assert_eq!(plan.nodes.len(), before);
}
