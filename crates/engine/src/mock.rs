//! Owns a fake executable for tests without a model: its logits and hidden states are a hash of all tokens a query sees,
//! read back through the block tables from fake pages, so that a mistake of the pager shows as wrong results. With a
//! layout of no groups it is an encoder: no logits, and hidden states of all tokens of a sequence, which one step must have.

use mettle_plan::{
    BackendError, BlockId, Counts, Executable, InputToken, KernelCount, MemoryUse, OutputKind,
    PageLayout, Retention, Sizes, StepInput, StepOutput, Ticket,
};
use std::sync::Arc;

/// What the mock does with a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MockStep {
    Run,
    /// `submit` refuses the step.
    Fail(String),
    /// All logits and hidden states are NaN.
    NotANumber,
}

/// Called with the number of each step (from 0); it may also wait or panic.
pub type MockHook = Box<dyn FnMut(u64) -> MockStep + Send>;

/// Elements of the mock's hidden states.
pub const MOCK_HIDDEN: usize = 12;

pub struct MockExecutable {
    bounds: Sizes,
    layout: PageLayout,
    vocabulary: usize,
    /// Token ids by page and slot; the first two slots of a state's first page are the state.
    pages: Vec<Vec<u32>>,
    /// Logits, or hidden states, of the last step.
    rows: Vec<f32>,
    steps: u64,
    in_flight: Option<(Ticket, OutputKind)>,
    hook: Option<MockHook>,
    gives_top_k: bool,
    gives_hidden: bool,
    /// Ids and logits of the last step that asked for `TopK`.
    top: (Vec<u32>, Vec<f32>),
    counts: Arc<Counts>,
    kernel: KernelCount,
}

/// The plan whose steps write the groups that keep an encoder's tokens, and no others.
const ENCODER: usize = 1;

/// No token has this id: reading a slot that was never written changes the hash.
const POISON: u32 = u32::MAX;

impl MockExecutable {
    pub fn new(
        vocabulary: usize,
        layout: PageLayout,
        kv_pages: usize,
        bounds: Sizes,
    ) -> MockExecutable {
        let slots = layout.common_tokens().max(2);
        let counts = Arc::new(Counts::default());
        MockExecutable {
            kernel: counts.kernel("mock"),
            counts,
            bounds,
            layout,
            vocabulary,
            pages: vec![vec![POISON; slots]; kv_pages],
            rows: Vec::new(),
            steps: 0,
            in_flight: None,
            hook: None,
            gives_top_k: false,
            gives_hidden: true,
            top: (Vec::new(), Vec::new()),
        }
    }

    /// One that also finds the largest logits itself.
    pub fn with_top_k(self) -> MockExecutable {
        MockExecutable {
            gives_top_k: true,
            ..self
        }
    }

    /// One that gives logits only.
    pub fn without_hidden(self) -> MockExecutable {
        MockExecutable {
            gives_hidden: false,
            ..self
        }
    }

    pub fn with_hook(self, hook: impl FnMut(u64) -> MockStep + Send + 'static) -> MockExecutable {
        MockExecutable {
            hook: Some(Box::new(hook)),
            ..self
        }
    }

    /// The logits after `tokens`, computed without pages: what any correct run must give.
    pub fn logits_after(vocabulary: usize, layout: &PageLayout, tokens: &[u32]) -> Vec<f32> {
        MockExecutable::logits_of(vocabulary, layout, &[], tokens)
    }

    /// The same where an encoder has read `input`.
    pub fn logits_of(
        vocabulary: usize,
        layout: &PageLayout,
        input: &[u32],
        tokens: &[u32],
    ) -> Vec<f32> {
        let hash = hash_after(layout, input, tokens);
        (0..vocabulary as u32).map(|id| logit(hash, id)).collect()
    }

    /// The hidden state of the last of `tokens`, computed without pages.
    pub fn hidden_after(layout: &PageLayout, tokens: &[u32]) -> Vec<f32> {
        hidden(hash_after(layout, &[], tokens)).collect()
    }

    /// The hidden state at `position` of an encoder's text.
    pub fn encoded(tokens: &[u32], position: usize) -> Vec<f32> {
        let tokens = tokens.iter().copied();
        hidden(hash_of_text(tokens, position)).collect()
    }

    fn is_encoder(&self) -> bool {
        self.layout.groups.is_empty()
    }

    fn check(&self, step: &StepInput) -> Result<(), BackendError> {
        if let Some(dim) = step.sizes().exceeds(&self.bounds) {
            return Err(BackendError::StepTooLarge {
                dim,
                size: step.sizes().get(dim),
                bound: self.bounds.get(dim),
            });
        }
        for sequence in 0..step.sequences() {
            let (tokens, context) = (step.query_len(sequence).0, step.context_lens[sequence].0);
            if self.is_encoder() && tokens != context {
                return Err(BackendError::BadStep(format!(
                    "{tokens} of {context} tokens, and no cache"
                )));
            }
        }
        for (tables, group) in step.tables.iter().zip(&self.layout.groups) {
            for sequence in 0..step.sequences() {
                let context = step.context_lens[sequence].0 as usize;
                let first_query = context - step.query_len(sequence).0 as usize;
                let first = tables.first_page[sequence] as usize;
                let pages = tables.blocks_of(sequence).len();
                let encodes = step.plan == ENCODER;
                let held = tables.lens[sequence].0 as usize;
                let is_encoders = group.retention == Retention::Encoder;
                let covers = match group.retention {
                    Retention::Encoder => {
                        held > 0 && first + pages == held.div_ceil(group.tokens_per_page)
                    }
                    _ if encodes => pages == 0,
                    Retention::State => pages == group.pages_per_state,
                    _ => {
                        first == group.first_page(first_query)
                            && first + pages == context.div_ceil(group.tokens_per_page)
                    }
                };
                if encodes == is_encoders && held != context {
                    return Err(BackendError::BadStep(format!(
                        "{:?} for a context of {context} tokens",
                        tables.lens[sequence]
                    )));
                }
                if !covers {
                    return Err(BackendError::BadStep(format!(
                        "pages {first}..{} for tokens {first_query}..{context} of {group:?}",
                        first + pages
                    )));
                }
            }
        }
        Ok(())
    }

    /// Writes a sequence's token at `position` into every group that this plan writes and gives the hash of what its query
    /// sees.
    fn compute(&mut self, step: &StepInput, sequence: usize, position: usize, token: u32) -> u64 {
        if self.is_encoder() {
            let rows = step.query_start[sequence]..step.query_start[sequence + 1];
            let tokens = step.tokens[rows.start as usize..rows.end as usize].iter();
            let ids = tokens.map(|token| match *token {
                InputToken::Host(id) => id,
                InputToken::SampledBy(..) => POISON,
            });
            return hash_of_text(ids, position);
        }
        let mut hash = 0;
        for (tables, group) in step.tables.iter().zip(&self.layout.groups) {
            let blocks = tables.blocks_of(sequence);
            let (encodes, is_encoders) =
                (step.plan == ENCODER, group.retention == Retention::Encoder);
            if encodes && !is_encoders {
                continue;
            }
            if group.retention == Retention::State {
                let page = &mut self.pages[blocks[0].0 as usize];
                let old = u64::from(page[0]) << 32 | u64::from(page[1]);
                let new = mix(if position == 0 { 0 } else { old }, token);
                (page[0], page[1]) = ((new >> 32) as u32, new as u32);
                hash = mix(hash ^ new, token);
                continue;
            }
            let first = tables.first_page[sequence] as usize;
            let slot = |at: usize| {
                let block = blocks[at / group.tokens_per_page - first];
                (block.0 as usize, at % group.tokens_per_page)
            };
            if encodes == is_encoders {
                let (page, offset) = slot(position);
                self.pages[page][offset] = token;
            }
            let seen = match group.retention {
                Retention::Encoder => 0..tables.lens[sequence].0 as usize,
                Retention::Window(window) => (position + 1).saturating_sub(window)..position + 1,
                _ => 0..position + 1,
            };
            for at in seen {
                let (page, offset) = slot(at);
                hash = mix(hash, self.pages[page][offset]);
            }
        }
        hash
    }
}

/// What the last of `tokens` sees, by the retention of each group.
fn hash_after(layout: &PageLayout, input: &[u32], tokens: &[u32]) -> u64 {
    let (&last, length) = (tokens.last().expect("a token"), tokens.len());
    let mut hash = 0;
    for group in &layout.groups {
        hash = match group.retention {
            Retention::State => {
                let state = tokens.iter().fold(0, |state, t| mix(state, *t));
                mix(hash ^ state, last)
            }
            Retention::Full => tokens.iter().fold(hash, |hash, t| mix(hash, *t)),
            Retention::Window(window) => tokens[length.saturating_sub(window)..]
                .iter()
                .fold(hash, |hash, t| mix(hash, *t)),
            Retention::Encoder => input.iter().fold(hash, |hash, t| mix(hash, *t)),
        };
    }
    hash
}

/// What an encoder's token at `position` sees: all of the text.
fn hash_of_text(tokens: impl Iterator<Item = u32>, position: usize) -> u64 {
    mix(tokens.fold(1, mix), position as u32)
}

/// One round of a multiply-and-shift hash; two values that differ anywhere go apart.
fn mix(hash: u64, value: u32) -> u64 {
    let mixed = (hash ^ u64::from(value)).wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed ^ (mixed >> 27)
}

/// Between 0 and 8, in steps that an f32 holds exactly.
fn logit(hash: u64, id: u32) -> f32 {
    (mix(hash, id) >> 40) as f32 / (1 << 21) as f32
}

/// Between -4 and 4: other numbers than the logits have.
fn hidden(hash: u64) -> impl Iterator<Item = f32> {
    (0..MOCK_HIDDEN as u32).map(move |column| logit(!hash, column) - 4.0)
}

impl Executable for MockExecutable {
    fn bounds(&self) -> &Sizes {
        &self.bounds
    }

    fn page_layout(&self) -> &PageLayout {
        &self.layout
    }

    fn memory(&self) -> MemoryUse {
        MemoryUse::default()
    }

    fn gives(&self, output: OutputKind) -> bool {
        match output {
            OutputKind::Logits => !self.is_encoder(),
            OutputKind::Hidden => self.gives_hidden,
            OutputKind::TopK(_) => self.gives_top_k && !self.is_encoder(),
            OutputKind::Sampled => false,
        }
    }

    fn submit(&mut self, step: &StepInput) -> Result<Ticket, BackendError> {
        if self.in_flight.is_some() {
            return Err(BackendError::TooManyInFlight(self.max_in_flight()));
        }
        let number = self.steps;
        self.steps += 1;
        let order = match &mut self.hook {
            Some(hook) => hook(number),
            None => MockStep::Run,
        };
        if let MockStep::Fail(message) = order {
            return Err(BackendError::BadStep(message));
        }
        self.check(step)?;
        if !self.gives(step.output) {
            return Err(BackendError::BadStep(format!("output {:?}", step.output)));
        }
        self.kernel.add_one();
        // A token a byte: enough for a test to see the number move.
        self.counts.add_bytes(step.tokens.len() as u64);
        self.rows.clear();
        let mut wanted = step.logit_rows.iter().peekable();
        for sequence in 0..step.sequences() {
            let rows = step.query_start[sequence]..step.query_start[sequence + 1];
            for row in rows {
                let InputToken::Host(token) = step.tokens[row as usize] else {
                    return Err(BackendError::BadStep("a token from the device".to_owned()));
                };
                let position = step.positions[row as usize] as usize;
                let hash = self.compute(step, sequence, position, token);
                if wanted.next_if(|w| w.0 == row).is_none() {
                    continue;
                }
                let spoilt = |value: f32| match order {
                    MockStep::NotANumber => f32::NAN,
                    _ => value,
                };
                match step.output {
                    OutputKind::Hidden => self.rows.extend(hidden(hash).map(spoilt)),
                    _ => {
                        let ids = 0..self.vocabulary as u32;
                        self.rows.extend(ids.map(|id| spoilt(logit(hash, id))));
                    }
                }
            }
        }
        self.in_flight = Some((Ticket(number), step.output));
        Ok(Ticket(number))
    }

    fn wait(&mut self, ticket: Ticket) -> Result<StepOutput<'_>, BackendError> {
        let Some((_, output)) = self.in_flight.take_if(|(t, _)| *t == ticket) else {
            return Err(BackendError::UnknownTicket(ticket.0));
        };
        let k = match output {
            OutputKind::TopK(k) => k,
            OutputKind::Hidden => {
                return Ok(StepOutput::Hidden {
                    width: MOCK_HIDDEN,
                    values: &self.rows,
                });
            }
            _ => {
                return Ok(StepOutput::Logits {
                    width: self.vocabulary,
                    values: &self.rows,
                });
            }
        };
        let k = k.min(self.vocabulary);
        self.top.0.clear();
        self.top.1.clear();
        for row in self.rows.chunks_exact(self.vocabulary) {
            let mut order: Vec<u32> = (0..self.vocabulary as u32).collect();
            order.sort_by(|a, b| row[*b as usize].total_cmp(&row[*a as usize]).then(a.cmp(b)));
            self.top.0.extend(&order[..k]);
            let logits = order[..k].iter().map(|id| row[*id as usize]);
            self.top.1.extend(logits);
        }
        Ok(StepOutput::TopK {
            k,
            ids: &self.top.0,
            logits: &self.top.1,
        })
    }

    fn copy_pages(&mut self, copies: &[(BlockId, BlockId)]) -> Result<(), BackendError> {
        for (source, target) in copies {
            let page = self.pages[source.0 as usize].clone();
            self.pages[target.0 as usize] = page;
        }
        Ok(())
    }

    fn tap(&self, _name: &str) -> Option<&[f32]> {
        None
    }

    fn counts(&self) -> Arc<Counts> {
        self.counts.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mettle_plan::{ContextLen, GroupPages, TokenRow};

    #[test]
    fn a_step_is_waited_for_once_and_before_the_next() {
        let group = GroupPages {
            retention: Retention::Full,
            tokens_per_page: 4,
            pages_per_state: 0,
        };
        let layout = PageLayout {
            page_bytes: 1,
            groups: vec![group],
        };
        let mut mock = MockExecutable::new(10, layout, 1, Sizes::bounds(4, 1));
        let mut step = StepInput::new(1);
        step.push_sequence([InputToken::Host(1)].into_iter(), 0);
        step.tables[0].push(0, ContextLen(1), &[BlockId(0)]);
        step.logit_rows.push(TokenRow(0));
        let first = mock.submit(&step).unwrap();
        let refusal = mock.submit(&step).unwrap_err();
        assert!(matches!(refusal, BackendError::TooManyInFlight(1)));
        mock.wait(first).unwrap();
        let twice = mock.wait(first).unwrap_err();
        assert!(matches!(twice, BackendError::UnknownTicket(0)));
        let second = mock.submit(&step).unwrap();
        mock.wait(second).unwrap();
        // The lengths of a group and of the sequence agree.
        step.tables[0].lens[0] = ContextLen(2);
        let refusal = mock.submit(&step).unwrap_err();
        assert!(matches!(refusal, BackendError::BadStep(_)), "{refusal}");
    }
}
