//! Owns which ops are computed by the call behind them. A step of one token has hundreds of calls of microseconds, and
//! threads that meet after each of them lose as long again where their cores are far apart.

use crate::readers::is_last_reader;
use mettle_plan::{Arena, Attention, KvSource, Op, Plan, RmsNorm, RopeKvWrite, Slice};

/// Ops behind its last one that a buffer keeps its place for: the second of two joined ops touches what was dead before it.
pub const LINGERS: usize = 1;

/// For each op, whether the next one does its work too: a product that of the norm or the gated activation of its input, attention
/// that of the rotation of its queries. What such an op writes is then not to be found in memory.
pub fn joins_next(plan: &Plan, arena: &Arena) -> Vec<bool> {
    let joins = |index: usize| {
        let next = index + 1;
        match (&plan.nodes[index].op, plan.nodes.get(next).map(|n| &n.op)) {
            (Op::RmsNorm(norm), Some(Op::Linear(o))) => {
                norm_joins(plan, arena, norm, next, o.x, o.out)
            }
            (Op::RmsNorm(norm), Some(Op::LmHead(o))) => {
                norm_joins(plan, arena, norm, next, o.x, o.out)
            }
            (Op::GatedAct(gated), Some(Op::Linear(o))) => {
                let inputs = [gated.gate, gated.up];
                gated.out == o.x
                    && is_last_reader(plan, next, o.x)
                    && !inputs.iter().any(|input| arena.overlaps(input, &o.out))
            }
            (Op::RopeKvWrite(rotation), Some(Op::Attention(o))) => {
                rotation_joins(plan, arena, rotation, next, o)
            }
            _ => false,
        }
    };
    (0..plan.nodes.len()).map(joins).collect()
}

/// Its result is the input `x` of the product at `next`, and nothing else.
fn norm_joins(
    plan: &Plan,
    arena: &Arena,
    norm: &RmsNorm,
    next: usize,
    x: Slice,
    out: Slice,
) -> bool {
    norm.add.is_none()
        && norm.out == x
        && is_last_reader(plan, next, x)
        && !arena.overlaps(&norm.x, &out)
}

/// Keys and values go to the cache that `attention` at `next` reads; what is rotated, nobody else reads.
fn rotation_joins(
    plan: &Plan,
    arena: &Arena,
    rotation: &RopeKvWrite,
    next: usize,
    attention: &Attention,
) -> bool {
    let writes = rotation.kv_heads > 0;
    let mut inputs = [Some(rotation.k), rotation.v].into_iter().flatten();
    rotation.q == attention.q
        && matches!(attention.kv, KvSource::Paged(kv) if kv == rotation.kv || !writes)
        && is_last_reader(plan, next, rotation.q)
        && (!writes || is_last_reader(plan, next, rotation.k))
        && !inputs.any(|slice| arena.overlaps(&slice, &attention.out))
}

#[cfg(test)]
mod tests {
    use super::*;
    use mettle_plan::{Activation, Dim, GatedAct, KvElement, KvLayer, Linear, Sizes};
    use mettle_tensor::DType;

    const BOUNDS: Sizes = Sizes {
        tokens: 3,
        sequences: 2,
        logit_rows: 1,
        context_partitions: 1,
        expert_assignments: 4,
        media_patches: 2,
        media_rows: 1,
    };

    fn plan() -> Plan {
        Plan::new("test", DType::F32, KvElement::F32)
    }

    fn buffers<const N: usize>(plan: &mut Plan, widths: [usize; N]) -> [Slice; N] {
        widths.map(|width| plan.buffer(format!("buffer {width}"), Dim::Tokens, width))
    }

    fn norm(plan: &mut Plan, x: Slice, add: Option<Slice>, out: Slice) {
        plan.push(Op::RmsNorm(RmsNorm {
            x,
            add,
            weight: None,
            weight_offset: 0.0,
            eps: 1e-5,
            out,
        }));
    }

    fn linear(plan: &mut Plan, x: Slice, out: Slice) {
        let weight = plan.weight(format!("{x:?} {out:?}"), &[out.width, x.width]);
        plan.push(Op::Linear(Linear {
            x,
            weight,
            bias: None,
            residual: None,
            adapters: None,
            groups: 1,
            out,
        }));
    }

    fn joined(plan: &Plan) -> Vec<bool> {
        joins_next(plan, &Arena::lingering(plan, &BOUNDS, 4, LINGERS))
    }

    #[test]
    fn a_norm_joins_the_only_product_that_reads_it() {
        let mut plan = plan();
        let [h, x, a, b] = buffers(&mut plan, [8, 8, 16, 24]);
        norm(&mut plan, h, None, x);
        linear(&mut plan, x, a);
        // The same columns again, written anew: another value.
        norm(&mut plan, h, None, x);
        linear(&mut plan, x, b);
        assert_eq!(joined(&plan), [true, false, true, false]);
        // A second reader of the second value.
        linear(&mut plan, x, a);
        assert_eq!(joined(&plan), [true, false, false, false, false]);
    }

    #[test]
    fn a_norm_stays_where_its_result_is_wanted_or_it_adds() {
        let mut plan = plan();
        let [h, x, a] = buffers(&mut plan, [8, 8, 16]);
        norm(&mut plan, h, Some(a.columns(0, 8)), x);
        linear(&mut plan, x, a);
        assert_eq!(joined(&plan), [false, false], "others would add again");
        norm(&mut plan, h, None, x);
        linear(&mut plan, x, a);
        assert_eq!(joined(&plan), [false, false, true, false]);
        plan.mark_output(x);
        assert_eq!(joined(&plan), [false; 4], "the host reads it");
    }

    #[test]
    fn a_norm_stays_where_the_product_would_write_over_its_input() {
        let mut plan = plan();
        let [h, x, a] = buffers(&mut plan, [16, 16, 16]);
        norm(&mut plan, h, None, x);
        linear(&mut plan, x, a);
        let lingering = Arena::lingering(&plan, &BOUNDS, 4, LINGERS);
        let tight = Arena::new(&plan, &BOUNDS, 4);
        assert!(tight.overlaps(&h, &a) && !lingering.overlaps(&h, &a));
        assert_eq!(joins_next(&plan, &lingering), [true, false]);
        assert_eq!(joins_next(&plan, &tight), [false, false]);
    }

    #[test]
    fn a_gated_activation_joins_the_only_product_that_reads_it() {
        let mut plan = plan();
        let [both, x, a, b] = buffers(&mut plan, [16, 8, 16, 24]);
        let (gate, up) = (both.columns(0, 8), both.columns(8, 8));
        let activation = Activation::Silu;
        let gated = Op::GatedAct(GatedAct {
            gate,
            up,
            activation,
            out: x,
        });
        plan.push(gated);
        linear(&mut plan, x, a);
        let tight = Arena::new(&plan, &BOUNDS, 4);
        assert!(tight.overlaps(&both, &a));
        assert_eq!(joins_next(&plan, &tight), [false, false], "written over");
        assert_eq!(joined(&plan), [true, false]);
        linear(&mut plan, x, b);
        assert_eq!(joined(&plan), [false; 3], "a second reader");
    }

    #[test]
    fn a_rotation_joins_attention_over_the_cache_it_writes() {
        let kv = |layer| KvLayer { group: 0, layer };
        let joined_over = |written: usize, kv_heads: usize| {
            let mut plan = plan();
            let [qkv, out] = buffers(&mut plan, [32, 16]);
            let (q, k, v) = (qkv.columns(0, 16), qkv.columns(16, 8), qkv.columns(24, 8));
            plan.push(Op::RopeKvWrite(RopeKvWrite {
                q,
                k: k.columns(0, 8 * kv_heads),
                v: (kv_heads > 0).then_some(v),
                rope: None,
                head_dim: 8,
                rotate_from: 0,
                heads: 2,
                kv_heads,
                kv: kv(written),
            }));
            plan.push(Op::Attention(Attention {
                q,
                kv: KvSource::Paged(kv(0)),
                heads: 2,
                kv_heads: 1,
                head_dim: 8,
                value_dim: 8,
                values_in_keys: false,
                scale: 1.0,
                window: None,
                softcap: None,
                sinks: None,
                bias: None,
                visible_to: None,
                out,
            }));
            joined(&plan)
        };
        assert_eq!(joined_over(0, 1), [true, false]);
        assert_eq!(joined_over(1, 1), [false, false], "another layer's cache");
        assert_eq!(joined_over(1, 0), [true, false], "writes nothing");
    }
}
