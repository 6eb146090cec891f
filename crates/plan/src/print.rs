//! Owns how a plan looks to people (a table) and to programs (JSON).

use crate::arena::Arena;
use crate::cost::{self, ContextCost, Cost, DecodeCost};
use crate::dim::Sizes;
use crate::hazards::hazards;
use crate::kv::{KvGroup, Retention};
use crate::op::{Op, Resource};
use crate::plan::Plan;
use serde::Serialize;
use std::fmt::Write;

/// Ops of layers that repeat together: four layers of Qwen3-Next are 81 ops.
const LONGEST_PERIOD: usize = 128;

/// Activations are counted as f32, as the CPU backend holds them.
const ACTIVATION_BYTES: usize = 4;

const CONTEXTS: [usize; 3] = [0, 1024, 8192];

#[derive(Clone, Debug, Serialize)]
pub struct OpRow {
    pub index: usize,
    pub op: &'static str,
    /// Whether all earlier ops must be finished first.
    pub barrier: bool,
    /// `tokens x 576 -> tokens x 960`.
    pub shape: String,
    pub weights: Vec<String>,
    pub weight_types: Vec<String>,
    pub cost: Cost,
    /// What comes on top per token of context.
    pub context_cost: Option<ContextCost>,
    pub detail: Op,
}

#[derive(Clone, Debug, Serialize)]
pub struct PlanReport {
    pub name: String,
    pub ops: Vec<OpRow>,
    pub barriers: usize,
    pub kv_groups: Vec<KvGroup>,
    /// Of all groups that cache tokens.
    pub kv_bytes_per_token: usize,
    /// Of all groups that keep one state a sequence.
    pub state_bytes_per_sequence: usize,
    pub scratch_bytes: usize,
    pub weight_bytes: u64,
    pub weight_elements: u64,
    /// Bytes and FLOPs of one more token, at a few lengths of context.
    pub decode: Vec<DecodeCost>,
    pub total: Cost,
    pub bounds: Sizes,
}

impl PlanReport {
    pub fn new(plan: &Plan, bounds: &Sizes) -> PlanReport {
        let arena = Arena::new(plan, bounds, ACTIVATION_BYTES);
        let barriers = hazards(plan, Some(&arena));
        let ops: Vec<OpRow> = plan
            .nodes
            .iter()
            .zip(&barriers)
            .enumerate()
            .map(|(index, (node, &barrier))| op_row(plan, index, &node.op, barrier))
            .collect();
        let total = cost::total(plan, ACTIVATION_BYTES);
        let entry_bytes = |of: fn(Retention) -> bool| {
            let groups = plan.kv_groups.iter().filter(|g| of(g.retention));
            groups.map(KvGroup::entry_bytes).sum()
        };
        let used = plan.used_weights();
        PlanReport {
            name: plan.name.clone(),
            barriers: barriers.iter().filter(|b| **b).count(),
            ops,
            kv_groups: plan.kv_groups.clone(),
            kv_bytes_per_token: entry_bytes(|r| {
                matches!(r, Retention::Full | Retention::Window(_))
            }),
            state_bytes_per_sequence: entry_bytes(|r| r == Retention::State),
            scratch_bytes: arena.bytes,
            weight_bytes: used.iter().map(|w| plan.weight_of(*w).bytes() as u64).sum(),
            weight_elements: used
                .iter()
                .map(|w| plan.weight_of(*w).elements() as u64)
                .sum(),
            decode: CONTEXTS.map(|context| cost::decode(plan, context)).to_vec(),
            total,
            bounds: *bounds,
        }
    }

    /// The table that `mettle plan` prints. Layers that repeat the one before are folded into a line unless `all`.
    pub fn to_text(&self, all: bool) -> String {
        let mut text = String::new();
        let shape = self.ops.iter().map(|row| row.shape.len()).max();
        let shape = shape.unwrap_or(0).max("shape".len());
        let _ = writeln!(text, "{}", self.name);
        let _ = writeln!(
            text,
            "{:>4} {:1} {:<15} {:<shape$} {:>8} {:>8}  weights",
            "op", "", "kind", "shape", "bytes", "FLOPs"
        );
        let folds = if all { Vec::new() } else { self.folds() };
        let mut index = 0;
        while index < self.ops.len() {
            if let Some(fold) = folds.iter().find(|f| f.start == index) {
                let _ = writeln!(
                    text,
                    "       ... the {} ops above {} more {} ...",
                    fold.period,
                    fold.repeats,
                    if fold.repeats == 1 { "time" } else { "times" }
                );
                index += fold.period * fold.repeats;
                continue;
            }
            let row = &self.ops[index];
            let _ = writeln!(
                text,
                "{:>4} {:1} {:<15} {:<shape$} {:>8} {:>8}  {}",
                row.index,
                if row.barrier { "|" } else { "" },
                row.op,
                row.shape,
                human(row.cost.weight_bytes + row.cost.activation_bytes + row.cost.kv_write_bytes),
                human(row.cost.flops),
                weights_text(row)
            );
            index += 1;
        }
        let _ = writeln!(
            text,
            "\n{} ops, {} barriers (| before the op: everything earlier is finished)",
            self.ops.len(),
            self.barriers
        );
        let _ = writeln!(
            text,
            "weights   {} parameters, {}B",
            human(self.weight_elements),
            human(self.weight_bytes)
        );
        for decode in &self.decode {
            let _ = writeln!(
                text,
                "a token   {}B read and written, {}FLOP at context {}",
                human(decode.bytes),
                human(decode.flops),
                decode.context
            );
        }
        for group in &self.kv_groups {
            let planes: Vec<String> = group
                .planes
                .iter()
                .map(|p| format!("{}x{} {:?}", p.heads, p.width, p.element))
                .collect();
            let _ = writeln!(
                text,
                "KV group  {}: {} layers of {}, {}, {}B {}",
                group.name,
                group.layers,
                planes.join(" + "),
                kept(group.retention),
                human(group.entry_bytes() as u64),
                match group.retention {
                    Retention::State => "a sequence",
                    Retention::Encoder => "a token of it",
                    _ => "a token",
                }
            );
        }
        let _ = writeln!(
            text,
            "scratch   {}B for steps of up to {} tokens of {} sequence(s), {} logit rows",
            human(self.scratch_bytes as u64),
            self.bounds.tokens,
            self.bounds.sequences,
            self.bounds.logit_rows
        );
        text
    }

    /// Runs of ops that repeat the ones right before them but for tensor names.
    fn folds(&self) -> Vec<Fold> {
        let same = |a: usize, b: usize| {
            let (a, b) = (&self.ops[a], &self.ops[b]);
            a.op == b.op
                && a.barrier == b.barrier
                && a.shape == b.shape
                && a.cost == b.cost
                && a.context_cost == b.context_cost
                && a.weight_types == b.weight_types
        };
        let mut folds = Vec::new();
        let mut start = 0;
        while start < self.ops.len() {
            let found = (2..=LONGEST_PERIOD)
                .filter(|period| *period <= start)
                .map(|period| {
                    let mut end = start;
                    while end < self.ops.len() && same(end, end - period) {
                        end += 1;
                    }
                    Fold {
                        start,
                        period,
                        repeats: (end - start) / period,
                    }
                })
                .find(|fold| fold.repeats >= 1 && fold.period * fold.repeats >= 4);
            match found {
                Some(fold) => {
                    start += fold.period * fold.repeats;
                    folds.push(fold);
                }
                None => start += 1,
            }
        }
        folds
    }
}

struct Fold {
    start: usize,
    period: usize,
    repeats: usize,
}

fn op_row(plan: &Plan, index: usize, op: &Op, barrier: bool) -> OpRow {
    let accesses = op.accesses();
    let side = |resources: &[Resource]| {
        let mut texts: Vec<String> = resources
            .iter()
            .map(|r| match r {
                Resource::Columns(slice) => {
                    format!("{} x {}", plan.buffer_of(*slice).rows, slice.width)
                }
                Resource::Kv(kv) => format!("kv {}.{}", plan.kv_groups[kv.group].name, kv.layer),
            })
            .collect();
        // The cache's layer number would keep equal layers from folding.
        for text in &mut texts {
            if let Some(rest) = text.strip_prefix("kv ") {
                *text = format!("kv {}", rest.rsplit_once('.').map_or(rest, |(g, _)| g));
            }
        }
        texts.dedup();
        texts.join(", ")
    };
    let weights: Vec<_> = accesses
        .weights
        .iter()
        .map(|id| plan.weight_of(*id))
        .collect();
    OpRow {
        index,
        op: op.name(),
        barrier,
        shape: format!("{} -> {}", side(&accesses.reads), side(&accesses.writes)),
        weights: weights.iter().map(|w| w.name()).collect(),
        weight_types: weights
            .iter()
            .flat_map(|w| &w.parts)
            .map(|p| p.dtype.name().to_owned())
            .collect(),
        cost: cost::of(plan, op, ACTIVATION_BYTES),
        context_cost: cost::of_context(plan, op),
        detail: op.clone(),
    }
}

fn weights_text(row: &OpRow) -> String {
    let mut types = row.weight_types.clone();
    types.dedup();
    let mut text = match row.weights.is_empty() {
        true => String::new(),
        false => format!("{} ({})", row.weights.join(", "), types.join(" ")),
    };
    if let Some(cost) = &row.context_cost {
        let seen = match cost.window {
            Some(window) => format!("of the last {window}"),
            None => "of context".to_owned(),
        };
        let _ = write!(
            text,
            "+ {}B and {}FLOP per token {seen}",
            human(cost.kv_bytes),
            human(cost.flops)
        );
    }
    text
}

fn kept(retention: Retention) -> String {
    match retention {
        Retention::Full => "kept whole".to_owned(),
        Retention::Window(window) => format!("the last {window} tokens kept"),
        Retention::State => "one state kept".to_owned(),
        Retention::Encoder => "the encoder's input kept".to_owned(),
    }
}

/// `98.4 M`: three digits and a decimal unit.
pub fn human(n: u64) -> String {
    let units = [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")];
    match units.iter().find(|(size, _)| n as f64 >= *size) {
        None => format!("{n} "),
        Some((size, unit)) => {
            let value = n as f64 / size;
            let digits = if value < 10.0 {
                2
            } else if value < 100.0 {
                1
            } else {
                0
            };
            format!("{value:.digits$} {unit}")
        }
    }
}
