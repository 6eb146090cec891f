//! Owns what every layer of Gemma 4 gets of a token by itself: a second, narrow embedding for each layer, mixed with a
//! projection of the token's embedding, which gates an addition to the residual stream.

use crate::decoder::DecoderSpec;
use crate::names::LayerTensor;
use crate::plan_builder::PlanBuilder;
use mettle_plan::*;

pub struct LayerInputs {
    width: usize,
    /// The residual stream.
    h: Slice,
    /// Those of all layers side by side.
    all: Slice,
    gate: Slice,
    gated: Slice,
    normed: Slice,
}

impl LayerInputs {
    /// From `h`, which holds the embedding of the tokens.
    pub fn push(ops: &mut PlanBuilder, spec: &DecoderSpec, h: Slice, width: usize) -> LayerInputs {
        let [table, projection, norm] = spec.names.per_layer();
        let own = ops.tokens("layer_embed", spec.layers * width);
        let all = ops.tokens("layer_inputs", spec.layers * width);
        let ids = ops.plan.token_ids.expect("tokens are embedded first");
        let table = ops
            .plan
            .weight(format!("{table}.weight"), &[spec.vocab, own.width]);
        ops.plan.push(Op::Embed(Embed {
            ids,
            table,
            out: own,
            scale: (width as f32).sqrt(),
        }));
        ops.linear(&projection, h, all, false);
        let scale = (spec.hidden as f32).sqrt().recip();
        ops.elementwise(Expr::Scale(scale), all, None, all);
        ops.head_norm(&norm, all, spec.layers, spec.features.norm_offset);
        ops.add(all, own);
        let half = std::f32::consts::FRAC_1_SQRT_2;
        ops.elementwise(Expr::Scale(half), all, None, all);
        LayerInputs {
            width,
            h,
            all,
            gate: ops.tokens("input_gate", width),
            gated: ops.tokens("input_gated", width),
            normed: ops.tokens("input_normed", spec.hidden),
        }
    }

    /// Adds a layer's part to the residual stream. `projected` is free at the end of a layer.
    pub fn add(&self, ops: &mut PlanBuilder, spec: &DecoderSpec, layer: usize, projected: Slice) {
        let name = |tensor| spec.names.layer(layer, tensor);
        ops.linear(&name(LayerTensor::InputGate), self.h, self.gate, false);
        let own = self.all.columns(layer * self.width, self.width);
        ops.gated(self.gate, own, spec.features.activation, self.gated);
        ops.linear(
            &name(LayerTensor::InputProjection),
            self.gated,
            projected,
            false,
        );
        ops.rms_norm(&name(LayerTensor::InputNorm), projected, self.normed);
        ops.add(self.h, self.normed);
    }
}
