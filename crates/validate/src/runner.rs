//! Owns a model on a backend without an engine around it: one sequence, pages in order, every row's logits. Of a model with
//! an encoder the sequence is the decoder's, and `encode` comes first.

use mettle_models::{Model, ModelError};
use mettle_plan::{
    Backend, BackendError, BlockId, ContextLen, Executable, InputToken, OutputKind, PageLayout,
    PrepareOptions, Retention, Sizes, StepInput, TokenRow, passes,
};
use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum ValidateError {
    #[error(transparent)]
    Backend(#[from] BackendError),
    #[error(transparent)]
    Pass(#[from] passes::UnknownPass),
    #[error(transparent)]
    Model(#[from] ModelError),
    #[error("{}: {reason}", path.display())]
    Fixture { path: PathBuf, reason: String },
}

#[derive(Clone, Debug)]
pub struct RunnerOptions {
    /// The longest text.
    pub tokens: usize,
    pub disabled_passes: Vec<String>,
    pub taps: Vec<String>,
}

impl RunnerOptions {
    pub fn new(tokens: usize) -> RunnerOptions {
        RunnerOptions {
            tokens,
            disabled_passes: Vec::new(),
            taps: Vec::new(),
        }
    }
}

const TOKENS_PER_PAGE: usize = 32;

pub struct Runner {
    executable: Box<dyn Executable>,
    step: StepInput,
    /// One table for each KV group; windows keep all their pages.
    tables: Vec<Table>,
    /// Tokens of the encoder's input.
    encoded: usize,
}

struct Table {
    retention: Retention,
    tokens_per_page: usize,
    pages: Vec<BlockId>,
    /// As many again, for a second sequence.
    spare: Vec<BlockId>,
}

impl Runner {
    pub fn new(
        model: &Model,
        backend: &dyn Backend,
        options: RunnerOptions,
    ) -> Result<Runner, ValidateError> {
        let mut plans = model.plans();
        for plan in &mut plans {
            passes::apply(plan, &options.disabled_passes)?;
        }
        let page_layout = PageLayout::new(&plans[0].kv_groups, TOKENS_PER_PAGE);
        let mut kv_pages = 0;
        let tables: Vec<Table> = page_layout
            .groups
            .iter()
            .map(|group| {
                let first = kv_pages as u32;
                let pages = options.tokens.div_ceil(group.tokens_per_page) as u32;
                kv_pages += 2 * pages as usize;
                Table {
                    retention: group.retention,
                    tokens_per_page: group.tokens_per_page,
                    // Backwards, so that nothing rests on pages lying in order.
                    pages: (first..first + pages).rev().map(BlockId).collect(),
                    spare: (first + pages..first + 2 * pages).map(BlockId).collect(),
                }
            })
            .collect();
        let bounds = Sizes {
            logit_rows: options.tokens,
            ..plans[0].bounds(options.tokens, 1)
        };
        let prepare = PrepareOptions {
            bounds,
            kv_pages,
            page_layout,
            taps: options.taps,
        };
        let executable = backend.prepare(&plans, &*model.tensors, prepare)?;
        Ok(Runner {
            executable,
            step: StepInput::new(tables.len()),
            tables,
            encoded: 0,
        })
    }

    /// Fills the cache that the decoder's cross-attention reads, in one step.
    pub fn encode(&mut self, tokens: &[u32]) -> Result<(), ValidateError> {
        self.encoded = tokens.len();
        self.fill_step(tokens, 0);
        self.step.plan = 1;
        let ticket = self.executable.submit(&self.step)?;
        self.executable.wait(ticket)?;
        Ok(())
    }

    pub fn executable(&self) -> &dyn Executable {
        &*self.executable
    }

    /// The logits of every token of a text, computed `chunk` tokens at a time.
    pub fn logits(&mut self, tokens: &[u32], chunk: usize) -> Result<Vec<f32>, ValidateError> {
        let mut logits = Vec::new();
        for (index, part) in tokens.chunks(chunk).enumerate() {
            logits.extend(self.step(part, index * chunk)?);
        }
        Ok(logits)
    }

    /// Tokens at which pages of all groups end together.
    pub fn common_tokens(&self) -> usize {
        self.executable.page_layout().common_tokens()
    }

    /// Another sequence that shares the first `tokens` tokens (whole pages of them), as after a prefix hit. What the
    /// sequence before computed behind them is left alone.
    pub fn share_prefix(&mut self, tokens: usize) {
        for table in &mut self.tables {
            assert!(
                tokens.is_multiple_of(table.tokens_per_page),
                "prefixes are whole pages"
            );
            let shared = tokens / table.tokens_per_page;
            table.pages[shared..].swap_with_slice(&mut table.spare[shared..]);
        }
    }

    /// Computes `tokens` at position `first` and gives the logits of each.
    pub fn step(&mut self, tokens: &[u32], first: usize) -> Result<Vec<f32>, ValidateError> {
        let all: Vec<u32> = (0..tokens.len() as u32).collect();
        self.step_wanting(tokens, first, &all)
    }

    /// The same, and gives the logits of some of them, by their places in `tokens`.
    pub fn step_wanting(
        &mut self,
        tokens: &[u32],
        first: usize,
        wanted: &[u32],
    ) -> Result<Vec<f32>, ValidateError> {
        self.fill_step(tokens, first);
        let rows = wanted.iter().map(|row| TokenRow(*row));
        self.step.logit_rows.extend(rows);
        let ticket = self.executable.submit(&self.step)?;
        let output = self.executable.wait(ticket)?;
        Ok((0..wanted.len())
            .flat_map(|row| output.logits_row(row))
            .copied()
            .collect())
    }

    fn fill_step(&mut self, tokens: &[u32], first: usize) {
        self.step.clear();
        self.step.plan = 0;
        self.step.output = OutputKind::Logits;
        let inputs = tokens.iter().map(|t| InputToken::Host(*t));
        self.step.push_sequence(inputs, first as u32);
        for (out, table) in self.step.tables.iter_mut().zip(&self.tables) {
            let len = match table.retention {
                Retention::Encoder => self.encoded,
                _ => first + tokens.len(),
            };
            out.push(0, ContextLen(len as u32), &table.pages);
        }
    }
}
