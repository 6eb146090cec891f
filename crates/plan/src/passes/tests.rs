//! Passes on a layer's worth of ops.

use super::*;
use crate::op::*;
use crate::{Dim, KvElement};
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
        r#"[("fuse-qkv", 0), ("fuse-gate-up", 1), ("residual-epilogue", 1), ("norm-residual", 0)]"#
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
        "there is no pass fuse; there are: fuse-qkv, fuse-gate-up, residual-epilogue, norm-residual"
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
