//! Owns the time of each kind of op of a model, alone, on any backend: a plan that holds nothing but those ops runs, and
//! what an all but empty plan takes is subtracted.

use crate::ceilings::sum;
use crate::latency::{Batch, LatencyOptions};
use mettle_plan::{
    BackendError, BufferId, Dim, Executable, Node, Op, OutputKind, Plan, Resource, Slice, WeightId,
    cost,
    passes::{self, UnknownPass},
};
use serde::Serialize;
use std::collections::BTreeSet;
use std::hint::black_box;
use std::time::{Duration, Instant};

/// Steps of which the best counts: as many as fit the time, within these bounds.
const FEWEST_STEPS: usize = 3;
const MOST_STEPS: usize = 40;
const PATIENCE: Duration = Duration::from_millis(600);
/// Read before each step, so that no weights wait in a cache: in a whole step those of other layers came before.
const FLUSHED_BYTES: usize = 128 << 20;

/// The step in which ops are timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct StepShape {
    /// One token each of so many sequences, or (with `is_prefill`) so many tokens of one prompt.
    pub rows: usize,
    /// Tokens that each row of a decode step sees; those of a prompt see what is before them.
    pub context: usize,
    pub is_prefill: bool,
}

/// Passes, but for one that leaves rows out of the last layer: ops of one kind are to have equally many, as attention alone has too.
pub fn fuse(plan: &mut Plan, disabled: &[String]) -> Result<(), UnknownPass> {
    let disabled = [disabled, &["gather-early".to_owned()]].concat();
    passes::apply(plan, &disabled).map(drop)
}

/// Equal ops of a plan, one for most layers.
#[derive(Clone, Debug, PartialEq)]
pub struct OpKind {
    /// As `linear/q4_1/1536x576`.
    pub name: String,
    /// Their places in the plan.
    pub nodes: Vec<usize>,
}

impl OpKind {
    /// Its name in a step with so many rows: products with one row are called gemv, others gemm.
    pub fn label(&self, rows: usize) -> String {
        match (self.name.strip_prefix("linear/"), rows) {
            (Some(matrix), 1) => format!("gemv/{matrix}"),
            (Some(matrix), _) => format!("gemm/{matrix}"),
            (None, _) => self.name.clone(),
        }
    }
}

/// One op, as timed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OpTiming {
    pub name: String,
    pub rows: usize,
    /// How many of them a step has.
    pub count: usize,
    /// Of one; `None` where it drowns in the noise.
    pub seconds: Option<f64>,
    /// Weights, activations and cache that it cannot avoid to move.
    pub bytes: f64,
    pub flops: f64,
    /// Its products are those of integers: the weights are quantized.
    pub in_integers: bool,
}

/// The kinds of ops in a plan, in the order of their first appearance. The embedding is none: it is in every plan.
pub fn kinds(plan: &Plan) -> Vec<OpKind> {
    let mut kinds: Vec<OpKind> = Vec::new();
    for (place, node) in plan.nodes.iter().enumerate() {
        if matches!(node.op, Op::Embed(_)) || written(&node.op).is_none() {
            continue;
        }
        let name = name(plan, &node.op);
        match kinds.iter_mut().find(|kind| kind.name == name) {
            Some(kind) => kind.nodes.push(place),
            None => kinds.push(OpKind {
                name,
                nodes: vec![place],
            }),
        }
    }
    kinds
}

/// The ops without which those of a kind have nothing sensible to do, in a kind of their own: experts must be chosen, and
/// chosen by tokens that differ.
pub fn needed(plan: &Plan, kind: &OpKind) -> Option<OpKind> {
    let mut nodes = Vec::new();
    for place in &kind.nodes {
        let Op::MoeExperts(experts) = &plan.nodes[*place].op else {
            continue;
        };
        let mut wanted = vec![experts.experts, experts.x];
        for before in (0..*place).rev() {
            let op = &plan.nodes[before].op;
            let writes = op.accesses().writes;
            let gives = |slice: &Slice| writes.contains(&Resource::Columns(*slice));
            let Some(given) = wanted.iter().position(gives) else {
                continue;
            };
            wanted.remove(given);
            if let Op::MoeRoute(route) = op {
                wanted.push(route.logits);
            }
            nodes.push(before);
            if wanted.is_empty() {
                break;
            }
        }
    }
    (!nodes.is_empty()).then(|| OpKind {
        name: format!("needed by {}", kind.name),
        nodes,
    })
}

/// A plan of the embedding, the ops of one kind (or none) and what those need; its output is the last thing it writes.
pub fn only(plan: &Plan, kind: Option<&OpKind>) -> Plan {
    let needed = kind.and_then(|kind| needed(plan, kind));
    let is_kept = |place: usize, node: &Node| {
        let mut kinds = kind.into_iter().chain(&needed);
        matches!(node.op, Op::Embed(_)) || kinds.any(|k| k.nodes.contains(&place))
    };
    let mut part = plan.clone();
    let nodes = plan.nodes.iter().enumerate();
    part.nodes = nodes
        .filter(|(place, node)| is_kept(*place, node))
        .map(|(_, node)| node.clone())
        .collect();
    part.hidden = None;
    part.logits = part.nodes.last().and_then(|node| written(&node.op));
    // The model's other tensors are there and rightly not read.
    part.unread
        .extend(plan.tensors().into_iter().map(|t| t.name));
    part
}

/// Pages, tokens, sequences that a plan must be prepared for to be timed in these steps.
pub fn options(shapes: &[StepShape], vocabulary: usize) -> LatencyOptions {
    let most = |value: fn(&StepShape) -> usize| shapes.iter().map(value).max().unwrap_or(1);
    LatencyOptions {
        batch: most(|s| if s.is_prefill { 1 } else { s.rows }),
        input_len: most(|s| if s.is_prefill { s.rows } else { s.context }),
        output_len: 1,
        repeats: 1,
        vocabulary,
    }
}

/// Times steps with cold caches.
#[derive(Debug)]
pub struct StepTimer {
    other_memory: Vec<u64>,
    vocabulary: usize,
}

impl StepTimer {
    pub fn new(vocabulary: usize) -> StepTimer {
        StepTimer {
            other_memory: vec![1; FLUSHED_BYTES / size_of::<u64>()],
            vocabulary,
        }
    }

    /// Seconds of one step of a prepared plan, the best of several.
    pub fn time(
        &self,
        executable: &mut dyn Executable,
        shape: &StepShape,
    ) -> Result<f64, BackendError> {
        let mut batch = Batch::new(executable, &options(&[*shape], self.vocabulary));
        match shape.is_prefill {
            true => {
                batch.fill_prefill(shape.rows, 0);
            }
            // The row's own token is the last of its context.
            false => batch.fill_decode_at(shape.context - 1),
        }
        batch.step.output = OutputKind::Logits;
        let start = Instant::now();
        let mut best = f64::INFINITY;
        for step in 0..MOST_STEPS {
            if step > FEWEST_STEPS && start.elapsed() > PATIENCE {
                break;
            }
            black_box(sum(black_box(&self.other_memory), 1));
            let began = Instant::now();
            let ticket = executable.submit(&batch.step)?;
            executable.wait(ticket)?;
            let seconds = began.elapsed().as_secs_f64();
            // The first touches memory for the first time.
            if step > 0 {
                best = best.min(seconds);
            }
        }
        Ok(best)
    }
}

/// What the times of a plan with and without the ops of a kind say of one of them.
pub fn timing(
    plan: &Plan,
    kind: &OpKind,
    shape: &StepShape,
    with: f64,
    without: f64,
    activation_bytes: usize,
) -> OpTiming {
    let op = &plan.nodes[kind.nodes[0]].op;
    let rows = rows(plan, op, shape) as f64;
    let cost = cost::of(plan, op, activation_bytes);
    let mut bytes = match op {
        // What so many tokens read of all experts if each chooses by chance.
        Op::MoeExperts(o) => {
            let left = 1.0 - o.top_k as f64 / o.expert_count as f64;
            let all = cost.weight_bytes as f64 / (1.0 - left);
            all * (1.0 - left.powf(rows))
        }
        _ => cost.weight_bytes as f64,
    };
    bytes += rows * (cost.activation_bytes + cost.kv_write_bytes) as f64;
    let mut flops = rows * cost.flops as f64;
    if let Some(context) = cost::of_context(plan, op) {
        let within = |tokens: usize| context.window.map_or(tokens, |w| w.min(tokens)) as f64;
        let (seen, sequences) = match shape.is_prefill {
            // Each row sees itself and those before it: half of them on average.
            true => (within(shape.rows) / 2.0, 1.0),
            false => (within(shape.context), rows),
        };
        let read = if shape.is_prefill {
            within(shape.rows)
        } else {
            seen
        };
        bytes += sequences * read * context.kv_bytes as f64;
        flops += rows * seen * context.flops as f64;
    }
    let seconds = (with - without) / kind.nodes.len() as f64;
    let weights = op.accesses().weights;
    let mut parts = weights.iter().flat_map(|id| &plan.weight_of(*id).parts);
    OpTiming {
        name: kind.label(shape.rows),
        rows: rows as usize,
        count: kind.nodes.len(),
        seconds: Some(seconds).filter(|seconds| *seconds > 0.0),
        bytes,
        flops,
        in_integers: parts.any(|part| part.dtype.is_quantized()),
    }
}

fn rows(plan: &Plan, op: &Op, shape: &StepShape) -> usize {
    match (rows_written(plan, op), shape.is_prefill) {
        // Of a prompt only the last row is wanted.
        (Some(Dim::LogitRows), true) => 1,
        _ => shape.rows,
    }
}

fn rows_written(plan: &Plan, op: &Op) -> Option<Dim> {
    written(op).map(|slice| plan.buffers[index(slice.buffer)].rows)
}

fn index(buffer: BufferId) -> usize {
    buffer.0 as usize
}

fn written(op: &Op) -> Option<Slice> {
    op.accesses().writes.iter().rev().find_map(|r| match r {
        Resource::Columns(slice) => Some(*slice),
        Resource::Kv(_) => None,
    })
}

fn name(plan: &Plan, op: &Op) -> String {
    let matrix = |weight: WeightId| {
        let weight = plan.weight_of(weight);
        let types = weight.parts.iter().map(|part| part.dtype.to_string());
        let types: BTreeSet<String> = types.map(|name| name.to_lowercase()).collect();
        let types: Vec<String> = types.into_iter().collect();
        format!("{}/{}x{}", types.join("+"), weight.rows(), weight.columns())
    };
    match op {
        Op::Linear(o) => format!("linear/{}", matrix(o.weight)),
        Op::LmHead(o) => format!("lm_head/{}", matrix(o.weight)),
        Op::MoeExperts(o) => {
            let types = matrix(o.gate_up);
            let types = types.split('/').next().unwrap_or_default();
            let (experts, top_k, width) = (o.expert_count, o.top_k, o.width);
            format!("experts/{types}/{top_k}of{experts}x{width}x{}", o.x.width)
        }
        Op::Attention(o) => format!("attention/{}x{}", o.heads, o.head_dim),
        other => {
            let width = written(other).map_or(0, |slice| slice.width);
            // The last norm has a row for each wanted output, where the others have one for each token.
            let of = match rows_written(plan, other) {
                Some(Dim::LogitRows) => "/logit_rows",
                _ => "",
            };
            format!("{}/{width}{of}", other.name())
        }
    }
}
