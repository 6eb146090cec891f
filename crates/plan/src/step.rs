//! Owns what one step is given and what it gives back: plain numbers, built once per step on the host.
//! The types keep a query length from being read as a context length and a slot as a block.

use crate::buffer::BufferId;
use crate::dim::Sizes;

/// A page of the KV pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlockId(pub u32);

/// Tokens of one sequence computed in this step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct QueryLen(pub u32);

/// Tokens of one sequence visible to its last query, the step's own included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ContextLen(pub u32);

/// A row of `Dim::Tokens` for which output is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenRow(pub u32);

/// A submitted step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket(pub u64);

/// Where an input token comes from: the host knows it, or an earlier step still under way samples it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InputToken {
    Host(u32),
    SampledBy(Ticket, u32),
}

/// What a step gives back for its logit rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputKind {
    /// One token id a row, drawn on the device.
    Sampled,
    /// The `k` largest logits of each row, largest first, ties to the lower id.
    TopK(usize),
    /// All logits.
    Logits,
    /// The final hidden state after the last norm.
    Hidden,
}

/// The pages of every sequence in one KV group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupTables {
    /// Where each sequence's blocks start in `blocks`; one more entry than there are sequences.
    pub starts: Vec<u32>,
    pub blocks: Vec<BlockId>,
    /// The page number (in tokens / tokens_per_page) of each sequence's first block: above 0 once a window slid on.
    pub first_page: Vec<u32>,
    /// How many of the group's tokens each sequence has, the step's own included: its context, or its encoder's input.
    pub lens: Vec<ContextLen>,
}

impl GroupTables {
    pub fn clear(&mut self) {
        self.starts.clear();
        self.starts.push(0);
        self.blocks.clear();
        self.first_page.clear();
        self.lens.clear();
    }

    pub fn push(&mut self, first_page: u32, len: ContextLen, blocks: &[BlockId]) {
        if self.starts.is_empty() {
            self.starts.push(0);
        }
        self.blocks.extend_from_slice(blocks);
        self.starts.push(self.blocks.len() as u32);
        self.first_page.push(first_page);
        self.lens.push(len);
    }

    pub fn blocks_of(&self, sequence: usize) -> &[BlockId] {
        &self.blocks[self.starts[sequence] as usize..self.starts[sequence + 1] as usize]
    }
}

/// The rows of one more input buffer of the plan: media embeddings and their places, adapter slots, encoder tokens,
/// sampling parameters, grammar masks. Token ids and logit rows have fields of their own.
#[derive(Clone, Debug, PartialEq)]
pub struct ExtraInput {
    pub buffer: BufferId,
    pub values: InputValues,
}

/// Row after row, as wide as the buffer.
#[derive(Clone, Debug, PartialEq)]
pub enum InputValues {
    F32(Vec<f32>),
    U32(Vec<u32>),
}

/// One step: the tokens of all sequences one after another, and where their context lies.
#[derive(Clone, Debug)]
pub struct StepInput {
    /// Which of the plans prepared together this step runs (an encoder's, a decoder's).
    pub plan: usize,
    pub tokens: Vec<InputToken>,
    /// Absolute position of each token in its sequence.
    pub positions: Vec<u32>,
    /// Where each sequence's tokens start; one more entry than there are sequences.
    pub query_start: Vec<u32>,
    pub context_lens: Vec<ContextLen>,
    /// One per KV group of the plan.
    pub tables: Vec<GroupTables>,
    /// Token rows whose output is wanted, ascending.
    pub logit_rows: Vec<TokenRow>,
    /// What the plan's other input buffers are filled with.
    pub extras: Vec<ExtraInput>,
    pub output: OutputKind,
}

impl StepInput {
    pub fn new(groups: usize) -> StepInput {
        StepInput {
            plan: 0,
            tokens: Vec::new(),
            positions: Vec::new(),
            query_start: vec![0],
            context_lens: Vec::new(),
            tables: vec![GroupTables::default(); groups],
            logit_rows: Vec::new(),
            extras: Vec::new(),
            output: OutputKind::Logits,
        }
    }

    /// Empties the step and keeps its memory: the decode step does not allocate.
    pub fn clear(&mut self) {
        self.tokens.clear();
        self.positions.clear();
        self.query_start.clear();
        self.query_start.push(0);
        self.context_lens.clear();
        self.tables.iter_mut().for_each(GroupTables::clear);
        self.logit_rows.clear();
        self.extras.clear();
    }

    /// Adds the tokens of one sequence, starting at position `first`. Its tables are pushed by the pager.
    pub fn push_sequence(&mut self, tokens: impl Iterator<Item = InputToken>, first: u32) {
        let before = self.tokens.len();
        self.tokens.extend(tokens);
        let added = (self.tokens.len() - before) as u32;
        self.positions.extend(first..first + added);
        self.query_start.push(self.tokens.len() as u32);
        self.context_lens.push(ContextLen(first + added));
    }

    pub fn sequences(&self) -> usize {
        self.context_lens.len()
    }

    pub fn query_len(&self, sequence: usize) -> QueryLen {
        QueryLen(self.query_start[sequence + 1] - self.query_start[sequence])
    }

    /// The sizes of a text step. Rows of media and experts follow from the extras and the plan.
    pub fn sizes(&self) -> Sizes {
        Sizes {
            tokens: self.tokens.len(),
            sequences: self.sequences(),
            logit_rows: self.logit_rows.len(),
            context_partitions: 0,
            expert_assignments: 0,
            media_patches: 0,
            media_rows: 0,
        }
    }
}

/// What `wait` gives back, row by row in the order of `StepInput::logit_rows`.
#[derive(Clone, Copy, Debug)]
pub enum StepOutput<'a> {
    Sampled(&'a [u32]),
    TopK {
        k: usize,
        ids: &'a [u32],
        logits: &'a [f32],
    },
    Logits {
        width: usize,
        values: &'a [f32],
    },
    Hidden {
        width: usize,
        values: &'a [f32],
    },
}

impl<'a> StepOutput<'a> {
    /// The logits of output row `row`. Panics where the step was not asked for logits: that is a bug.
    pub fn logits_row(&self, row: usize) -> &'a [f32] {
        match *self {
            StepOutput::Logits { width, values } => &values[row * width..(row + 1) * width],
            _ => panic!("the step was not asked for logits"),
        }
    }
}
