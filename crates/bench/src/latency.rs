//! Owns the time of a fixed batch: its prompts computed together, then one token each a step. No engine, no sampling but
//! the largest logit, so that it is the backend which is measured.

use crate::ceilings::MemoryProbe;
use crate::spread::Spread;
use mettle_plan::{
    BackendError, BlockId, ContextLen, Executable, GroupPages, InputToken, OpTime, OutputKind,
    PageLayout, StepInput, StepOutput, TokenRow,
};
use std::time::Instant;

#[derive(Clone, Copy, Debug)]
pub struct LatencyOptions {
    pub batch: usize,
    pub input_len: usize,
    pub output_len: usize,
    pub repeats: usize,
    pub vocabulary: usize,
}

#[derive(Clone, Debug)]
pub struct Latency {
    /// Seconds for all prompts.
    pub prefill: Spread,
    /// Seconds for all decode steps.
    pub decode: Spread,
    /// With a probe: each run's decode, and what memory gave around it.
    pub beside_memory: Vec<BesideMemory>,
}

#[derive(Clone, Copy, Debug)]
pub struct BesideMemory {
    pub decode_seconds: f64,
    /// Bytes a second right before and right after.
    pub memory: [f64; 2],
}

/// Pages that the batch needs: all of every group, since nobody gives back here what falls out of a window.
pub fn pages(options: &LatencyOptions, layout: &PageLayout) -> usize {
    let length = options.input_len + options.output_len;
    let of_group = |g: &GroupPages| length.div_ceil(g.tokens_per_page.max(1));
    options.batch * layout.groups.iter().map(of_group).sum::<usize>()
}

/// One warm-up, then `repeats` runs; `progress` after each.
pub fn latency(
    executable: &mut dyn Executable,
    options: &LatencyOptions,
    probe: Option<&MemoryProbe>,
    progress: &mut dyn FnMut(usize),
) -> Result<Latency, BackendError> {
    let mut batch = Batch::new(executable, options);
    let (mut prefill, mut decode) = (Vec::new(), Vec::new());
    let mut beside_memory = Vec::new();
    for repeat in 0..=options.repeats {
        let start = Instant::now();
        batch.prefill(executable)?;
        let prefill_seconds = start.elapsed().as_secs_f64();
        let before = probe.map(MemoryProbe::bytes_per_second);
        let start = Instant::now();
        for index in 0..options.output_len {
            batch.decode(executable, index)?;
        }
        let decode_seconds = start.elapsed().as_secs_f64();
        let after = probe.map(MemoryProbe::bytes_per_second);
        // The first run warms up.
        if repeat > 0 {
            prefill.push(prefill_seconds);
            decode.push(decode_seconds);
            beside_memory.extend(before.zip(after).map(|(before, after)| BesideMemory {
                decode_seconds,
                memory: [before, after],
            }));
        }
        progress(repeat);
    }
    Ok(Latency {
        prefill: Spread::of_seconds(&prefill),
        decode: Spread::of_seconds(&decode),
        beside_memory,
    })
}

/// The device's time of each kernel of one step: all prompts (as far as a step holds them), or one token each.
pub fn profile(
    executable: &mut dyn Executable,
    options: &LatencyOptions,
    decode: bool,
) -> Option<Result<Vec<OpTime>, BackendError>> {
    let mut batch = Batch::new(executable, options);
    match decode {
        true => batch.fill_decode(0),
        false => {
            batch.fill_prefill(executable.bounds().tokens, 0);
        }
    }
    executable.profile(&batch.step)
}

/// Sequences with pages of their own, and the step that is filled for them.
pub(crate) struct Batch {
    options: LatencyOptions,
    pub(crate) step: StepInput,
    output: OutputKind,
    /// By sequence and group.
    tables: Vec<Vec<Vec<BlockId>>>,
    tokens: Vec<u32>,
}

impl Batch {
    pub(crate) fn new(executable: &dyn Executable, options: &LatencyOptions) -> Batch {
        let layout = executable.page_layout();
        let length = options.input_len + options.output_len;
        let mut next = 0;
        let mut take = |count: usize| {
            let pages = (next..next + count as u32).map(BlockId).collect();
            next += count as u32;
            pages
        };
        let tables = (0..options.batch)
            .map(|_| {
                let groups = layout.groups.iter();
                groups
                    .map(|g| take(length.div_ceil(g.tokens_per_page.max(1))))
                    .collect()
            })
            .collect();
        let output = match executable.gives(OutputKind::TopK(1)) {
            true => OutputKind::TopK(1),
            false => OutputKind::Logits,
        };
        Batch {
            options: *options,
            step: StepInput::new(layout.groups.len()),
            output,
            tables,
            tokens: vec![0; options.batch],
        }
    }

    /// The token at a place of a prompt: anything, and the same every time.
    fn prompt_token(&self, sequence: usize, position: usize) -> InputToken {
        let mixed = (sequence * 7919 + position * 104_729 + 17) % self.options.vocabulary.max(1);
        InputToken::Host(mixed as u32)
    }

    fn push(&mut self, sequence: usize, first: usize, tokens: Vec<InputToken>) {
        let end = first + tokens.len();
        self.step.push_sequence(tokens.into_iter(), first as u32);
        for (table, blocks) in self.step.tables.iter_mut().zip(&self.tables[sequence]) {
            table.push(0, ContextLen(end as u32), blocks);
        }
    }

    /// As many prompt tokens as a step holds, from prompt token `from` of all prompts on. Gives how many.
    pub(crate) fn fill_prefill(&mut self, room: usize, from: usize) -> usize {
        self.step.clear();
        self.step.output = self.output;
        let input = self.options.input_len;
        let (mut at, mut taken) = (from, 0);
        while taken < room && at < input * self.options.batch {
            let (sequence, first) = (at / input, at % input);
            let count = (input - first).min(room - taken);
            let places = first..first + count;
            let tokens = places.map(|p| self.prompt_token(sequence, p)).collect();
            self.push(sequence, first, tokens);
            taken += count;
            at += count;
            if first + count == input {
                self.step.logit_rows.push(TokenRow(taken as u32 - 1));
            }
        }
        taken
    }

    fn prefill(&mut self, executable: &mut dyn Executable) -> Result<(), BackendError> {
        let room = executable.bounds().tokens;
        let (mut from, mut done) = (0, 0);
        while from < self.options.input_len * self.options.batch {
            from += self.fill_prefill(room, from);
            let rows = self.step.logit_rows.len();
            self.run(executable, done, rows)?;
            done += rows;
        }
        Ok(())
    }

    fn fill_decode(&mut self, index: usize) {
        self.fill_decode_at(self.options.input_len + index);
    }

    /// One token of each sequence, at this place of it.
    pub(crate) fn fill_decode_at(&mut self, position: usize) {
        self.step.clear();
        self.step.output = self.output;
        for sequence in 0..self.options.batch {
            let token = InputToken::Host(self.tokens[sequence]);
            self.push(sequence, position, vec![token]);
            self.step.logit_rows.push(TokenRow(sequence as u32));
        }
    }

    fn decode(
        &mut self,
        executable: &mut dyn Executable,
        index: usize,
    ) -> Result<(), BackendError> {
        self.fill_decode(index);
        self.run(executable, 0, self.options.batch)
    }

    /// Runs the step; its `rows` results are the next tokens of the sequences from `first` on.
    fn run(
        &mut self,
        executable: &mut dyn Executable,
        first: usize,
        rows: usize,
    ) -> Result<(), BackendError> {
        let ticket = executable.submit(&self.step)?;
        let output = executable.wait(ticket)?;
        for row in 0..rows {
            self.tokens[first + row] = match &output {
                StepOutput::TopK { k, ids, .. } => ids[row * k],
                other => {
                    let logits = other.logits_row(row);
                    let ids = 0..logits.len();
                    let best = ids.max_by(|a, b| logits[*a].total_cmp(&logits[*b]));
                    best.unwrap_or(0) as u32
                }
            };
        }
        Ok(())
    }
}
