//! Owns the two ways in which a decoder's plan may differ from the plain one: low-rank adapters, or one rank's share.

use crate::decoder::DecoderSpec;
use crate::error::{ModelError, Result};
use crate::names::LayerTensor;
use crate::plan_builder::PlanBuilder;
use mettle_plan::*;

#[derive(Clone, Debug)]
pub enum Variant {
    Plain,
    Adapters(AdapterSlots),
    Share(Share),
}

/// Room for `slots` adapters of up to `rank`, on every projection of every layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdapterSlots {
    pub slots: usize,
    pub rank: usize,
}

/// One of `ranks` equal shares of the heads and of the feed-forward width.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    pub rank: usize,
    pub ranks: usize,
}

impl Variant {
    pub fn ranks(&self) -> usize {
        match self {
            Variant::Share(share) => share.ranks,
            _ => 1,
        }
    }

    pub fn adapter_index(&self, plan: &mut Plan) -> Option<Slice> {
        match self {
            Variant::Adapters(_) => {
                Some(plan.input("adapter_slots", Dim::Sequences, 1, Element::U32))
            }
            _ => None,
        }
    }
}

impl AdapterSlots {
    pub fn check(self) -> Result<AdapterSlots> {
        if self.slots == 0 || self.rank == 0 || self.slots > 4096 || self.rank > 4096 {
            return Err(ModelError::Dimensions {
                source_name: "adapters".into(),
                problem: format!(
                    "{} slots of rank {}; both must be 1 to 4096",
                    self.slots, self.rank
                ),
            });
        }
        Ok(self)
    }

    /// Gives the projection pushed last its adapters: the engine fills `NAME.lora_a` and `NAME.lora_b`.
    pub fn adapt_last(&self, plan: &mut Plan, name: &str, index: Slice) {
        let Some(Op::Linear(linear)) = plan.nodes.last().map(|n| &n.op) else {
            panic!("adapters follow a projection");
        };
        let (columns, rows) = (linear.x.width, linear.out.width);
        let (slots, rank) = (self.slots, self.rank);
        let a = plan.weight(format!("{name}.lora_a"), &[slots, rank, columns]);
        let b = plan.weight(format!("{name}.lora_b"), &[slots, rows, rank]);
        if let Some(Op::Linear(linear)) = plan.nodes.last_mut().map(|n| &mut n.op) {
            linear.adapters = Some(Adapters {
                a,
                b,
                slots,
                rank,
                index,
            });
        }
    }
}

impl Share {
    /// Every rank gets whole heads and the same width.
    pub fn check(spec: &DecoderSpec, ranks: usize) -> Result<()> {
        let wrong = |problem: String| {
            Err(ModelError::Dimensions {
                source_name: format!("{ranks} ranks"),
                problem,
            })
        };
        let (heads, width) = (spec.kv_heads, spec.intermediate);
        if ranks == 0 || !heads.is_multiple_of(ranks) || !width.is_multiple_of(ranks) {
            return wrong(format!(
                "{heads} KV heads and a feed-forward size of {width} do not divide among them"
            ));
        }
        if spec.features.fused || spec.features.per_layer_width.is_some() {
            return wrong("fused projections and inputs of layers are not split yet".into());
        }
        if spec.biases != Default::default() {
            return wrong("projections with biases are not split yet".into());
        }
        Ok(())
    }

    /// Projections into heads and width are split by rows, those back to the residual stream by columns.
    pub fn linear(
        &self,
        ops: &mut PlanBuilder,
        name: &str,
        tensor: LayerTensor,
        x: Slice,
        out: Slice,
    ) {
        let shape = [out.width, x.width];
        let (of, take) = match tensor {
            LayerTensor::Output | LayerTensor::Down => (
                [out.width, x.width * self.ranks],
                Take::Columns {
                    start: self.rank * x.width,
                    count: x.width,
                },
            ),
            _ => (
                [out.width * self.ranks, x.width],
                Take::Rows {
                    start: self.rank * out.width,
                    count: out.width,
                    period: out.width * self.ranks,
                },
            ),
        };
        let weight = ops.cut(&format!("{name}.weight"), &of, take, &shape);
        ops.linear_of(weight, None, 1, x, out);
    }
}
