//! Owns the short words in which architectures write ops: one call each, everything else a field of the op.

use mettle_plan::*;
use mettle_tensor::DType;

pub struct PlanBuilder {
    pub plan: Plan,
    eps: f32,
    /// Added to every norm's weight (Gemma and Qwen3-Next store weight - 1).
    norm_offset: f32,
}

impl PlanBuilder {
    pub fn new(name: &str, dtype: DType, kv: KvElement, eps: f32, norm_offset: f32) -> PlanBuilder {
        PlanBuilder {
            plan: Plan::new(name, dtype, kv),
            eps,
            norm_offset,
        }
    }

    pub fn tokens(&mut self, name: &str, width: usize) -> Slice {
        self.plan.buffer(name, Dim::Tokens, width)
    }

    /// Embeds the step's token ids.
    pub fn embed(&mut self, table: &str, vocab: usize, scale: f32, out: Slice) {
        let rows = self.plan.buffer_of(out).rows;
        let ids = self.plan.input("token_ids", rows, 1, Element::U32);
        self.plan.token_ids = Some(ids);
        let table = self.plan.weight(table, &[vocab, out.width]);
        self.plan.push(Op::Embed(Embed {
            ids,
            table,
            out,
            scale,
        }));
        self.plan.tap("embed", out);
    }

    pub fn rms_norm(&mut self, name: &str, x: Slice, out: Slice) {
        let weight = Some(self.plan.weight(format!("{name}.weight"), &[x.width]));
        self.plan.push(Op::RmsNorm(RmsNorm {
            x,
            add: None,
            weight,
            weight_offset: self.norm_offset,
            eps: self.eps,
            out,
        }));
    }

    pub fn layer_norm(&mut self, name: &str, x: Slice, eps: f32, out: Slice) {
        let weight = self.plan.weight(format!("{name}.weight"), &[x.width]);
        let bias = Some(self.plan.weight(format!("{name}.bias"), &[x.width]));
        self.plan.push(Op::LayerNorm(LayerNorm {
            x,
            weight,
            bias,
            eps,
            out,
        }));
    }

    /// A norm of every head, with `offset` added to its weight.
    pub fn head_norm(&mut self, name: &str, x: Slice, heads: usize, offset: f32) {
        let head_dim = x.width / heads;
        let weight = self.plan.weight(format!("{name}.weight"), &[head_dim]);
        self.plan.push(Op::QkNorm(QkNorm {
            x,
            weight: Some(weight),
            heads,
            head_dim,
            weight_offset: offset,
            eps: self.eps,
        }));
    }

    /// The same without a weight.
    pub fn plain_head_norm(&mut self, x: Slice, heads: usize) {
        self.plan.push(Op::QkNorm(QkNorm {
            x,
            weight: None,
            heads,
            head_dim: x.width / heads,
            weight_offset: 0.0,
            eps: self.eps,
        }));
    }

    /// `NAME.weight` and, with `bias`, `NAME.bias`.
    pub fn linear(&mut self, name: &str, x: Slice, out: Slice, bias: bool) {
        let weight = format!("{name}.weight");
        let weight = self.plan.weight(weight, &[out.width, x.width]);
        let bias = bias.then(|| self.plan.weight(format!("{name}.bias"), &[out.width]));
        self.linear_of(weight, bias, 1, x, out);
    }

    pub fn linear_of(
        &mut self,
        weight: WeightId,
        bias: Option<WeightId>,
        groups: usize,
        x: Slice,
        out: Slice,
    ) {
        self.plan.push(Op::Linear(Linear {
            x,
            weight,
            bias,
            residual: None,
            adapters: None,
            groups,
            out,
        }));
    }

    /// A weight of rows cut out of one tensor.
    pub fn cut(&mut self, tensor: &str, of: &[usize], take: Take, shape: &[usize]) -> WeightId {
        let part = self.cut_part(tensor, of, take, shape);
        self.plan.weight_of_parts(vec![part])
    }

    pub fn cut_part(&self, tensor: &str, of: &[usize], take: Take, shape: &[usize]) -> Part {
        Part {
            cut: Some(Cut {
                of: of.to_vec(),
                take,
            }),
            ..self.plan.part(tensor, shape)
        }
    }

    pub fn elementwise(&mut self, expr: Expr, a: Slice, b: Option<Slice>, out: Slice) {
        self.plan
            .push(Op::Elementwise(Elementwise { expr, a, b, out }));
    }

    /// `stream += added`
    pub fn add(&mut self, stream: Slice, added: Slice) {
        self.elementwise(Expr::Add, stream, Some(added), stream);
    }

    pub fn gated(&mut self, gate: Slice, up: Slice, activation: Activation, out: Slice) {
        self.plan.push(Op::GatedAct(GatedAct {
            gate,
            up,
            activation,
            out,
        }));
    }

    /// The rows that need logits, the final norm, and the head's logits.
    pub fn head(&mut self, norm: &str, scale: Option<f32>, weight: &str, vocab: usize, h: Slice) {
        let rows = self
            .plan
            .input("logit_rows", Dim::LogitRows, 1, Element::U32);
        self.plan.logit_rows = Some(rows);
        let chosen = self.plan.buffer("chosen", Dim::LogitRows, h.width);
        self.plan.push(Op::Gather(Gather {
            x: h,
            rows,
            out: chosen,
        }));
        let hidden = self.plan.buffer("hidden", Dim::LogitRows, h.width);
        self.rms_norm(norm, chosen, hidden);
        self.plan.tap("final_norm", hidden);
        let scaled = match scale {
            None => hidden,
            Some(scale) => {
                self.elementwise(Expr::Scale(scale), hidden, None, chosen);
                chosen
            }
        };
        let element = Element::F32;
        let logits = self
            .plan
            .typed_buffer("logits", Dim::LogitRows, vocab, element);
        let weight = self.plan.weight(weight, &[vocab, h.width]);
        self.plan.push(Op::LmHead(LmHead {
            x: scaled,
            weight,
            out: logits,
        }));
        self.plan.tap("logits", logits);
        self.plan.hidden = Some(self.plan.mark_output(hidden));
        self.plan.logits = Some(self.plan.mark_output(logits));
    }

    /// Bends the logits that `head` pushed below `cap`.
    pub fn cap_logits(&mut self, cap: f32) {
        let x = self.plan.logits.expect("a cap follows the head");
        let head = self.plan.nodes.last_mut().expect("the head");
        let taps = std::mem::take(&mut head.taps);
        self.plan.push(Op::Softcap(Softcap { x, cap }));
        self.plan.nodes.last_mut().expect("just pushed").taps = taps;
    }

    pub fn finish(self) -> Plan {
        self.plan.check();
        self.plan
    }
}
