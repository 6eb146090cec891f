//! Owns the outside of the engine: starting it, submitting requests, reading its numbers, stopping it.

use crate::bell::Bell;
use crate::error::EngineError;
use crate::event::Event;
use crate::job::{AbortFlags, Job};
use crate::mail::Mail;
use crate::pager::{BlockState, Footprint, Pager};
use crate::request::{EncoderLimits, Limits, Request};
use crate::sampler::Sampler;
use crate::scheduler::{Budget, Scheduler, SchedulerOptions};
use crate::stats::{Histograms, SharedStats, Stats, StepRecord};
use crate::stream::RequestStream;
use crate::tape::tape;
use crate::worker::{Command, Worker};
use mettle_plan::{Counts, Executable, GroupPages, OutputKind, Retention, StepInput};
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// What is fixed when an engine starts. The bounds of the executable hold besides.
#[derive(Clone, Debug)]
pub struct EngineOptions {
    /// Token ids are below this; normally the width of the logits.
    pub vocabulary: usize,
    /// Tokens of prompt and answer together; with an encoder, of each.
    pub context: usize,
    /// Where an encoder reads the prompts (its plan is the second one): the token that the decoder starts from.
    pub decoder_start: Option<u32>,
    /// Pages of the KV pool, as the executable was prepared with; 0 for a model that has none.
    pub kv_pages: usize,
    /// Requests that may wait besides `max_sequences` ones that run, all choices of a request counting as one.
    pub max_queue: usize,
    /// Choices that run at a time; no more than a step can hold tokens and logit rows.
    pub max_sequences: usize,
    /// Tokens that a step computes at the most; longer prompts are computed in chunks. Without a KV cache there are no
    /// chunks, and the context must fit.
    pub max_batched_tokens: usize,
    /// Requests start from what earlier ones left in the KV cache; without it nothing is looked up or remembered.
    pub prefix_cache: bool,
    /// Where every row of a step only needs its largest logit (greedy, nothing else asked for), have the device find it
    /// instead of reading all logits. Tokens stay the same; only that a logit is NaN may go unnoticed. For devices from
    /// which reading is dear; on the host the engine's own search is the faster one.
    pub device_finds_largest: bool,
    /// The longest that a constraint may take for one token.
    pub constraint_time: Duration,
}

impl EngineOptions {
    /// One request at a time, in chunks of 512 tokens, with the prefix cache.
    pub fn new(vocabulary: usize, context: usize, kv_pages: usize) -> EngineOptions {
        EngineOptions {
            vocabulary,
            context,
            decoder_start: None,
            kv_pages,
            max_queue: 64,
            max_sequences: 1,
            max_batched_tokens: 512,
            prefix_cache: true,
            device_finds_largest: false,
            constraint_time: Duration::from_secs(5),
        }
    }
}

/// The engine's worker is reached by handles only; this names where it starts.
#[derive(Debug)]
pub struct Engine;

impl Engine {
    /// Starts the worker thread, which owns the executable from here on.
    pub fn start(
        executable: Box<dyn Executable>,
        options: EngineOptions,
    ) -> Result<EngineHandle, EngineError> {
        for (name, value) in [
            ("vocabulary", options.vocabulary),
            ("context", options.context),
            ("max_sequences", options.max_sequences),
            ("max_batched_tokens", options.max_batched_tokens),
        ] {
            if value == 0 {
                let range = "above 0".to_owned();
                return Err(EngineError::BadOption { name, value, range });
            }
        }
        let gives_logits = executable.gives(OutputKind::Logits);
        let gives_hidden = executable.gives(OutputKind::Hidden);
        if !gives_logits && !gives_hidden {
            return Err(EngineError::NoLogits);
        }
        let bounds = executable.bounds();
        let budget = Budget::new(bounds, options.max_sequences, options.max_batched_tokens);
        assert!(
            budget.tokens > 0 && budget.sequences > 0 && budget.logit_rows > 0,
            "an executable with the bounds {bounds:?} can run no step"
        );
        let layout = executable.page_layout().clone();
        let counts = executable.counts();
        // Nothing is kept from step to step: all of a sequence is computed in one.
        let in_one_step = layout.groups.is_empty();
        if in_one_step && budget.tokens.min(budget.logit_rows) < options.context {
            return Err(EngineError::BadOption {
                name: "max_batched_tokens",
                value: budget.tokens.min(budget.logit_rows),
                range: format!(
                    "at least the context of {}: this model computes a text in one step",
                    options.context
                ),
            });
        }
        if !in_one_step && options.kv_pages == 0 {
            return Err(EngineError::BadOption {
                name: "kv_pages",
                value: 0,
                range: "above 0".to_owned(),
            });
        }
        let is_encoder = |g: &GroupPages| g.retention == Retention::Encoder;
        let encoder = match layout.groups.iter().position(is_encoder) {
            None => None,
            Some(group) => {
                let start = options.decoder_start;
                Some(EncoderLimits {
                    tokens: budget.tokens.min(options.context),
                    start: start.ok_or(EngineError::NoStart { group })?,
                })
            }
        };
        // A prompt that an encoder reads has no hidden states of the decoder.
        let gives_hidden = gives_hidden && encoder.is_none();
        let groups = layout.groups.len();
        let footprint = Footprint::new(layout.clone(), options.kv_pages, budget.tokens);
        let stats = Arc::new(SharedStats::new(options.kv_pages));
        let alive = Arc::new(AtomicBool::new(true));
        let live_limit = budget.sequences + options.max_queue;
        // Room for every live request and a call to stop: the submitter never waits.
        let (sender, commands) = sync_channel(live_limit + 1);
        let vocabulary = options.vocabulary;
        let scheduler = SchedulerOptions {
            budget,
            footprint: footprint.clone(),
            vocabulary,
            in_one_step,
            takes_largest: options.device_finds_largest && executable.gives(OutputKind::TopK(1)),
            constraint_time: options.constraint_time,
        };
        let worker = Worker {
            commands,
            executable,
            scheduler: Scheduler::new(scheduler, stats.clone()),
            // What a decoder computes depends on its encoder's input too, which prefixes do not hold.
            pager: Pager::new(
                layout,
                options.kv_pages,
                options.prefix_cache && !in_one_step && encoder.is_none(),
            ),
            sampler: Sampler::new(vocabulary),
            stats: stats.clone(),
            alive: alive.clone(),
            step: roomy_step(groups, &budget, options.kv_pages),
            copies: Vec::with_capacity(budget.sequences),
        };
        let thread = std::thread::Builder::new()
            .name("mettle-engine".to_owned())
            .spawn(move || worker.run())
            .expect("the system refused a thread");
        Ok(EngineHandle(Arc::new(Shared {
            limits: Limits {
                vocabulary,
                context: options.context,
                encoder,
                footprint,
                gives_logits,
                gives_hidden,
            },
            counts,
            live_limit,
            sender,
            stats,
            alive,
            stopping: AtomicBool::new(false),
            thread: Mutex::new(Some(thread)),
            bell: Bell::start(),
        })))
    }
}

#[derive(Debug)]
struct Shared {
    limits: Limits,
    /// The executable's own.
    counts: Arc<Counts>,
    live_limit: usize,
    sender: SyncSender<Command>,
    stats: Arc<SharedStats>,
    alive: Arc<AtomicBool>,
    stopping: AtomicBool,
    thread: Mutex<Option<JoinHandle<()>>>,
    bell: Arc<Bell>,
}

/// The engine as everybody else sees it; clones are the same engine. When the last one is dropped, the worker ends after
/// the requests that are still read.
#[derive(Clone, Debug)]
pub struct EngineHandle(Arc<Shared>);

impl EngineHandle {
    /// Queues a request. Never waits: a full queue, a stopping engine or a request that can never be answered is refused
    /// at once.
    pub fn submit(&self, request: Request) -> Result<RequestStream, EngineError> {
        let shared = &*self.0;
        request.validate(&shared.limits)?;
        if shared.stopping.load(Ordering::SeqCst) {
            return Err(EngineError::ShuttingDown);
        }
        if !self.is_alive() {
            return Err(EngineError::Dead);
        }
        let (events, reader) = tape(
            Job::events_at_most(&request),
            request.logprobs,
            &shared.bell,
        )?;
        let (live, limit) = (&shared.stats.live, shared.live_limit);
        let more = |n: usize| (n < limit).then_some(n + 1);
        live.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more)
            .map_err(|live| EngineError::QueueFull { live, limit })?;
        let abort = Arc::new(AbortFlags::new(request.n));
        let start = shared.limits.encoder.map(|encoder| encoder.start);
        let stream = RequestStream::new(
            reader,
            abort.clone(),
            request.prompt.len(),
            start.is_some(),
            request.n,
        );
        let seed = request.sampling.seed.unwrap_or_else(random_seed);
        let job = Job::new(
            request,
            seed,
            start,
            shared.limits.vocabulary,
            events,
            abort,
        );
        let mail = Mail::new(Arc::new(job), &shared.stats);
        if shared.sender.try_send(Command::Submit(mail)).is_err() {
            return Err(match shared.stopping.load(Ordering::SeqCst) {
                true => EngineError::ShuttingDown,
                false => EngineError::Dead,
            });
        }
        Ok(stream)
    }

    /// What requests are checked against.
    pub fn limits(&self) -> &Limits {
        &self.0.limits
    }

    /// The engine's numbers; cheap.
    pub fn stats(&self) -> Stats {
        self.0.stats.snapshot()
    }

    /// How long things took and how large they were.
    pub fn histograms(&self) -> Histograms {
        self.0.stats.histograms()
    }

    /// The last few hundred steps, oldest first.
    pub fn recent_steps(&self) -> Vec<StepRecord> {
        self.0.stats.recent_steps()
    }

    /// The state of every page of the KV pool: as it was after the first step that followed the previous call, or as it
    /// is, where the engine is idle.
    pub fn page_map(&self) -> Vec<BlockState> {
        self.0.stats.page_map.read()
    }

    /// How often each kernel ran and how many bytes were moved; live, and never in the worker's way.
    pub fn counts(&self) -> &Counts {
        &self.0.counts
    }

    /// False after an internal error or a shutdown.
    pub fn is_alive(&self) -> bool {
        self.0.alive.load(Ordering::SeqCst)
    }

    /// Ends all requests with `Abort`, frees the executable and waits for the worker to end. To drain instead, stop
    /// submitting and wait until `stats` shows nothing live.
    pub fn shutdown(&self) {
        self.0.stopping.store(true, Ordering::SeqCst);
        // An error means that the worker has ended already.
        let _ = self.0.sender.send(Command::Shutdown);
        let thread = self.0.thread.lock().expect("no holder panics").take();
        if let Some(thread) = thread {
            thread.join().expect("the worker catches its panics");
        }
    }
}

/// A step that allocates nothing when it is filled, unless sequences share so many pages that their tables together are
/// longer than the pool.
fn roomy_step(groups: usize, budget: &Budget, kv_pages: usize) -> StepInput {
    let mut step = StepInput::new(groups);
    step.tokens.reserve_exact(budget.tokens);
    step.positions.reserve_exact(budget.tokens);
    step.query_start.reserve_exact(budget.sequences + 1);
    step.context_lens.reserve_exact(budget.sequences);
    step.logit_rows.reserve_exact(budget.logit_rows);
    for tables in &mut step.tables {
        tables.starts.reserve_exact(budget.sequences + 1);
        tables.blocks.reserve_exact(kv_pages);
        tables.first_page.reserve_exact(budget.sequences);
        tables.lens.reserve_exact(budget.sequences);
    }
    step
}

/// A seed for requests that name none; the standard library's hasher keys are random for each instance.
fn random_seed() -> u64 {
    RandomState::new().hash_one(Instant::now())
}

const _: fn() = || {
    fn shareable<T: Clone + Send + Sync>() {}
    shareable::<EngineHandle>();
    fn sendable<T: Send>() {}
    sendable::<Event>();
    sendable::<RequestStream>();
};
