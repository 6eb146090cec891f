//! Owns the op set: one args struct per op, the same for all backends, each naming all it reads and writes.

use crate::buffer::Slice;
use crate::kv::KvLayer;
use crate::rope::RopeId;
use crate::weight::WeightId;
use serde::Serialize;

/// Looks up one row of `table` per token id, or per position.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Embed {
    pub ids: Slice,
    pub table: WeightId,
    pub out: Slice,
    /// Multiplies the row (Gemma scales by the root of the hidden size).
    pub scale: f32,
}

/// Overwrites the rows of `out` that `target_rows` names by rows of media embeddings.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EmbedRows {
    pub media: Slice,
    pub target_rows: Slice,
    pub out: Slice,
}

/// Root-mean-square norm of each row; with `add`, `x += add` first.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RmsNorm {
    pub x: Slice,
    pub add: Option<Slice>,
    pub weight: Option<WeightId>,
    /// Added to each weight (Gemma stores weight - 1).
    pub weight_offset: f32,
    pub eps: f32,
    pub out: Slice,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LayerNorm {
    pub x: Slice,
    pub weight: WeightId,
    pub bias: Option<WeightId>,
    pub eps: f32,
    pub out: Slice,
}

/// Low-rank additions chosen per sequence: `out += (x · Aᵀ) · Bᵀ` of its adapter's slot.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Adapters {
    pub a: WeightId,
    pub b: WeightId,
    pub slots: usize,
    pub rank: usize,
    /// Slot of each sequence.
    pub index: Slice,
}

/// `out = x · Wᵀ (+ bias) (+ residual) (+ adapters)`, W `[rows, columns]` with columns the input.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Linear {
    pub x: Slice,
    pub weight: WeightId,
    pub bias: Option<WeightId>,
    pub residual: Option<Slice>,
    pub adapters: Option<Adapters>,
    /// Above 1, W is that many matrices, each applied to its own columns of x (per-head projections).
    pub groups: usize,
    pub out: Slice,
}

/// RMS norm of every head of a row, in place.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct QkNorm {
    pub x: Slice,
    pub weight: Option<WeightId>,
    pub heads: usize,
    pub head_dim: usize,
    pub weight_offset: f32,
    pub eps: f32,
}

/// Rotates q and k in place, then writes k and v to the step's slots of `kv`. Its own op before attention, so that no
/// part of an attention dispatch relies on another part's write. An encoder that fills a cross-attention cache has no
/// queries here: `heads` is 0 and q has no columns. A layer that reads another layer's cache has no keys here: `kv_heads` is
/// 0, k has no columns, there is no v and nothing is written.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RopeKvWrite {
    pub q: Slice,
    pub k: Slice,
    /// Absent where the cached keys hold the values too (latent attention).
    pub v: Option<Slice>,
    /// Absent: no rotation.
    pub rope: Option<RopeId>,
    pub head_dim: usize,
    /// First rotated element of each head of q and k.
    pub rotate_from: usize,
    pub heads: usize,
    pub kv_heads: usize,
    pub kv: KvLayer,
}

/// Copies `width` columns of every head, from column `x_from` of x's heads to `out_from` of out's; the other columns of
/// `out` are kept. Latent attention puts its queries together with it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HeadCopy {
    pub x: Slice,
    pub out: Slice,
    pub heads: usize,
    pub width: usize,
    pub x_from: usize,
    pub out_from: usize,
}

/// Where attention finds keys and values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum KvSource {
    /// The sequence's pages, causal by absolute position.
    Paged(KvLayer),
    /// The same rows as the queries (encoders). Rows see each other if they have the same number in `segments` (one
    /// image); without it, if they are tokens of one sequence, all of which are computed in one step.
    Rows {
        k: Slice,
        v: Slice,
        segments: Option<Slice>,
    },
}

/// Learned bias by distance between query and key, in logarithmic buckets (T5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct RelativeBias {
    pub weight: WeightId,
    pub buckets: usize,
    pub max_distance: usize,
    pub bidirectional: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Attention {
    pub q: Slice,
    pub kv: KvSource,
    pub heads: usize,
    pub kv_heads: usize,
    /// Width of a query and key head.
    pub head_dim: usize,
    /// Width of a value head; with `values_in_keys` the first columns of the key.
    pub value_dim: usize,
    pub values_in_keys: bool,
    pub scale: f32,
    pub window: Option<usize>,
    pub softcap: Option<f32>,
    /// One learned logit a head that takes part in the softmax and adds nothing (gpt-oss).
    pub sinks: Option<WeightId>,
    pub bias: Option<RelativeBias>,
    /// One number a token: one past the last context position it sees. Absent: causal. Tokens of one image see each
    /// other with it (Gemma 3); they must be computed in one step.
    pub visible_to: Option<Slice>,
    pub out: Slice,
}

/// Attention of decoder tokens over the encoder's cached keys and values, without a mask.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CrossAttention {
    pub q: Slice,
    pub kv: KvLayer,
    pub heads: usize,
    pub head_dim: usize,
    pub scale: f32,
    pub out: Slice,
}

/// A layer that carries a state from token to token.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RecurrentKind {
    /// Depthwise causal convolution of `kernel` tokens; the state is the last `kernel - 1` inputs.
    Convolution { weight: WeightId, kernel: usize },
    /// Gated delta rule over a key_dim x value_dim state a head. x holds queries, keys and values of all heads, in this
    /// order; queries and keys are scaled to length 1 per head. The decay is
    /// `exp(-exp(decay_log) * softplus(decay + decay_bias))`, the write strength `sigmoid(beta)`.
    GatedDelta {
        decay: Slice,
        beta: Slice,
        decay_log: WeightId,
        decay_bias: WeightId,
        key_heads: usize,
        value_heads: usize,
        key_dim: usize,
        value_dim: usize,
    },
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Recurrent {
    pub x: Slice,
    pub kind: RecurrentKind,
    pub state: KvLayer,
    /// Which plane of the state's group this op keeps.
    pub plane: usize,
    pub out: Slice,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Activation {
    Silu,
    GeluTanh,
    Gelu,
    Relu,
    /// gpt-oss: gate and up clamped to `limit`, `gate · sigmoid(alpha · gate) · (up + 1)`.
    ClampedSwiglu {
        limit: f32,
        alpha: f32,
    },
}

/// `out = activation(gate) * up`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GatedAct {
    pub gate: Slice,
    pub up: Slice,
    pub activation: Activation,
    pub out: Slice,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Expr {
    /// a + b
    Add,
    /// a * sigmoid(b)
    SigmoidGate,
    /// a * silu(b)
    SiluGate,
    /// a * constant
    Scale(f32),
    /// a * the only element of a weight
    ScaleBy(WeightId),
    /// a + the first row of a weight (the embedding of a token's type, where all tokens have the first)
    AddRow(WeightId),
    Apply(Activation),
}

/// `b` has a's columns, or one column that applies to them all.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Elementwise {
    pub expr: Expr,
    pub a: Slice,
    pub b: Option<Slice>,
    pub out: Slice,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RouteScore {
    /// Softmax over all experts, then the k largest.
    Softmax,
    /// The k largest, then softmax over them.
    SoftmaxOfTop,
    Sigmoid,
}

/// Chooses `top_k` experts a token: `experts` gets their numbers, `shares` their weights.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MoeRoute {
    pub logits: Slice,
    pub score: RouteScore,
    /// Added for the choice only; shares come from the scores without it (DeepSeek V3).
    pub bias: Option<WeightId>,
    /// Experts stand in `groups` equal groups, of which the `top_groups` best (by their two best experts) take part.
    pub groups: usize,
    pub top_groups: usize,
    pub top_k: usize,
    pub normalize: bool,
    pub scale: f32,
    pub experts: Slice,
    pub shares: Slice,
}

/// Runs each token through its experts and adds the results by their shares, in the order of expert rank.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MoeExperts {
    pub x: Slice,
    pub experts: Slice,
    pub shares: Slice,
    /// `[experts, 2 * width, hidden]`: gate rows, then up rows. One tensor for all experts, one for all gates and one for
    /// all ups, or each expert's own, one expert after another.
    pub gate_up: WeightId,
    pub gate_up_bias: Option<WeightId>,
    pub down: WeightId,
    pub down_bias: Option<WeightId>,
    pub activation: Activation,
    pub top_k: usize,
    pub expert_count: usize,
    pub width: usize,
    /// One row per (token, expert) pair: the expert's input, then gate and up or what it gives (`MoeExperts::row_width`).
    pub scratch: Slice,
    pub out: Slice,
}

impl MoeExperts {
    /// Columns of the scratch: the token's row and later the activated one; gate and up, and later the result.
    pub fn row_width(hidden: usize, width: usize) -> usize {
        hidden.max(width) + hidden.max(2 * width)
    }
}

/// Copies the rows that `rows` names.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Gather {
    pub x: Slice,
    pub rows: Slice,
    pub out: Slice,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Pooling {
    Mean,
    Last,
    First,
    /// The mean of each run of so many rows (the patches of one image token).
    MeanOf(usize),
}

/// One row per sequence from its tokens' rows, or per run of rows.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Pool {
    pub x: Slice,
    pub pooling: Pooling,
    pub out: Slice,
}

/// Logits of the rows that need them.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LmHead {
    pub x: Slice,
    pub weight: WeightId,
    pub out: Slice,
}

/// `x = cap * tanh(x / cap)`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Softcap {
    pub x: Slice,
    pub cap: f32,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TopK {
    pub logits: Slice,
    pub ids: Slice,
    pub values: Slice,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Sample {
    pub logits: Slice,
    /// Temperature, limits and random keys of each row.
    pub parameters: Slice,
    pub ids: Slice,
}

/// Adds `x` over all ranks, in rank order.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AllReduce {
    pub x: Slice,
    pub ranks: usize,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Op {
    Embed(Embed),
    EmbedRows(EmbedRows),
    RmsNorm(RmsNorm),
    LayerNorm(LayerNorm),
    Linear(Linear),
    QkNorm(QkNorm),
    RopeKvWrite(RopeKvWrite),
    HeadCopy(HeadCopy),
    Attention(Attention),
    CrossAttention(CrossAttention),
    Recurrent(Recurrent),
    GatedAct(GatedAct),
    Elementwise(Elementwise),
    MoeRoute(MoeRoute),
    MoeExperts(MoeExperts),
    Gather(Gather),
    Pool(Pool),
    LmHead(LmHead),
    Softcap(Softcap),
    TopK(TopK),
    Sample(Sample),
    AllReduce(AllReduce),
}

/// What an op touches: columns of a buffer, or one layer's cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resource {
    Columns(Slice),
    Kv(KvLayer),
}

/// All that an op reads and writes. `hazards` sees nothing else.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Accesses {
    pub reads: Vec<Resource>,
    pub writes: Vec<Resource>,
    pub weights: Vec<WeightId>,
}

impl Accesses {
    fn read(mut self, slices: impl IntoIterator<Item = Slice>) -> Self {
        self.reads.extend(slices.into_iter().map(Resource::Columns));
        self
    }

    fn write(mut self, slices: impl IntoIterator<Item = Slice>) -> Self {
        self.writes
            .extend(slices.into_iter().map(Resource::Columns));
        self
    }

    /// Read and written.
    fn update(self, slices: impl IntoIterator<Item = Slice>) -> Self {
        let slices: Vec<Slice> = slices.into_iter().collect();
        self.read(slices.iter().copied()).write(slices)
    }

    fn weigh(mut self, weights: impl IntoIterator<Item = WeightId>) -> Self {
        self.weights.extend(weights);
        self
    }

    fn kv_read(mut self, kv: KvLayer) -> Self {
        self.reads.push(Resource::Kv(kv));
        self
    }

    fn kv_write(mut self, kv: KvLayer) -> Self {
        self.writes.push(Resource::Kv(kv));
        self
    }
}

impl Op {
    pub const fn name(&self) -> &'static str {
        match self {
            Op::Embed(_) => "embed",
            Op::EmbedRows(_) => "embed_rows",
            Op::RmsNorm(_) => "rms_norm",
            Op::LayerNorm(_) => "layer_norm",
            Op::Linear(_) => "linear",
            Op::QkNorm(_) => "qk_norm",
            Op::RopeKvWrite(_) => "rope_kv_write",
            Op::HeadCopy(_) => "head_copy",
            Op::Attention(_) => "attention",
            Op::CrossAttention(_) => "cross_attention",
            Op::Recurrent(_) => "recurrent",
            Op::GatedAct(_) => "gated_act",
            Op::Elementwise(_) => "elementwise",
            Op::MoeRoute(_) => "moe_route",
            Op::MoeExperts(_) => "moe_experts",
            Op::Gather(_) => "gather",
            Op::Pool(_) => "pool",
            Op::LmHead(_) => "lm_head",
            Op::Softcap(_) => "softcap",
            Op::TopK(_) => "top_k",
            Op::Sample(_) => "sample",
            Op::AllReduce(_) => "all_reduce",
        }
    }

    /// The slice whose rows the op has one unit of work for.
    pub fn primary(&self) -> Slice {
        match self {
            Op::Embed(o) => o.out,
            Op::EmbedRows(o) => o.media,
            Op::RmsNorm(o) => o.out,
            Op::LayerNorm(o) => o.out,
            Op::Linear(o) => o.out,
            Op::QkNorm(o) => o.x,
            Op::RopeKvWrite(o) => o.k,
            Op::HeadCopy(o) => o.out,
            Op::Attention(o) => o.out,
            Op::CrossAttention(o) => o.out,
            Op::Recurrent(o) => o.out,
            Op::GatedAct(o) => o.out,
            Op::Elementwise(o) => o.out,
            Op::MoeRoute(o) => o.logits,
            Op::MoeExperts(o) => o.out,
            Op::Gather(o) => o.out,
            Op::Pool(o) => o.x,
            Op::LmHead(o) => o.out,
            Op::Softcap(o) => o.x,
            Op::TopK(o) => o.logits,
            Op::Sample(o) => o.logits,
            Op::AllReduce(o) => o.x,
        }
    }

    pub fn accesses(&self) -> Accesses {
        let a = Accesses::default();
        match self {
            Op::Embed(o) => a.read([o.ids]).write([o.out]).weigh([o.table]),
            // Only some rows are overwritten: the others are kept, so the buffer is read as well.
            Op::EmbedRows(o) => a.read([o.media, o.target_rows]).update([o.out]),
            Op::RmsNorm(o) => {
                let a = a.read([o.x]).read(o.add).write([o.out]).weigh(o.weight);
                if o.add.is_some() { a.write([o.x]) } else { a }
            }
            Op::LayerNorm(o) => a.read([o.x]).write([o.out]).weigh([o.weight]).weigh(o.bias),
            Op::Linear(o) => {
                let a = a
                    .read([o.x])
                    .read(o.residual)
                    .write([o.out])
                    .weigh([o.weight])
                    .weigh(o.bias);
                match &o.adapters {
                    Some(adapters) => a.read([adapters.index]).weigh([adapters.a, adapters.b]),
                    None => a,
                }
            }
            Op::QkNorm(o) => a.update([o.x]).weigh(o.weight),
            Op::RopeKvWrite(o) if o.kv_heads == 0 => a.update([o.q]),
            Op::RopeKvWrite(o) => a.update([o.q, o.k]).read(o.v).kv_write(o.kv),
            // Only some columns are overwritten.
            Op::HeadCopy(o) => a.read([o.x]).update([o.out]),
            Op::Attention(o) => {
                let a = a.read([o.q]).read(o.visible_to);
                let a = a.write([o.out]).weigh(o.sinks);
                let a = a.weigh(o.bias.map(|b| b.weight));
                match o.kv {
                    KvSource::Paged(kv) => a.kv_read(kv),
                    KvSource::Rows { k, v, segments } => a.read([k, v]).read(segments),
                }
            }
            Op::CrossAttention(o) => a.read([o.q]).write([o.out]).kv_read(o.kv),
            Op::Recurrent(o) => {
                let a = a
                    .read([o.x])
                    .write([o.out])
                    .kv_read(o.state)
                    .kv_write(o.state);
                match &o.kind {
                    RecurrentKind::Convolution { weight, .. } => a.weigh([*weight]),
                    RecurrentKind::GatedDelta {
                        decay,
                        beta,
                        decay_log,
                        decay_bias,
                        ..
                    } => a.read([*decay, *beta]).weigh([*decay_log, *decay_bias]),
                }
            }
            Op::GatedAct(o) => a.read([o.gate, o.up]).write([o.out]),
            Op::Elementwise(o) => {
                let weight = match o.expr {
                    Expr::ScaleBy(weight) | Expr::AddRow(weight) => Some(weight),
                    _ => None,
                };
                a.read([o.a]).read(o.b).write([o.out]).weigh(weight)
            }
            Op::MoeRoute(o) => a
                .read([o.logits])
                .write([o.experts, o.shares])
                .weigh(o.bias),
            Op::MoeExperts(o) => a
                .read([o.x, o.experts, o.shares])
                .write([o.scratch, o.out])
                .weigh([o.gate_up, o.down])
                .weigh(o.gate_up_bias)
                .weigh(o.down_bias),
            Op::Gather(o) => a.read([o.x, o.rows]).write([o.out]),
            Op::Pool(o) => a.read([o.x]).write([o.out]),
            Op::LmHead(o) => a.read([o.x]).write([o.out]).weigh([o.weight]),
            Op::Softcap(o) => a.update([o.x]),
            Op::TopK(o) => a.read([o.logits]).write([o.ids, o.values]),
            Op::Sample(o) => a.read([o.logits, o.parameters]).write([o.ids]),
            Op::AllReduce(o) => a.update([o.x]),
        }
    }
}

impl Op {
    /// Calls `change` on every slice the op names. Passes redirect slices with this.
    pub fn for_each_slice(&mut self, mut change: impl FnMut(&mut Slice)) {
        let slices: Vec<&mut Slice> = match self {
            Op::Embed(o) => vec![&mut o.ids, &mut o.out],
            Op::EmbedRows(o) => vec![&mut o.media, &mut o.target_rows, &mut o.out],
            Op::RmsNorm(o) => with(vec![&mut o.x, &mut o.out], &mut o.add),
            Op::LayerNorm(o) => vec![&mut o.x, &mut o.out],
            Op::Linear(o) => {
                let mut slices = with(vec![&mut o.x, &mut o.out], &mut o.residual);
                slices.extend(o.adapters.as_mut().map(|a| &mut a.index));
                slices
            }
            Op::QkNorm(o) => vec![&mut o.x],
            Op::RopeKvWrite(o) => with(vec![&mut o.q, &mut o.k], &mut o.v),
            Op::HeadCopy(o) => vec![&mut o.x, &mut o.out],
            Op::Attention(o) => {
                let mut slices = with(vec![&mut o.q, &mut o.out], &mut o.visible_to);
                if let KvSource::Rows { k, v, segments } = &mut o.kv {
                    slices.extend([k, v]);
                    slices.extend(segments.as_mut());
                }
                slices
            }
            Op::CrossAttention(o) => vec![&mut o.q, &mut o.out],
            Op::Recurrent(o) => {
                let mut slices = vec![&mut o.x, &mut o.out];
                if let RecurrentKind::GatedDelta { decay, beta, .. } = &mut o.kind {
                    slices.extend([decay, beta]);
                }
                slices
            }
            Op::GatedAct(o) => vec![&mut o.gate, &mut o.up, &mut o.out],
            Op::Elementwise(o) => with(vec![&mut o.a, &mut o.out], &mut o.b),
            Op::MoeRoute(o) => vec![&mut o.logits, &mut o.experts, &mut o.shares],
            Op::MoeExperts(o) => vec![
                &mut o.x,
                &mut o.experts,
                &mut o.shares,
                &mut o.scratch,
                &mut o.out,
            ],
            Op::Gather(o) => vec![&mut o.x, &mut o.rows, &mut o.out],
            Op::Pool(o) => vec![&mut o.x, &mut o.out],
            Op::LmHead(o) => vec![&mut o.x, &mut o.out],
            Op::Softcap(o) => vec![&mut o.x],
            Op::TopK(o) => vec![&mut o.logits, &mut o.ids, &mut o.values],
            Op::Sample(o) => vec![&mut o.logits, &mut o.parameters, &mut o.ids],
            Op::AllReduce(o) => vec![&mut o.x],
        };
        slices.into_iter().for_each(&mut change);
    }
}

fn with<'a>(mut slices: Vec<&'a mut Slice>, more: &'a mut Option<Slice>) -> Vec<&'a mut Slice> {
    slices.extend(more.as_mut());
    slices
}
