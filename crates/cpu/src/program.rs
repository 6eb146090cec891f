//! Owns the translation of a plan into kernel calls: slices become addresses, weights become packed matrices. What the
//! backend cannot run is refused here, by name, before anything runs.

use crate::experts::Experts;
use crate::kernels::elementwise;
use crate::kernels::route::{Route, Softmax};
use crate::memory::{AlignedBytes, Rows};
use mettle_plan::{
    Activation, Arena, BackendError, Dim, Expr, KvLayer, KvSource, Op, Plan, RopeId, RouteScore,
    Slice, Tap, WeightId,
};

/// One kernel call. Calls are run one after the other: what `hazards` would let overlap is little, and threads that share
/// the items of one call at a time stay together.
pub struct Call {
    pub kernel: Kernel,
    pub taps: Vec<(usize, Rows, Dim)>,
    pub rows: Dim,
    /// The next call computes this one too.
    pub joins_next: bool,
    /// Of what it computes, only logit rows are read.
    pub only_logit_rows: bool,
}

pub enum Kernel {
    Embed {
        of: EmbedOf,
        table: WeightId,
        out: Rows,
        scale: f32,
    },
    RmsNorm(RmsNorm),
    Linear {
        x: Rows,
        weight: WeightId,
        bias: Option<WeightId>,
        residual: Option<Rows>,
        out: Rows,
    },
    LayerNorm {
        x: Rows,
        weight: WeightId,
        bias: Option<WeightId>,
        eps: f32,
        out: Rows,
    },
    QkNorm {
        x: Rows,
        weight: Option<WeightId>,
        head_dim: usize,
        offset: f32,
        eps: f32,
    },
    RopeKvWrite(RopeKvWrite),
    Attention {
        q: Rows,
        out: Rows,
        kv: KeysAndValues,
        kv_heads: usize,
        head_dim: usize,
        scale: f32,
        window: Option<usize>,
        softcap: Option<f32>,
        sinks: Option<WeightId>,
        bias: Option<WeightId>,
    },
    Gated(Gated),
    /// `out` may be `a`, and is not `b`.
    Elementwise {
        expr: Expr,
        a: Rows,
        b: Option<Rows>,
        out: Rows,
    },
    MoeRoute {
        logits: Rows,
        route: Route,
        experts: Rows,
        shares: Rows,
    },
    MoeExperts(Experts),
    Softcap {
        x: Rows,
        cap: f32,
    },
    Gather {
        x: Rows,
        out: Rows,
    },
}

pub struct RmsNorm {
    pub x: Rows,
    pub add: Option<Rows>,
    pub weight: Option<WeightId>,
    pub offset: f32,
    pub eps: f32,
    pub out: Rows,
}

pub struct Gated {
    pub activation: Activation,
    pub gate: Rows,
    pub up: Rows,
    pub out: Rows,
}

pub struct RopeKvWrite {
    pub q: Rows,
    pub k: Rows,
    /// Absent where another layer's cache is read.
    pub v: Option<Rows>,
    pub rope: Option<RopeId>,
    pub head_dim: usize,
    pub rotate_from: usize,
    pub kv_heads: usize,
    pub kv: KvLayer,
}

/// What rows of a table are looked up by.
#[derive(Clone, Copy)]
pub enum EmbedOf {
    Tokens,
    Positions,
}

/// Where attention finds them.
#[derive(Clone, Copy)]
pub enum KeysAndValues {
    Paged(KvLayer),
    /// What an encoder cached of its input, all of it.
    Encoded(KvLayer),
    /// The rows of the queries' own sequences.
    Rows {
        k: Rows,
        v: Rows,
    },
}

fn unsupported(what: String) -> BackendError {
    BackendError::Unsupported {
        backend: "cpu",
        what,
    }
}

/// Calls for all ops of the plan. `taps` are the names to keep; each call lists those that follow it, by index.
pub fn translate(
    plan: &Plan,
    arena: &Arena,
    memory: &AlignedBytes,
    taps: &[String],
) -> Result<Vec<Call>, BackendError> {
    let view = View {
        plan,
        arena,
        memory,
    };
    plan.nodes
        .iter()
        .map(|node| {
            let rows = plan.buffer_of(node.op.primary()).rows;
            if !matches!(rows, Dim::Tokens | Dim::LogitRows) {
                return Err(unsupported(format!("op {} over {rows}", node.op.name())));
            }
            Ok(Call {
                kernel: view.kernel(&node.op)?,
                taps: node
                    .taps
                    .iter()
                    .filter_map(|tap: &Tap| {
                        let index = taps.iter().position(|t| *t == tap.name)?;
                        let rows = plan.buffer_of(tap.slice).rows;
                        Some((index, view.rows(tap.slice), rows))
                    })
                    .collect(),
                rows,
                joins_next: false,
                only_logit_rows: false,
            })
        })
        .collect()
}

/// Refuses taps that no op of any plan gives.
pub fn check_taps<'a>(
    calls: impl Iterator<Item = &'a Call>,
    taps: &[String],
) -> Result<(), BackendError> {
    let given: Vec<usize> = calls.flat_map(|c| c.taps.iter().map(|t| t.0)).collect();
    match taps.iter().enumerate().find(|(i, _)| !given.contains(i)) {
        None => Ok(()),
        Some((_, name)) => Err(unsupported(format!(
            "tap {name} (no op of this plan gives it)"
        ))),
    }
}

struct View<'a> {
    plan: &'a Plan,
    arena: &'a Arena,
    memory: &'a AlignedBytes,
}

impl View<'_> {
    fn rows(&self, slice: Slice) -> Rows {
        let buffer = self.plan.buffer_of(slice);
        let range = &self.arena.ranges[slice.buffer.0 as usize];
        assert!(range.end <= self.memory.len(), "the arena fits its memory");
        // SAFETY: the arena places the buffer's rows, `buffer.width` elements of 4 bytes apart, inside this memory,
        // which the executable owns as long as its calls.
        unsafe {
            let base = self.memory.base().add(range.start).cast::<f32>();
            Rows::new(base, buffer.width, buffer.width).columns(slice.start, slice.width)
        }
    }

    fn kernel(&self, op: &Op) -> Result<Kernel, BackendError> {
        let rows = |slice| self.rows(slice);
        Ok(match op {
            Op::Embed(o) => Kernel::Embed {
                of: match Some(o.ids) {
                    ids if ids == self.plan.token_ids => EmbedOf::Tokens,
                    ids if ids == self.plan.positions => EmbedOf::Positions,
                    _ => {
                        return Err(unsupported(
                            "embedding of other ids than the step's tokens and positions".into(),
                        ));
                    }
                },
                table: o.table,
                out: rows(o.out),
                scale: o.scale,
            },
            Op::RmsNorm(o) if o.out.overlaps(&o.x) => {
                return Err(unsupported("a norm over its own input".into()));
            }
            Op::RmsNorm(o) => Kernel::RmsNorm(RmsNorm {
                x: rows(o.x),
                add: o.add.map(rows),
                weight: o.weight,
                offset: o.weight_offset,
                eps: o.eps,
                out: rows(o.out),
            }),
            Op::LayerNorm(o) if o.out.overlaps(&o.x) => {
                return Err(unsupported("a norm over its own input".into()));
            }
            Op::LayerNorm(o) => Kernel::LayerNorm {
                x: rows(o.x),
                weight: o.weight,
                bias: o.bias,
                eps: o.eps,
                out: rows(o.out),
            },
            Op::Linear(o) if o.groups > 1 => {
                return Err(unsupported("projections per head (linear groups)".into()));
            }
            Op::Linear(o) if o.adapters.is_some() => {
                return Err(unsupported("adapters (LoRA)".into()));
            }
            Op::Linear(o) => Kernel::Linear {
                x: rows(o.x),
                weight: o.weight,
                bias: o.bias,
                residual: o.residual.map(rows),
                out: rows(o.out),
            },
            Op::LmHead(o) => Kernel::Linear {
                x: rows(o.x),
                weight: o.weight,
                bias: None,
                residual: None,
                out: rows(o.out),
            },
            Op::QkNorm(o) => Kernel::QkNorm {
                x: rows(o.x),
                weight: o.weight,
                head_dim: o.head_dim,
                offset: o.weight_offset,
                eps: o.eps,
            },
            Op::RopeKvWrite(o) => Kernel::RopeKvWrite(RopeKvWrite {
                q: rows(o.q),
                k: rows(o.k),
                v: match o.v {
                    None if o.kv_heads > 0 => return Err(unsupported("latent attention".into())),
                    v => v.map(rows),
                },
                rope: o.rope,
                head_dim: o.head_dim,
                rotate_from: o.rotate_from,
                kv_heads: o.kv_heads,
                kv: o.kv,
            }),
            Op::Attention(o) => {
                let refuse = |what: &str| Err(unsupported(format!("attention {what}")));
                let kv = match o.kv {
                    KvSource::Paged(kv) => KeysAndValues::Paged(kv),
                    KvSource::Rows { .. } if o.window.is_some() => {
                        return refuse("with a window and without a cache");
                    }
                    KvSource::Rows { segments, .. } if segments.is_some() => {
                        return refuse("between rows of marked segments (images)");
                    }
                    KvSource::Rows { k, v, .. } => KeysAndValues::Rows {
                        k: rows(k),
                        v: rows(v),
                    },
                };
                if o.visible_to.is_some() {
                    return refuse("between marked tokens (images)");
                }
                if o.values_in_keys || o.value_dim != o.head_dim {
                    return refuse("with values of another width than keys");
                }
                Kernel::Attention {
                    q: rows(o.q),
                    out: rows(o.out),
                    kv,
                    kv_heads: o.kv_heads,
                    head_dim: o.head_dim,
                    scale: o.scale,
                    window: o.window,
                    softcap: o.softcap,
                    sinks: o.sinks,
                    bias: o.bias.map(|b| b.weight),
                }
            }
            Op::CrossAttention(o) => Kernel::Attention {
                q: rows(o.q),
                out: rows(o.out),
                kv: KeysAndValues::Encoded(o.kv),
                kv_heads: o.heads,
                head_dim: o.head_dim,
                scale: o.scale,
                window: None,
                softcap: None,
                sinks: None,
                bias: None,
            },
            Op::GatedAct(o) => Kernel::Gated(Gated {
                activation: o.activation,
                gate: rows(o.gate),
                up: rows(o.up),
                out: rows(o.out),
            }),
            Op::Elementwise(o) if !elementwise::can(o.expr) => {
                return Err(unsupported(format!("elementwise {:?}", o.expr)));
            }
            Op::Elementwise(o) => {
                let moves = o.a != o.out && o.a.overlaps(&o.out);
                if moves || o.b.is_some_and(|b| b.overlaps(&o.out)) {
                    return Err(unsupported("elementwise ops over their own input".into()));
                }
                Kernel::Elementwise {
                    expr: o.expr,
                    a: rows(o.a),
                    b: o.b.map(rows),
                    out: rows(o.out),
                }
            }
            Op::MoeRoute(o) => {
                let softmax = match o.score {
                    RouteScore::Softmax => Softmax::OfAll,
                    RouteScore::SoftmaxOfTop => Softmax::OfChosen,
                    RouteScore::Sigmoid => {
                        return Err(unsupported("routing by sigmoid scores".into()));
                    }
                };
                if o.bias.is_some() || o.groups > 1 {
                    let what = "routing with a bias of the choice or groups of experts";
                    return Err(unsupported(what.into()));
                }
                Kernel::MoeRoute {
                    logits: rows(o.logits),
                    route: Route {
                        softmax,
                        normalize: o.normalize,
                        scale: o.scale,
                    },
                    experts: rows(o.experts),
                    shares: rows(o.shares),
                }
            }
            Op::MoeExperts(o) => Kernel::MoeExperts(Experts {
                x: rows(o.x),
                experts: rows(o.experts),
                shares: rows(o.shares),
                gate_up: o.gate_up,
                gate_up_bias: o.gate_up_bias,
                down: o.down,
                down_bias: o.down_bias,
                activation: o.activation,
                expert_count: o.expert_count,
                width: o.width,
                scratch: rows(o.scratch),
                out: rows(o.out),
            }),
            Op::Softcap(o) => Kernel::Softcap {
                x: rows(o.x),
                cap: o.cap,
            },
            Op::Gather(o) if Some(o.rows) == self.plan.logit_rows => Kernel::Gather {
                x: rows(o.x),
                out: rows(o.out),
            },
            other => return Err(unsupported(format!("op {}", other.name()))),
        })
    }
}
