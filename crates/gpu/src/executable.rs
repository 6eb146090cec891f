//! Owns a prepared plan on a device: weights, scratch memory, KV pool, pipelines, and the step under way.

use crate::commands::{Command, Commands, MOST_ARGUMENTS, Recorded};
use crate::device::{Argument, Encoder, Finished, Gpu};
use crate::error::GpuError;
use crate::memory::Memory;
use crate::metadata::Metadata;
use crate::output::Output;
use crate::pipelines::Pipelines;
use crate::place::{BufferIndex, Place, element_bytes};
use crate::record::{Buffers, Recorder};
use crate::weights::{Weights, device_bytes, natural_element};
use mettle_kernels::select::{DeviceProfile, Element, TOP_K_LIMIT};
use mettle_plan::{
    Arena, BackendError, BlockId, Counts, Executable, InputToken, MemoryUse, OpTime, OutputKind,
    PageLayout, Plan, PrepareOptions, Sizes, StepInput, StepLimits, StepOutput, Ticket, bind,
    cost::StepBytes, hazards,
};
use mettle_tensor::TensorSource;
use std::sync::Arc;

/// What a device computes with, beyond the plan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Precision {
    /// Of activations, dense weights and the KV cache; absent: what the weights are stored in.
    pub element: Option<Element>,
    /// A row's result does not depend on what else is in its step.
    pub batch_invariant: bool,
}

pub struct GpuExecutable<G: Gpu> {
    gpu: G,
    backend: &'static str,
    device: DeviceProfile,
    plan: Plan,
    arena: Arena,
    hazards: Vec<bool>,
    element: Element,
    batch_invariant: bool,
    memory: Memory<G::Buffer>,
    weights: Weights,
    buffers: Buffers,
    metadata_buffer: BufferIndex,
    metadata: Metadata,
    commands: Commands,
    pipelines: Pipelines<G::Pipeline>,
    counts: Arc<Counts>,
    step_bytes: StepBytes,
    /// Ops that hidden states need; logits need all.
    hidden_nodes: usize,
    taps: Vec<String>,
    bounds: Sizes,
    layout: PageLayout,
    kv_pages: usize,
    vocabulary: usize,
    use_of_memory: MemoryUse,
    next_ticket: u64,
    under_way: Option<(Ticket, OutputKind, usize, G::Submitted)>,
    output: Output,
    /// Tokens and output rows of the last step.
    last: (usize, usize),
}

impl<G: Gpu> GpuExecutable<G> {
    pub fn new(
        mut gpu: G,
        plan: &Plan,
        source: &dyn TensorSource,
        options: PrepareOptions,
        precision: Precision,
    ) -> Result<GpuExecutable<G>, BackendError> {
        let backend = gpu.name();
        let bound = bind(std::slice::from_ref(plan), source)?;
        crate::support::check(backend, plan, &bound, source, &options)?;
        let element = precision.element.unwrap_or_else(|| natural_element(source));
        let arena = Arena::new(plan, &options.bounds, 2);
        let kv_bytes = options
            .kv_pages
            .saturating_mul(options.page_layout.page_bytes);
        let weight_bytes: usize = bound
            .iter()
            .flat_map(|weight| &weight.tensors)
            .map(|tensor| device_bytes(&source.tensors()[*tensor]))
            .sum();
        let needed = weight_bytes
            .saturating_add(kv_bytes)
            .saturating_add(arena.bytes);
        if needed > gpu.memory_budget() {
            return Err(BackendError::Device {
                backend,
                message: format!(
                    "the model needs {needed} bytes of GPU memory ({weight_bytes} of weights, {kv_bytes} of KV cache, {} of scratch), the device has {}: give a smaller --kv-memory, or --device cpu",
                    arena.bytes,
                    gpu.memory_budget()
                ),
            });
        }
        let wrapped = |error| device_error(backend, error);
        let mut memory = Memory::new();
        let mut make = |what, bytes| {
            let place = memory.allocate(&mut gpu, what, bytes, "uchar");
            place.map(|p| p.buffer).map_err(wrapped)
        };
        let rows = options.bounds.logit_rows;
        let buffers = Buffers {
            arena: make("scratch memory", arena.bytes)?,
            pages: make("the KV cache", kv_bytes)?,
            partials: make("partial results", 1 << 20)?,
            unused: make("an unused parameter", 256)?,
            top: make("top-k", rows * TOP_K_LIMIT as usize * 8 + 16)?,
            first_tap: BufferIndex(6),
        };
        let metadata_buffer = make("the step's metadata", 1 << 16)?;
        for tap in &options.taps {
            let slice = plan.nodes.iter().flat_map(|n| &n.taps);
            let slice = slice.rev().find(|t| t.name == *tap).map(|t| t.slice);
            let buffer = plan.buffer_of(slice.expect("known: checked above"));
            let bytes = options.bounds.get(buffer.rows) * buffer.width * 4;
            make("a tap", bytes)?;
        }
        debug_assert_eq!(buffers.first_tap.0, metadata_buffer.0 + 1);
        let scratch_bytes = memory.total() - kv_bytes;
        let weights =
            Weights::load(&mut gpu, &mut memory, plan, &bound, source, element).map_err(wrapped)?;
        let vocabulary = plan.nodes.iter().find_map(|n| match &n.op {
            mettle_plan::Op::Embed(e) => Some(plan.weight_of(e.table).rows()),
            _ => None,
        });
        let use_of_memory = MemoryUse {
            weight_bytes: memory.total() - kv_bytes - scratch_bytes,
            kv_bytes,
            scratch_bytes,
        };
        let counts = Arc::new(Counts::default());
        let mut executable = GpuExecutable {
            backend,
            device: gpu.profile(),
            hazards: hazards(plan, Some(&arena)),
            plan: plan.clone(),
            arena,
            element,
            batch_invariant: precision.batch_invariant,
            memory,
            weights,
            buffers,
            metadata_buffer,
            metadata: Metadata::new(metadata_buffer),
            commands: Commands::default(),
            pipelines: Pipelines::new(counts.clone()),
            counts,
            step_bytes: StepBytes::new(plan, element_bytes(element)),
            hidden_nodes: plan.nodes_for(OutputKind::Hidden),
            taps: options.taps,
            bounds: options.bounds,
            layout: options.page_layout,
            kv_pages: options.kv_pages,
            vocabulary: vocabulary.unwrap_or(0),
            use_of_memory,
            next_ticket: 1,
            under_way: None,
            output: Output::default(),
            last: (0, 0),
            gpu,
        };
        executable.warm_up()?;
        Ok(executable)
    }

    /// Compiles the kernels of steps of many sizes now: a kernel that does not compile is known before a request comes.
    fn warm_up(&mut self) -> Result<(), BackendError> {
        let tokens = self.bounds.tokens as u32;
        let mut sizes: Vec<(u32, u32)> = Vec::new();
        for length in [1, 2, 3, 5, 9, 16, 17, 32, 33, 64, 65, 128, tokens] {
            sizes.push((length, length));
        }
        // Contexts that are split.
        sizes.extend([(1, 300), (1, 5000)]);
        for (length, context) in sizes {
            let pages = |tokens_per_page: usize| (context as usize).div_ceil(tokens_per_page);
            let held = self.layout.groups.iter().map(|g| pages(g.tokens_per_page));
            if length > tokens || held.max().unwrap_or(0) > self.kv_pages {
                continue;
            }
            let mut step = StepInput::new(self.layout.groups.len());
            let ids = (0..length).map(|_| InputToken::Host(0));
            step.push_sequence(ids, context - length);
            for (table, group) in step.tables.iter_mut().zip(&self.layout.groups) {
                let blocks = vec![BlockId(0); pages(group.tokens_per_page)];
                table.push(0, mettle_plan::ContextLen(context), &blocks);
            }
            let rows = length.min(self.bounds.logit_rows as u32);
            step.logit_rows.extend((0..rows).map(mettle_plan::TokenRow));
            self.record(&step)?;
        }
        Ok(())
    }

    fn limits(&self) -> StepLimits<'_> {
        StepLimits {
            fills_encoder: false,
            plans: 1,
            bounds: &self.bounds,
            vocabulary: self.vocabulary,
            kv_pages: self.kv_pages,
            page_layout: &self.layout,
        }
    }

    fn device_error(&self, error: GpuError) -> BackendError {
        device_error(self.backend, error)
    }

    /// Checks the step and makes its commands, with memory and pipelines for all of them.
    fn record(&mut self, step: &StepInput) -> Result<(), BackendError> {
        step.check(&self.limits())?;
        if let Some(extra) = step.extras.first() {
            let what = format!("no op here reads input buffer {}", extra.buffer.0);
            return Err(BackendError::BadStep(what));
        }
        if step
            .tokens
            .iter()
            .any(|t| matches!(t, InputToken::SampledBy(..)))
        {
            let what = "it takes a token that the device sampled";
            return Err(BackendError::BadStep(what.into()));
        }
        if !self.gives(step.output) {
            return Err(BackendError::Unsupported {
                backend: self.backend,
                what: format!("output {:?} for this plan", step.output),
            });
        }
        let tile = self.device.prefill_queries;
        self.metadata.build(&self.plan, &self.layout, step, tile);
        self.commands.clear();
        let mut recorder = Recorder {
            plan: &self.plan,
            arena: &self.arena,
            hazards: &self.hazards,
            layout: &self.layout,
            weights: &self.weights,
            metadata: &self.metadata,
            device: &self.device,
            element: self.element,
            batch_invariant: self.batch_invariant,
            buffers: self.buffers,
            tokens: step.tokens.len() as u32,
            logit_rows: step.logit_rows.len() as u32,
            nodes: match step.output {
                OutputKind::Hidden => self.hidden_nodes,
                _ => self.plan.nodes.len(),
            },
            partial_bytes: 0,
            most_partial_bytes: 0,
        };
        let tap_number = |name: &str| {
            let number = self.taps.iter().position(|t| t == name);
            number.map(|n| n as u32)
        };
        recorder.all(&mut self.commands, tap_number);
        if let (OutputKind::TopK(k), Some(logits), false) =
            (step.output, self.plan.logits, step.logit_rows.is_empty())
        {
            recorder.top_k(&mut self.commands, logits, k as u32);
        }
        let partial_bytes = recorder.most_partial_bytes;
        let wrapped = |error| device_error(self.backend, error);
        self.memory
            .grow(
                &mut self.gpu,
                "partial results",
                self.buffers.partials,
                partial_bytes,
            )
            .map_err(wrapped)?;
        self.memory
            .grow(
                &mut self.gpu,
                "the step's metadata",
                self.metadata_buffer,
                self.metadata.bytes().len(),
            )
            .map_err(wrapped)?;
        self.commands.resolve(|launch| {
            self.pipelines
                .find(&mut self.gpu, launch)
                .map_err(|error| device_error(self.backend, error))
        })?;
        Ok(())
    }

    fn finish(&mut self, submitted: G::Submitted) -> Result<Finished, BackendError> {
        let finished = self.gpu.wait(submitted);
        finished.map_err(|error| self.device_error(error))
    }
}

pub(crate) fn device_error(backend: &'static str, error: GpuError) -> BackendError {
    match error {
        GpuError::OutOfMemory { what, bytes } => BackendError::OutOfMemory { what, bytes },
        other => BackendError::Device {
            backend,
            message: other.to_string(),
        },
    }
}

/// Plays recorded commands on an encoder.
struct Player<'a, G: Gpu> {
    memory: &'a Memory<G::Buffer>,
    pipelines: &'a Pipelines<G::Pipeline>,
}

impl<G: Gpu> Player<'_, G> {
    fn play(&mut self, encoder: &mut G::Encoder<'_>, recorded: &Recorded) {
        if recorded.barrier {
            encoder.barrier();
        }
        let buffer = |place: &Place| (self.memory.get(place.buffer), place.offset);
        match &recorded.command {
            Command::Copy { from, to, bytes } => encoder.copy(buffer(from), buffer(to), *bytes),
            Command::Dispatch {
                pipeline,
                launch,
                places,
                count,
                params,
            } => {
                let arguments: [Argument<G::Buffer>; MOST_ARGUMENTS + 1] =
                    std::array::from_fn(|i| match i < *count {
                        true => {
                            let (buffer, offset) = buffer(&places[i]);
                            Argument::Buffer(buffer, offset)
                        }
                        false => Argument::Bytes(params.bytes()),
                    });
                let pipeline = self.pipelines.count(*pipeline);
                encoder.dispatch(pipeline, launch, &arguments[..count + 1]);
            }
        }
    }
}

impl<G: Gpu> Executable for GpuExecutable<G> {
    fn bounds(&self) -> &Sizes {
        &self.bounds
    }

    fn page_layout(&self) -> &PageLayout {
        &self.layout
    }

    fn memory(&self) -> MemoryUse {
        self.use_of_memory
    }

    fn gives(&self, output: OutputKind) -> bool {
        match output {
            OutputKind::Sampled => false,
            OutputKind::TopK(k) => {
                let most = (TOP_K_LIMIT as usize).min(self.vocabulary);
                self.plan.logits.is_some() && (1..=most).contains(&k)
            }
            OutputKind::Logits => self.plan.logits.is_some(),
            OutputKind::Hidden => self.plan.hidden.is_some(),
        }
    }

    fn submit(&mut self, step: &StepInput) -> Result<Ticket, BackendError> {
        if self.under_way.is_some() {
            return Err(BackendError::TooManyInFlight(1));
        }
        self.record(step)?;
        let wrapped = |error| device_error(self.backend, error);
        let mut encoder = self.gpu.encoder().map_err(wrapped)?;
        let metadata = self.memory.get(self.metadata_buffer);
        encoder.upload(metadata, 0, self.metadata.bytes());
        let mut player = Player::<G> {
            memory: &self.memory,
            pipelines: &self.pipelines,
        };
        for recorded in self.commands.list() {
            player.play(&mut encoder, recorded);
        }
        let submitted = encoder.submit().map_err(wrapped)?;
        self.counts.add_bytes(self.step_bytes.of(step));
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        self.last = (step.tokens.len(), step.logit_rows.len());
        self.under_way = Some((ticket, step.output, step.logit_rows.len(), submitted));
        Ok(ticket)
    }

    fn wait(&mut self, ticket: Ticket) -> Result<StepOutput<'_>, BackendError> {
        let Some((_, output, rows, submitted)) = self.under_way.take_if(|(t, ..)| *t == ticket)
        else {
            return Err(BackendError::UnknownTicket(ticket.0));
        };
        let finished = self.finish(submitted)?;
        let reading = crate::output::Reading {
            plan: &self.plan,
            arena: &self.arena,
            buffers: &self.buffers,
            element: self.element,
            taps: &self.taps,
            tokens: self.last.0,
            logit_rows: rows,
        };
        let read = self
            .output
            .read(&mut self.gpu, &self.memory, &finished, &reading, output);
        read.map_err(|error| device_error(self.backend, error))?;
        Ok(self.output.view(output))
    }

    fn copy_pages(&mut self, copies: &[(BlockId, BlockId)]) -> Result<(), BackendError> {
        let last = copies.iter().map(|(from, to)| from.0.max(to.0)).max();
        if let Some(last) = last.filter(|last| *last as usize >= self.kv_pages) {
            let what = format!("copy of page {last} of {}", self.kv_pages);
            return Err(BackendError::BadStep(what));
        }
        if copies.is_empty() {
            return Ok(());
        }
        let wrapped = |error| device_error(self.backend, error);
        let bytes = self.layout.page_bytes;
        let pages = self.memory.get(self.buffers.pages);
        let mut encoder = self.gpu.encoder().map_err(wrapped)?;
        for (from, to) in copies {
            // A page may be the target of one copy and the source of the next.
            encoder.barrier();
            encoder.copy(
                (pages, from.0 as usize * bytes),
                (pages, to.0 as usize * bytes),
                bytes,
            );
        }
        let submitted = encoder.submit().map_err(wrapped)?;
        self.finish(submitted).map(|_| ())
    }

    fn tap(&self, name: &str) -> Option<&[f32]> {
        let index = self.taps.iter().position(|n| n == name)?;
        Some(self.output.tap(index))
    }

    fn profile(&mut self, step: &StepInput) -> Option<Result<Vec<OpTime>, BackendError>> {
        Some(self.profiled(step))
    }

    fn counts(&self) -> Arc<Counts> {
        self.counts.clone()
    }
}

impl<G: Gpu> GpuExecutable<G> {
    fn profiled(&mut self, step: &StepInput) -> Result<Vec<OpTime>, BackendError> {
        if self.under_way.is_some() {
            return Err(BackendError::TooManyInFlight(1));
        }
        self.record(step)?;
        let backend = self.backend;
        let wrapped = |error| device_error(backend, error);
        let metadata = self.memory.get(self.metadata_buffer);
        self.gpu
            .write(metadata, 0, self.metadata.bytes())
            .map_err(wrapped)?;
        let mut times = Vec::with_capacity(self.commands.list().len());
        for recorded in self.commands.list() {
            let mut encoder = self.gpu.encoder().map_err(wrapped)?;
            let mut player = Player::<G> {
                memory: &self.memory,
                pipelines: &self.pipelines,
            };
            player.play(&mut encoder, recorded);
            let submitted = encoder.submit().map_err(wrapped)?;
            let finished = self.gpu.wait(submitted).map_err(wrapped)?;
            let kernel = match &recorded.command {
                Command::Dispatch { launch, .. } => launch.kernel.host_name.as_str(),
                Command::Copy { .. } => "copy",
            };
            times.push(OpTime {
                node: recorded.node,
                kernel,
                seconds: finished.gpu_seconds,
            });
        }
        Ok(times)
    }
}
