//! Owns the prepared plans of a model on the CPU: their scratch memory, KV pool and threads.

use crate::assignments::Assignments;
use crate::expert_weights::of_experts;
use crate::experts::Experts;
use crate::isa::Isa;
use crate::joins::LINGERS;
use crate::kernels::activations::QuantizedRows;
use crate::kernels::attention::{PARTITION, Scratch, part_width};
use crate::kernels::linear::Room;
use crate::kv::KvPool;
use crate::memory::{AlignedBytes, PerThread, Rows};
use crate::pool::Pool;
use crate::prepared::{Place, PreparedPlan};
use crate::program::{Call, Kernel, check_taps, translate};
use crate::row_blocks::RowBlocks;
use crate::run::Run;
use crate::step::StepState;
use crate::top_k::top_k;
use crate::weights::Weights;
use mettle_plan::{
    Arena, BackendError, BlockId, BoundWeight, Counts, Dim, Executable, GroupPages, MemoryUse,
    OutputKind, PageLayout, Plan, PrepareOptions, Sizes, StepInput, StepLimits, StepOutput, Ticket,
    bind,
};
use mettle_tensor::TensorSource;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// Rows up to which every thread quantizes the input for itself: cheaper than meeting at a barrier.
pub const OWN_ROWS: usize = 4;

pub struct CpuExecutable {
    pub(crate) isa: Isa,
    pub(crate) plans: Vec<PreparedPlan>,
    pub(crate) kv: KvPool,
    pub(crate) row_blocks: Option<RowBlocks>,
    pub(crate) quantized: QuantizedRows,
    /// The inputs of the chosen experts, a row for each pair of token and expert.
    pub(crate) pair_rows: QuantizedRows,
    /// Written by one thread, in a phase of its own.
    pub(crate) assignments: PerThread<Assignments>,
    assignment_bytes: usize,
    pub(crate) threads: Vec<PerThread<ThreadScratch>>,
    pub(crate) parts: Parts,
    /// What the threads' own memory takes together.
    own_scratch_bytes: usize,
    pub(crate) state: StepState,
    pub(crate) taps: Vec<(String, Mutex<Vec<f32>>)>,
    /// The taps' values after the last step.
    tapped: Vec<Vec<f32>>,
    pool: Option<Pool>,
    /// Keeps the memory that the calls point into.
    arena: AlignedBytes,
    bounds: Sizes,
    layout: PageLayout,
    hidden: Option<Rows>,
    logits: Option<Rows>,
    counts: Arc<Counts>,
    next_ticket: u64,
    done: Option<(Ticket, OutputKind)>,
    top: (Vec<u32>, Vec<f32>),
}

/// What one thread works in.
pub struct ThreadScratch {
    pub attention: Scratch,
    pub quantized: QuantizedRows,
    pub linear: Room,
    /// Inputs that the thread made for itself: `OWN_ROWS` of them.
    pub inputs: Vec<f32>,
    /// Of a token's experts.
    pub scores: Vec<f32>,
}

/// Where threads that share a context leave their parts of it.
pub struct Parts {
    data: AlignedBytes,
    /// Tiles times heads that can be shared at a time.
    pub items: usize,
    partitions: usize,
    /// Values from one part to the next.
    pub stride: usize,
    /// How many parts of each item are there.
    there: Vec<AtomicUsize>,
}

impl Parts {
    fn new(
        items: usize,
        context: usize,
        rows: usize,
        head_dim: usize,
    ) -> Result<Parts, BackendError> {
        // A window may reach from the end of one partition into the start of another.
        let partitions = context.div_ceil(PARTITION) + 1;
        let stride = rows * part_width(head_dim);
        let bytes = items.saturating_mul(partitions).saturating_mul(stride * 4);
        Ok(Parts {
            data: AlignedBytes::zeroed("parts of attention", bytes)?,
            items,
            partitions,
            stride,
            there: (0..items).map(|_| AtomicUsize::new(0)).collect(),
        })
    }

    fn bytes(&self) -> usize {
        self.data.len()
    }

    /// Says that one more of an item's `count` parts is there: true for the one who brings the last, who sees them all.
    pub fn is_last(&self, item: usize, count: usize) -> bool {
        let is_last = self.there[item].fetch_add(1, Ordering::AcqRel) + 1 == count;
        if is_last {
            // Nobody counts this item again before the phase is over.
            self.there[item].store(0, Ordering::Relaxed);
        }
        is_last
    }

    /// A step that was broken off may have left some.
    fn forget(&mut self) {
        self.there.iter_mut().for_each(|there| *there.get_mut() = 0);
    }

    pub fn at(&self, item: usize, partition: usize) -> *mut f32 {
        assert!(item < self.items && partition < self.partitions);
        // SAFETY: asserted to be inside.
        unsafe {
            let part = (item * self.partitions + partition) * self.stride;
            self.data.base().cast::<f32>().add(part)
        }
    }
}

impl CpuExecutable {
    pub fn new(
        isa: Isa,
        threads: usize,
        plans: &[Plan],
        source: &dyn TensorSource,
        options: PrepareOptions,
    ) -> Result<CpuExecutable, BackendError> {
        let bound = bind(plans, source)?;
        let bounds = options.bounds;
        let groups = &plans[0].kv_groups;
        assert!(
            plans.iter().all(|plan| plan.kv_groups == *groups),
            "plans of one model declare the same caches"
        );
        let arena = |plan| Arena::lingering(plan, &bounds, size_of::<f32>(), LINGERS);
        let arenas: Vec<Arena> = plans.iter().map(arena).collect();
        // Steps do not overlap: all plans work in the same memory.
        let scratch = arenas.iter().map(|arena| arena.bytes).max();
        let memory = AlignedBytes::zeroed("scratch memory", scratch.unwrap_or(0))?;
        // Refuses what cannot run before gigabytes are read.
        check_uncut(plans, &bound)?;
        let calls = plans
            .iter()
            .zip(&arenas)
            .map(|(plan, arena)| translate(plan, arena, &memory, &options.taps))
            .collect::<Result<Vec<_>, _>>()?;
        check_taps(calls.iter().flatten(), &options.taps)?;
        let all_calls = || calls.iter().flatten();
        let row_blocks = RowBlocks::for_calls(all_calls(), &bounds)?;
        let columns = largest_input(all_calls());
        let (experts, pair_columns) = largest_mixture(all_calls());
        let (head_dim, sharing) = largest_attention(all_calls());
        let kv = KvPool::new(groups, &options.page_layout, options.kv_pages)?;
        let weights = Weights::load(plans, &bound, source, threads)?;
        let with_sums = weights.iter().any(Weights::take_sums);
        let counts = Arc::new(Counts::default());
        let mut prepared = Vec::new();
        for (((plan, arena), calls), weights) in plans.iter().zip(&arenas).zip(calls).zip(weights) {
            let place = Place {
                arena,
                memory: &memory,
                bounds: &bounds,
            };
            prepared.push(PreparedPlan::new(
                plan, place, calls, weights, isa, &counts,
            )?);
        }
        let pool = Pool::new(threads).map_err(|error| BackendError::Unsupported {
            backend: "cpu",
            what: format!("{threads} threads: {error}"),
        })?;
        let pairs = if experts == 0 {
            0
        } else {
            bounds.expert_assignments
        };
        let assignments = Assignments::new(pairs, experts);
        // With more, whole items are dealt out evenly enough.
        let shared_items = 8 * threads;
        // No sequence is longer than the pool.
        let tokens_per_page = |group: &GroupPages| group.tokens_per_page;
        let page = options.page_layout.groups.iter().map(tokens_per_page).max();
        let context = options.kv_pages.saturating_mul(page.unwrap_or(0));
        let parts = Parts::new(shared_items, context, sharing, head_dim)?;
        let threads = (0..threads)
            .map(|_| {
                Ok(ThreadScratch {
                    attention: Scratch::new(head_dim, sharing),
                    quantized: QuantizedRows::new(OWN_ROWS, columns, with_sums)?,
                    linear: Room::new(columns.max(pair_columns))?,
                    inputs: vec![0.0; OWN_ROWS * columns],
                    scores: vec![0.0; experts],
                })
            })
            .collect::<Result<Vec<_>, BackendError>>()?;
        let own = |t: &ThreadScratch| {
            let kernels = t.quantized.bytes() + t.linear.bytes() + t.attention.bytes();
            kernels + (t.inputs.len() + t.scores.len()) * size_of::<f32>()
        };
        let own_scratch_bytes = threads.iter().map(own).sum();
        let threads = threads.into_iter().map(PerThread::new).collect();
        Ok(CpuExecutable {
            isa,
            quantized: QuantizedRows::for_many(isa, bounds.tokens, columns, with_sums)?,
            pair_rows: QuantizedRows::for_many(isa, pairs, pair_columns, with_sums)?,
            assignment_bytes: assignments.bytes(),
            assignments: PerThread::new(assignments),
            state: StepState::new(&bounds, groups.len()),
            tapped: vec![Vec::new(); options.taps.len()],
            taps: options
                .taps
                .into_iter()
                .map(|name| (name, Mutex::new(Vec::new())))
                .collect(),
            hidden: prepared.iter().find_map(|plan| plan.hidden),
            logits: prepared.iter().find_map(|plan| plan.logits),
            counts,
            plans: prepared,
            kv,
            row_blocks,
            threads,
            parts,
            own_scratch_bytes,
            pool: Some(pool),
            arena: memory,
            bounds,
            layout: options.page_layout,
            next_ticket: 1,
            done: None,
            top: (Vec::new(), Vec::new()),
        })
    }

    /// Output rows, contiguous: outputs are whole buffers.
    fn values(&self, rows: Rows) -> &[f32] {
        let count = self.state.logit_rows.len();
        match count {
            0 => &[],
            // SAFETY: the last step is over, no thread writes; the rows of an output buffer lie side by side.
            _ => unsafe { std::slice::from_raw_parts(rows.row(0).as_ptr(), count * rows.width) },
        }
    }
}

/// The CPU packs whole tensors, experts' apart.
fn check_uncut(plans: &[Plan], bound: &[BoundWeight]) -> Result<(), BackendError> {
    for (number, plan) in plans.iter().enumerate() {
        let of_experts = of_experts(plan);
        let mut own = bound.iter().filter(|b| b.plan == number);
        let is_cut =
            |b: &&BoundWeight| !plan.weight_of(b.id).is_uncut() && !of_experts.contains_key(&b.id);
        if let Some(weight) = own.find(is_cut) {
            let name = plan.weight_of(weight.id).name();
            return Err(BackendError::Unsupported {
                backend: "cpu",
                what: format!("weights that are parts of tensors ({name})"),
            });
        }
    }
    Ok(())
}

fn largest_input<'a>(calls: impl Iterator<Item = &'a Call>) -> usize {
    let widths = calls.map(|c| match &c.kernel {
        Kernel::Linear { x, .. } => x.width.next_multiple_of(crate::pack::BLOCK),
        _ => 0,
    });
    widths.max().unwrap_or(0)
}

/// Experts, and columns of their inputs in whole blocks.
fn largest_mixture<'a>(calls: impl Iterator<Item = &'a Call>) -> (usize, usize) {
    let shapes = calls.filter_map(|c| match &c.kernel {
        Kernel::MoeExperts(Experts {
            x,
            width,
            expert_count,
            ..
        }) => Some((*expert_count, x.width.max(*width))),
        Kernel::MoeRoute { logits, .. } => Some((logits.width, 0)),
        _ => None,
    });
    let (experts, columns) = shapes.fold((0, 0), |a, b| (a.0.max(b.0), a.1.max(b.1)));
    (experts, columns.next_multiple_of(crate::pack::BLOCK))
}

fn largest_attention<'a>(calls: impl Iterator<Item = &'a Call>) -> (usize, usize) {
    let shapes = calls.filter_map(|c| match &c.kernel {
        Kernel::Attention {
            q,
            kv_heads,
            head_dim,
            ..
        } => Some((*head_dim, q.width / head_dim / kv_heads)),
        _ => None,
    });
    shapes.fold((0, 0), |a, b| (a.0.max(b.0), a.1.max(b.1)))
}

impl Executable for CpuExecutable {
    fn bounds(&self) -> &Sizes {
        &self.bounds
    }

    fn page_layout(&self) -> &PageLayout {
        &self.layout
    }

    fn memory(&self) -> MemoryUse {
        let tables: usize = self.plans.iter().map(PreparedPlan::table_bytes).sum();
        MemoryUse {
            weight_bytes: Weights::bytes(self.plans.iter().map(|plan| &plan.weights)),
            kv_bytes: self.kv.bytes(),
            scratch_bytes: self.arena.len()
                + self.quantized.bytes()
                + self.pair_rows.bytes()
                + self.assignment_bytes
                + self.own_scratch_bytes
                + self.parts.bytes()
                + self.row_blocks.as_ref().map_or(0, RowBlocks::bytes)
                + tables,
        }
    }

    fn gives(&self, output: OutputKind) -> bool {
        match output {
            OutputKind::Sampled => false,
            OutputKind::TopK(_) | OutputKind::Logits => self.logits.is_some(),
            OutputKind::Hidden => self.hidden.is_some(),
        }
    }

    fn submit(&mut self, step: &StepInput) -> Result<Ticket, BackendError> {
        if !self.gives(step.output) {
            return Err(BackendError::Unsupported {
                backend: "cpu",
                what: format!("output {:?} for this plan", step.output),
            });
        }
        if self.done.is_some() {
            return Err(BackendError::TooManyInFlight(1));
        }
        let plan = self.plans.get(step.plan);
        let limits = StepLimits {
            plans: self.plans.len(),
            fills_encoder: plan.is_some_and(|plan| plan.fills_encoder),
            bounds: &self.bounds,
            vocabulary: plan.map_or(0, |plan| plan.vocabulary),
            kv_pages: self.kv.pages(),
            page_layout: &self.layout,
        };
        self.state.prepare(step, &limits, &self.kv)?;
        let plan = &self.plans[step.plan];
        if !step.logit_rows.is_empty() && !plan.gives(step.output) {
            return Err(BackendError::BadStep(format!(
                "plan {} has no rows to give",
                step.plan
            )));
        }
        let beyond = |position: &&u32| **position as usize >= plan.positions;
        if let Some(position) = step.positions.iter().find(beyond) {
            return Err(BackendError::BadStep(format!(
                "position {position} of {}",
                plan.positions
            )));
        }
        if let Some(blocks) = self.row_blocks.as_mut().filter(|_| plan.reads_rows) {
            blocks.prepare(step)?;
        }
        if !step.tokens.is_empty() {
            let mut pool = self
                .pool
                .take()
                .expect("the pool is put back after each step");
            self.parts.forget();
            let run = Run::new(self, step, pool.threads());
            pool.run(&|thread, phases| run.all_calls(thread, phases));
            self.pool = Some(pool);
            let bytes = self.plans[step.plan].step_bytes.of(step);
            self.counts.add_bytes(bytes);
            for ((_, kept), tapped) in self.taps.iter_mut().zip(&mut self.tapped) {
                let kept = kept.get_mut().unwrap_or_else(|p| p.into_inner());
                std::mem::swap(kept, tapped);
            }
        }
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        self.done = Some((ticket, step.output));
        Ok(ticket)
    }

    fn wait(&mut self, ticket: Ticket) -> Result<StepOutput<'_>, BackendError> {
        let Some((_, output)) = self.done.take_if(|(done, _)| *done == ticket) else {
            return Err(BackendError::UnknownTicket(ticket.0));
        };
        let absent = "the output was checked at submit";
        Ok(match output {
            OutputKind::Sampled => unreachable!("{absent}"),
            OutputKind::Logits => {
                let rows = self.logits.expect(absent);
                StepOutput::Logits {
                    width: rows.width,
                    values: self.values(rows),
                }
            }
            OutputKind::Hidden => {
                let rows = self.hidden.expect(absent);
                StepOutput::Hidden {
                    width: rows.width,
                    values: self.values(rows),
                }
            }
            OutputKind::TopK(k) => {
                let rows = self.logits.expect(absent);
                let mut top = std::mem::take(&mut self.top);
                top_k(self.values(rows), rows.width, k, &mut top);
                self.top = top;
                StepOutput::TopK {
                    k: k.min(rows.width),
                    ids: &self.top.0,
                    logits: &self.top.1,
                }
            }
        })
    }

    fn copy_pages(&mut self, copies: &[(BlockId, BlockId)]) -> Result<(), BackendError> {
        for (from, to) in copies {
            let last = from.0.max(to.0) as usize;
            if last >= self.kv.pages() {
                return Err(BackendError::BadStep(format!(
                    "copy of page {last} of {}",
                    self.kv.pages()
                )));
            }
            self.kv.copy_page(*from, *to);
        }
        Ok(())
    }

    fn tap(&self, name: &str) -> Option<&[f32]> {
        let index = self.taps.iter().position(|(n, _)| n == name)?;
        Some(&self.tapped[index])
    }

    fn counts(&self) -> Arc<Counts> {
        self.counts.clone()
    }
}

/// Rows of a dimension in the step under way.
pub fn rows_of(dim: Dim, state: &StepState) -> usize {
    match dim {
        Dim::Tokens => state.token_ids.len(),
        Dim::LogitRows => state.logit_rows.len(),
        _ => 0,
    }
}
