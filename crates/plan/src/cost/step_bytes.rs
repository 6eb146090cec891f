//! Owns the bytes that a step moves, as a formula of the step's sizes: made once for a plan, evaluated in every step
//! without a look at the plan.

use super::{of, of_context};
use crate::dim::Dim;
use crate::op::{KvSource, Op};
use crate::plan::Plan;
use crate::step::{OutputKind, StepInput};

/// What each step of a plan moves; `Counts::bytes_moved` says what counts.
#[derive(Clone, Debug)]
pub struct StepBytes {
    /// Of all ops, and of those that hidden states need.
    all: Formula,
    hidden: Formula,
}

#[derive(Clone, Debug, Default)]
struct Formula {
    by_rows: Vec<RowTerm>,
    mixtures: Vec<MixtureTerm>,
    contexts: Vec<ContextTerm>,
}

/// The ops over one dimension.
#[derive(Clone, Copy, Debug)]
struct RowTerm {
    rows: Dim,
    /// In a step that has such rows at all.
    once: u64,
    per_row: u64,
}

/// The experts of one op: each row reads its own, all together no more than there are.
#[derive(Clone, Copy, Debug)]
struct MixtureTerm {
    rows: Dim,
    per_row: u64,
    all: u64,
}

/// The attention ops that read the same group and see equally far.
#[derive(Clone, Copy, Debug)]
struct ContextTerm {
    group: usize,
    window: Option<usize>,
    /// For each token seen.
    bytes: u64,
}

impl StepBytes {
    /// `activation_bytes` is the size of an activation on the backend.
    pub fn new(plan: &Plan, activation_bytes: usize) -> StepBytes {
        let formula = |output| Formula::new(plan, plan.nodes_for(output), activation_bytes);
        StepBytes {
            all: formula(OutputKind::Logits),
            hidden: formula(OutputKind::Hidden),
        }
    }

    /// Bytes that this step moves. Allocates nothing.
    pub fn of(&self, step: &StepInput) -> u64 {
        match step.output {
            OutputKind::Hidden => self.hidden.of(step),
            _ => self.all.of(step),
        }
    }
}

impl Formula {
    fn new(plan: &Plan, nodes: usize, activation_bytes: usize) -> Formula {
        let mut formula = Formula::default();
        for node in &plan.nodes[..nodes] {
            let cost = of(plan, &node.op, activation_bytes);
            let rows = plan.buffer_of(node.op.primary()).rows;
            let (mut once, mut per_row) = (0, cost.activation_bytes + cost.kv_write_bytes);
            match &node.op {
                Op::Embed(_) => per_row += cost.weight_bytes,
                Op::MoeExperts(_) => {
                    let weights = node.op.accesses().weights;
                    let bytes = weights.iter().map(|id| plan.weight_of(*id).bytes() as u64);
                    formula.mixtures.push(MixtureTerm {
                        rows,
                        per_row: cost.weight_bytes,
                        all: bytes.sum(),
                    });
                }
                _ => once += cost.weight_bytes,
            }
            match formula.by_rows.iter_mut().find(|term| term.rows == rows) {
                Some(term) => {
                    term.once += once;
                    term.per_row += per_row;
                }
                None => formula.by_rows.push(RowTerm {
                    rows,
                    once,
                    per_row,
                }),
            }
            formula.add_context(plan, &node.op);
        }
        formula
    }

    fn add_context(&mut self, plan: &Plan, op: &Op) {
        let group = match op {
            Op::Attention(o) => match o.kv {
                KvSource::Paged(kv) => kv.group,
                KvSource::Rows { .. } => return,
            },
            Op::CrossAttention(o) => o.kv.group,
            _ => return,
        };
        let Some(cost) = of_context(plan, op) else {
            return;
        };
        let (bytes, window) = (cost.kv_bytes, cost.window);
        let mut terms = self.contexts.iter_mut();
        match terms.find(|term| term.group == group && term.window == window) {
            Some(term) => term.bytes += bytes,
            None => self.contexts.push(ContextTerm {
                group,
                window,
                bytes,
            }),
        }
    }

    fn of(&self, step: &StepInput) -> u64 {
        let sizes = step.sizes();
        let mut bytes = 0;
        for term in &self.by_rows {
            let rows = sizes.get(term.rows) as u64;
            bytes += rows * term.per_row + if rows > 0 { term.once } else { 0 };
        }
        for mixture in &self.mixtures {
            bytes += (sizes.get(mixture.rows) as u64 * mixture.per_row).min(mixture.all);
        }
        for term in &self.contexts {
            for (sequence, context) in step.tables[term.group].lens.iter().enumerate() {
                let context = context.0 as usize;
                // The first query of a chunk sees the furthest back.
                let queries = step.query_len(sequence).0 as usize;
                let seen = match term.window {
                    Some(window) => context.min(window + queries - 1),
                    None => context,
                };
                bytes += seen as u64 * term.bytes;
            }
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffer::{Element, Slice};
    use crate::cost::decode;
    use crate::kv::{KvElement, Retention};
    use crate::op::{Attention, Embed, Gather, LmHead, RopeKvWrite};
    use crate::step::{ContextLen, InputToken, TokenRow};
    use mettle_tensor::DType;

    const HIDDEN: usize = 4;
    const VOCABULARY: usize = 10;

    /// An embedding that is its own query, key and value, attention, and the head.
    fn plan(window: Option<usize>) -> Plan {
        let mut plan = Plan::new("test", DType::F32, KvElement::F16);
        let ids = plan.input("ids", Dim::Tokens, 1, Element::U32);
        let h = plan.buffer("h", Dim::Tokens, HIDDEN);
        let table = plan.weight("table", &[VOCABULARY, HIDDEN]);
        plan.push(Op::Embed(Embed {
            ids,
            table,
            out: h,
            scale: 1.0,
        }));
        let plane = (1, HIDDEN);
        let kv = plan.kv_layer("all", &[plane, plane], Retention::Full);
        plan.push(Op::RopeKvWrite(RopeKvWrite {
            q: h,
            k: h,
            v: Some(h),
            rope: None,
            head_dim: HIDDEN,
            rotate_from: 0,
            heads: 1,
            kv_heads: 1,
            kv,
        }));
        let seen = plan.buffer("seen", Dim::Tokens, HIDDEN);
        plan.push(Op::Attention(Attention {
            q: h,
            kv: KvSource::Paged(kv),
            heads: 1,
            kv_heads: 1,
            head_dim: HIDDEN,
            value_dim: HIDDEN,
            values_in_keys: false,
            scale: 1.0,
            window,
            softcap: None,
            sinks: None,
            bias: None,
            visible_to: None,
            out: seen,
        }));
        let rows = plan.input("rows", Dim::LogitRows, 1, Element::U32);
        let hidden = plan.buffer("hidden", Dim::LogitRows, HIDDEN);
        plan.push(Op::Gather(Gather {
            x: seen,
            rows,
            out: hidden,
        }));
        let logits: Slice = plan.buffer("logits", Dim::LogitRows, VOCABULARY);
        let weight = plan.weight("head", &[VOCABULARY, HIDDEN]);
        plan.push(Op::LmHead(LmHead {
            x: hidden,
            weight,
            out: logits,
        }));
        plan.hidden = Some(plan.mark_output(hidden));
        plan.logits = Some(plan.mark_output(logits));
        plan.check();
        plan
    }

    /// Sequences of (tokens in this step, context), each with a row for its last token.
    fn step(sequences: &[(u32, u32)], output: OutputKind) -> StepInput {
        let mut step = StepInput::new(1);
        step.clear();
        for (queries, context) in sequences {
            let tokens = (0..*queries).map(|_| InputToken::Host(0));
            step.push_sequence(tokens, context - queries);
            step.tables[0].push(0, ContextLen(*context), &[]);
            step.logit_rows.push(TokenRow(step.tokens.len() as u32 - 1));
        }
        step.output = output;
        step
    }

    #[test]
    fn a_decode_step_moves_what_the_plan_says() {
        for window in [None, Some(6)] {
            let plan = plan(window);
            for context in [1, 5, 6, 7, 100] {
                let step = step(&[(1, context)], OutputKind::Logits);
                // Weights and cache alone, as `decode` counts.
                let found = StepBytes::new(&plan, 0).of(&step);
                assert_eq!(found, decode(&plan, context as usize).bytes, "{context}");
            }
        }
    }

    #[test]
    fn rows_weights_and_context_count_as_often_as_they_are_read() {
        let plan = plan(None);
        let bytes = StepBytes::new(&plan, 2);
        let step_of = |output| step(&[(3, 3), (1, 50)], output);
        // By hand: ids, embedding and its table's row; q, k and v read, q and k written, k and v cached; q read, output
        // written. Of 4 tokens, with 2 bytes an activation, 4 a weight and 2 a cached number.
        let per_token = (2 + 8 + 16) + (5 * 8 + 16) + (8 + 8);
        let context = (3 + 50) * 16;
        // Of 2 rows: source, number and target; then the head's input and its logits, and all its weights once.
        let (gather, head) = (2 * (8 + 2 + 8), 2 * (8 + 20) + 160);
        let hidden = 4 * per_token + context + gather;
        assert_eq!(bytes.of(&step_of(OutputKind::Hidden)), hidden);
        assert_eq!(bytes.of(&step_of(OutputKind::Logits)), hidden + head);
        // A chunk without an output row reads no head.
        let mut quiet = step(&[(4, 4)], OutputKind::Logits);
        quiet.logit_rows.clear();
        assert_eq!(bytes.of(&quiet), 4 * per_token + 4 * 16);
    }

    #[test]
    fn the_first_query_of_a_chunk_sees_the_furthest_back() {
        let bytes = StepBytes::new(&plan(Some(6)), 0);
        let kv = |queries, context| {
            let step = step(&[(queries, context)], OutputKind::Hidden);
            bytes.of(&step) - u64::from(queries) * 32
        };
        assert_eq!(kv(1, 20), 6 * 16);
        assert_eq!(kv(5, 20), 10 * 16);
        assert_eq!(kv(5, 8), 8 * 16);
    }

    #[test]
    fn hidden_states_need_no_head() {
        let plan = plan(None);
        assert_eq!(plan.nodes_for(OutputKind::Hidden), 4);
        assert_eq!(plan.nodes_for(OutputKind::Logits), 5);
        assert_eq!(plan.nodes_for(OutputKind::TopK(1)), 5);
    }
}
