//! Owns one plan as the CPU runs it: its calls and what they count as, its weights and tables, and where its outputs lie.

use crate::isa::Isa;
use crate::joins::joins_next;
use crate::kernels::attention::BiasTable;
use crate::kernels::{elementwise, gated};
use crate::memory::{AlignedBytes, Rows};
use crate::program::{Call, Kernel, KeysAndValues};
use crate::readers::only_logit_rows_are_read;
use crate::weights::Weights;
use mettle_plan::{
    Arena, BackendError, Counts, KernelCount, Op, OutputKind, Plan, Rope, Sizes, Slice, WeightId,
    cost::StepBytes,
};
use mettle_tensor::DType;
use std::collections::HashMap;

pub struct PreparedPlan {
    pub calls: Vec<Call>,
    /// The kernels of each call, to be counted where it has a row or more.
    pub kernels: Vec<Vec<KernelCount>>,
    /// Calls that hidden states need; logits need all.
    hidden_calls: usize,
    pub weights: Weights,
    pub ropes: Vec<RopeTable>,
    /// By the weight that they were made of.
    pub biases: HashMap<WeightId, BiasTable>,
    pub hidden: Option<Rows>,
    pub logits: Option<Rows>,
    pub vocabulary: usize,
    /// Rows of the table that positions are looked up in.
    pub positions: usize,
    /// Its steps write what another plan's cross-attention reads.
    pub fills_encoder: bool,
    /// Its attention reads the step's own rows.
    pub reads_rows: bool,
    pub step_bytes: StepBytes,
}

/// Where a plan's buffers lie, and how large its steps may be.
#[derive(Clone, Copy)]
pub struct Place<'a> {
    pub arena: &'a Arena,
    pub memory: &'a AlignedBytes,
    pub bounds: &'a Sizes,
}

/// The angles of a step's tokens for one rope.
pub struct RopeTable {
    pub rope: Rope,
    /// Cosines, then sines, of each token.
    angles: AlignedBytes,
}

impl RopeTable {
    fn new(rope: &Rope, tokens: usize) -> Result<RopeTable, BackendError> {
        let bytes = tokens.saturating_mul(rope.dims * size_of::<f32>());
        Ok(RopeTable {
            rope: rope.clone(),
            angles: AlignedBytes::zeroed("rope angles", bytes)?,
        })
    }

    pub fn rows(&self) -> Rows {
        let width = self.rope.dims;
        // SAFETY: `angles` was allocated with `dims` values for each token of the largest step.
        unsafe { Rows::new(self.angles.base().cast(), width, width) }
    }
}

impl PreparedPlan {
    pub fn new(
        plan: &Plan,
        place: Place<'_>,
        mut calls: Vec<Call>,
        weights: Weights,
        isa: Isa,
        counts: &Counts,
    ) -> Result<PreparedPlan, BackendError> {
        let joins = joins_next(plan, place.arena);
        for (index, call) in calls.iter_mut().enumerate() {
            if call.taps.is_empty() {
                call.joins_next = joins[index];
                call.only_logit_rows = only_logit_rows_are_read(plan, index);
            }
        }
        let ropes = plan.ropes.iter();
        let ropes = ropes.map(|rope| RopeTable::new(rope, place.bounds.tokens));
        let bias = |op: &Op| match op {
            Op::Attention(o) => o.bias,
            _ => None,
        };
        let mut biases = HashMap::new();
        for bias in plan.nodes.iter().filter_map(|node| bias(&node.op)) {
            let table = || BiasTable::new(&bias, weights.vector(bias.weight));
            biases.entry(bias.weight).or_insert_with(table);
        }
        let table_rows = |ids: Option<Slice>| {
            plan.nodes.iter().find_map(|n| match &n.op {
                Op::Embed(e) if Some(e.ids) == ids => Some(plan.weight_of(e.table).rows()),
                _ => None,
            })
        };
        let kernels_of = |call: &Call| {
            let names = kernel_names(&call.kernel, &weights, isa);
            names.into_iter().map(|name| counts.kernel(name)).collect()
        };
        Ok(PreparedPlan {
            kernels: calls.iter().map(kernels_of).collect(),
            hidden_calls: plan.nodes_for(OutputKind::Hidden),
            ropes: ropes.collect::<Result<_, _>>()?,
            biases,
            hidden: plan.hidden.map(|slice| place.rows(plan, slice)),
            logits: plan.logits.map(|slice| place.rows(plan, slice)),
            vocabulary: table_rows(plan.token_ids).unwrap_or(0),
            positions: table_rows(plan.positions).unwrap_or(usize::MAX),
            fills_encoder: plan.fills_encoder(),
            reads_rows: calls.iter().any(reads_rows),
            step_bytes: StepBytes::new(plan, size_of::<f32>()),
            calls,
            weights,
        })
    }

    /// The calls of a step with this output.
    pub fn calls_for(&self, output: OutputKind) -> &[Call] {
        match output {
            OutputKind::Hidden => &self.calls[..self.hidden_calls],
            _ => &self.calls,
        }
    }

    /// Whether rows of this kind come out of it. Other plans of the model may give them all the same.
    pub fn gives(&self, output: OutputKind) -> bool {
        match output {
            OutputKind::Hidden => self.hidden.is_some(),
            _ => self.logits.is_some(),
        }
    }

    /// Of angles and biases.
    pub fn table_bytes(&self) -> usize {
        let angles: usize = self.ropes.iter().map(|r| r.angles.len()).sum();
        let biases: usize = self.biases.values().map(BiasTable::bytes).sum();
        angles + biases
    }
}

impl Place<'_> {
    fn rows(&self, plan: &Plan, slice: Slice) -> Rows {
        let index = slice.buffer.0 as usize;
        let (range, width) = (&self.arena.ranges[index], plan.buffers[index].width);
        assert!(range.end <= self.memory.len(), "the arena fits its memory");
        // SAFETY: as in `translate`: the arena's own range inside the memory that the executable keeps.
        unsafe { Rows::new(self.memory.base().add(range.start).cast(), width, width) }
            .columns(slice.start, slice.width)
    }
}

fn reads_rows(call: &Call) -> bool {
    let Kernel::Attention { kv, .. } = &call.kernel else {
        return false;
    };
    matches!(kv, KeysAndValues::Rows { .. })
}

fn kernel_names(kernel: &Kernel, weights: &Weights, isa: Isa) -> Vec<&'static str> {
    match kernel {
        Kernel::Embed { .. } => vec!["embed"],
        Kernel::RmsNorm(_) => vec!["rms_norm"],
        Kernel::LayerNorm { .. } => vec!["layer_norm"],
        Kernel::Linear { weight, .. } => weights
            .matrix(*weight)
            .iter()
            .map(|part| crate::names::linear(part.dtype, isa))
            .collect(),
        Kernel::QkNorm { .. } => vec!["qk_norm"],
        Kernel::RopeKvWrite(_) => vec!["rope_kv_write"],
        Kernel::Attention { kv, .. } => vec![match kv {
            KeysAndValues::Paged(_) => "attention",
            KeysAndValues::Encoded(_) => "cross_attention",
            KeysAndValues::Rows { .. } => "attention_rows",
        }],
        Kernel::Gated(op) => vec![gated::name(op.activation)],
        Kernel::Elementwise { expr, .. } => vec![elementwise::name(*expr)],
        Kernel::Softcap { .. } => vec!["softcap"],
        Kernel::Gather { .. } => vec!["gather"],
        Kernel::MoeRoute { .. } => vec!["moe_route"],
        Kernel::MoeExperts(op) => {
            // Each type once, however many experts there are.
            let both = [op.gate_up, op.down].map(|id| weights.matrix(id));
            let mut types: Vec<DType> = both.into_iter().flatten().map(|m| m.dtype).collect();
            types.sort();
            types.dedup();
            let names = types
                .into_iter()
                .map(|dtype| crate::names::linear(dtype, isa));
            ["moe_experts"].into_iter().chain(names).collect()
        }
    }
}
