//! Owns the proof that scheduler and pager together lose no request and no page: random arrivals, aborts, deadlines and
//! steps on tiny pools, step by step and without threads, against what the mock says each choice must answer.

mod choices;
mod vectors;

use super::planning::pass_of;
use super::*;
use crate::bell::Bell;
use crate::event::Event;
use crate::job::AbortFlags;
use crate::mock::{MOCK_HIDDEN, MockExecutable};
use crate::pooling::Pooling;
use crate::request::{EncoderLimits, Limits, Request};
use crate::sampler::philox::choice_seed;
use crate::sampler::{Draw, Penalties, Sampler, SamplingParams};
use crate::tape::{TapeReader, tape};
use mettle_plan::{Executable, GroupPages, OutputKind, PageLayout, Retention};
use proptest::prelude::*;

const VOCABULARY: usize = 23;
/// Of `operations`: four runs of eleven.
const LONGEST_PROMPT: usize = 44;

fn layouts() -> Vec<PageLayout> {
    let group = |retention, tokens_per_page| GroupPages {
        retention,
        tokens_per_page,
        pages_per_state: 0,
    };
    let state = GroupPages {
        pages_per_state: 1,
        ..group(Retention::State, 0)
    };
    let full = group(Retention::Full, 4);
    let layout = |groups: &[GroupPages]| PageLayout {
        page_bytes: 1,
        groups: groups.to_vec(),
    };
    vec![
        layout(&[full]),
        layout(&[full, group(Retention::Window(7), 8)]),
        layout(&[group(Retention::Window(5), 2)]),
        layout(&[full, state]),
        // An encoder and a decoder.
        layout(&[full, group(Retention::Encoder, 4)]),
        layout(&[group(Retention::Encoder, 8), group(Retention::Window(5), 2)]),
        // An encoder alone.
        layout(&[]),
    ]
}

/// What decoders of models with an encoder start from.
const START: u32 = 3;

fn has_encoder(layout: &PageLayout) -> bool {
    let is_encoder = |group: &GroupPages| group.retention == Retention::Encoder;
    layout.groups.iter().any(is_encoder)
}

/// What one draw after `tokens` must give, without engine or pages.
fn expected(layout: &PageLayout, request: &Request, choice: usize) -> Vec<u32> {
    let (params, prompt) = (&request.sampling, &request.prompt);
    let given = match has_encoder(layout) {
        true => vec![START],
        false => prompt.clone(),
    };
    let mut sampler = Sampler::new(VOCABULARY);
    let mut penalties = Penalties::new(params, &given, request.max_tokens, VOCABULARY);
    let mut tokens = given.clone();
    for _ in 0..request.max_tokens {
        let logits = MockExecutable::logits_of(VOCABULARY, layout, prompt, &tokens);
        let draw = Draw {
            params,
            seed: choice_seed(params.seed.unwrap_or(0), choice),
            position: tokens.len() as u64,
            penalties: penalties.as_ref(),
            banned: [&[], &[]],
            masks: [None, None],
            output: &tokens[given.len()..],
            logprobs: None,
        };
        let (id, _) = sampler.sample(&logits, &draw).unwrap();
        tokens.push(id);
        if let Some(penalties) = &mut penalties {
            penalties.add(id);
        }
    }
    tokens.split_off(given.len())
}

/// The vector of a prompt, without engine or pages.
fn expected_vector(layout: &PageLayout, prompt: &[u32], pooling: Pooling) -> Vec<f32> {
    let hidden = |length: usize| match layout.groups.is_empty() {
        true => MockExecutable::encoded(prompt, length - 1),
        false => MockExecutable::hidden_after(layout, &prompt[..length]),
    };
    match pooling {
        Pooling::Last => return hidden(prompt.len()),
        Pooling::First => return hidden(1),
        Pooling::Mean => {}
    }
    let rows: Vec<Vec<f32>> = (1..=prompt.len()).map(hidden).collect();
    let sum = |column: usize| rows.iter().map(|row| f64::from(row[column])).sum::<f64>();
    let mean = |column: usize| (sum(column) / prompt.len() as f64) as f32;
    (0..MOCK_HIDDEN).map(mean).collect()
}

/// A request as its caller sees it.
struct Caller {
    request: Request,
    events: Option<TapeReader>,
    abort: Arc<AbortFlags>,
    tokens: Vec<Vec<u32>>,
    ends: Vec<Option<FinishReason>>,
    scored: usize,
    pooled: Option<Vec<f32>>,
}

struct World {
    scheduler: Scheduler,
    pager: Pager,
    mock: MockExecutable,
    sampler: Sampler,
    step: StepInput,
    copies: Vec<(BlockId, BlockId)>,
    stats: Arc<SharedStats>,
    layout: PageLayout,
    limits: Limits,
    callers: Vec<Caller>,
    /// Arrival numbers and token counts of the last step.
    planned: Vec<(u64, usize)>,
    /// Tokens of all steps.
    computed: usize,
    /// The first running choice, where the last step was not its kind's turn.
    passed_over: Option<Key>,
}

#[derive(Clone, Debug)]
struct Shape {
    layout: usize,
    pages: usize,
    sequences: usize,
    chunk: usize,
    rows: usize,
    prefix_cache: bool,
    takes_largest: bool,
}

fn shapes() -> impl Strategy<Value = Shape> {
    (
        0..layouts().len(),
        4..25usize,
        1..7usize,
        1..30usize,
        1..9usize,
        proptest::bool::weighted(0.8),
        any::<bool>(),
    )
        .prop_map(
            |(layout, pages, sequences, chunk, rows, prefix_cache, takes_largest)| Shape {
                layout,
                pages,
                sequences,
                chunk,
                rows,
                prefix_cache,
                takes_largest,
            },
        )
}

#[derive(Clone, Debug)]
enum Operation {
    Arrive(Arrival),
    Abort { which: usize, choice: Option<usize> },
    Drop(usize),
    Step(usize),
}

#[derive(Clone, Debug)]
struct Arrival {
    prompt: Vec<u32>,
    max_tokens: usize,
    n: usize,
    priority: i32,
    is_late: bool,
    scores_prompt: bool,
    is_salted: bool,
    seed: Option<u64>,
    pooling: Option<Pooling>,
}

fn operations() -> impl Strategy<Value = Vec<Operation>> {
    // Prompts of few distinct tokens in runs: many share prefixes of several pages.
    let run = (0..2u32, 1..12usize).prop_map(|(token, length)| vec![token; length]);
    let prompt = proptest::collection::vec(run, 1..5).prop_map(|runs| runs.concat());
    let rarely = || proptest::bool::weighted(0.15);
    let arrival = (
        prompt,
        1..20usize,
        prop_oneof![3 => Just(1usize), 1 => 2..6usize],
        -1..2i32,
        proptest::bool::weighted(0.05),
        (rarely(), rarely()),
        proptest::option::of(0..3u64),
        proptest::option::weighted(
            0.2,
            prop_oneof![
                Just(Pooling::Last),
                Just(Pooling::Mean),
                Just(Pooling::First)
            ],
        ),
    )
        .prop_map(
            |(
                prompt,
                max_tokens,
                n,
                priority,
                is_late,
                (scores_prompt, is_salted),
                seed,
                pooling,
            )| {
                Arrival {
                    pooling,
                    prompt,
                    max_tokens,
                    n,
                    priority,
                    is_late,
                    scores_prompt,
                    is_salted,
                    seed,
                }
            },
        );
    let operation = prop_oneof![
        4 => arrival.prop_map(Operation::Arrive),
        1 => (any::<usize>(), proptest::option::of(0..6usize))
            .prop_map(|(which, choice)| Operation::Abort { which, choice }),
        1 => any::<usize>().prop_map(Operation::Drop),
        6 => (1..8usize).prop_map(Operation::Step),
    ];
    proptest::collection::vec(operation, 1..40)
}

impl World {
    fn new(shape: &Shape) -> World {
        let layout = layouts().swap_remove(shape.layout);
        let in_one_step = layout.groups.is_empty();
        // Every prompt here fits a step of an encoder.
        let (chunk, rows) = match in_one_step {
            true => (LONGEST_PROMPT + shape.chunk, LONGEST_PROMPT + shape.chunk),
            false => (shape.chunk, shape.rows),
        };
        let bounds = Sizes {
            logit_rows: rows,
            ..Sizes::bounds(chunk, shape.sequences)
        };
        let budget = Budget::new(&bounds, shape.sequences, chunk);
        let footprint = Footprint::new(layout.clone(), shape.pages, budget.tokens);
        let encoder = has_encoder(&layout).then_some(EncoderLimits {
            tokens: budget.tokens,
            start: START,
        });
        let prefix_cache = shape.prefix_cache && encoder.is_none();
        let stats = Arc::new(SharedStats::new(shape.pages));
        let options = SchedulerOptions {
            budget,
            footprint: footprint.clone(),
            vocabulary: VOCABULARY,
            in_one_step,
            takes_largest: shape.takes_largest,
            constraint_time: Duration::from_secs(5),
        };
        World {
            scheduler: Scheduler::new(options, stats.clone()),
            pager: Pager::new(layout.clone(), shape.pages, prefix_cache),
            mock: MockExecutable::new(VOCABULARY, layout.clone(), shape.pages, bounds).with_top_k(),
            sampler: Sampler::new(VOCABULARY),
            step: StepInput::new(layout.groups.len()),
            copies: Vec::new(),
            stats,
            limits: Limits {
                vocabulary: VOCABULARY,
                context: if in_one_step { LONGEST_PROMPT } else { 200 },
                encoder,
                footprint,
                gives_logits: !in_one_step,
                gives_hidden: encoder.is_none(),
            },
            layout,
            callers: Vec::new(),
            planned: Vec::new(),
            computed: 0,
            passed_over: None,
        }
    }

    fn run(&mut self, operation: Operation) {
        match operation {
            Operation::Arrive(arrival) => self.arrive(arrival),
            Operation::Abort { which, choice } if !self.callers.is_empty() => {
                let caller = &self.callers[which % self.callers.len()];
                match choice {
                    Some(choice) => caller.abort.abort(choice % caller.request.n),
                    None => caller.abort.abort_all(),
                }
            }
            Operation::Drop(which) if !self.callers.is_empty() => {
                let which = which % self.callers.len();
                self.callers[which].events = None;
            }
            Operation::Step(count) => (0..count).for_each(|_| self.step()),
            _ => {}
        }
    }

    fn arrive(&mut self, arrival: Arrival) {
        let sampling = match arrival.seed {
            None => SamplingParams::default(),
            seed => SamplingParams {
                temperature: 1.0,
                top_p: 0.95,
                frequency_penalty: 0.5,
                seed,
                ..SamplingParams::default()
            },
        };
        let request = Request {
            n: arrival.n,
            priority: arrival.priority,
            deadline: arrival.is_late.then(Instant::now),
            prompt_logprobs: arrival.scores_prompt.then_some(1),
            cache_salt: arrival.is_salted.then(|| "salt".to_owned()),
            sampling,
            ..Request::new(arrival.prompt, arrival.max_tokens)
        };
        let request = match arrival.pooling {
            None => request,
            pooling => Request {
                pooling,
                n: 1,
                max_tokens: 0,
                prompt_logprobs: None,
                ..request
            },
        };
        if request.validate(&self.limits).is_err() {
            return;
        }
        let capacity = Job::events_at_most(&request);
        let (events, receiver) = tape(capacity, request.logprobs, &Bell::start()).unwrap();
        let abort = Arc::new(AbortFlags::new(request.n));
        let seed = request.sampling.seed.unwrap_or(0);
        let start = self.limits.encoder.map(|encoder| encoder.start);
        let job = Job::new(
            request.clone(),
            seed,
            start,
            VOCABULARY,
            events,
            abort.clone(),
        );
        self.stats.live.fetch_add(1, Relaxed);
        self.scheduler.add(Arc::new(job));
        self.callers.push(Caller {
            tokens: vec![Vec::new(); request.n],
            ends: vec![None; request.n],
            scored: 0,
            pooled: None,
            request,
            events: Some(receiver),
            abort,
        });
    }

    /// One step as the worker takes it, and all that must hold before and after it.
    fn step(&mut self) {
        let waited: Vec<Key> = self.scheduler.waiting.iter().map(|c| c.key).collect();
        let (pager, step) = (&mut self.pager, &mut self.step);
        self.scheduler.schedule(pager, step, &mut self.copies);
        self.check_schedule(&waited);
        self.planned = shares(&self.scheduler);
        self.computed += self.step.tokens.len();
        if !self.step.tokens.is_empty() {
            self.mock.copy_pages(&self.copies).unwrap();
            let ticket = self.mock.submit(&self.step).unwrap();
            let output = self.mock.wait(ticket).unwrap();
            self.scheduler
                .commit(&output, &mut self.pager, &mut self.sampler)
                .unwrap();
        }
        self.check_pages();
        self.callers.iter_mut().for_each(Caller::read);
    }

    fn check_schedule(&mut self, waited: &[Key]) {
        let scheduler = &self.scheduler;
        let budget = &scheduler.options.budget;
        let keys: Vec<Key> = scheduler.running.iter().map(|c| c.key).collect();
        let waiting: Vec<Key> = scheduler.waiting.iter().map(|c| c.key).collect();
        assert!(keys.is_sorted() && waiting.is_sorted());
        assert!(keys.len() <= budget.sequences && self.step.tokens.len() <= budget.tokens);
        assert!(self.step.logit_rows.len() <= budget.logit_rows);
        assert!(scheduler.waiting.iter().all(|c| c.sequence.is_none()));
        let in_step = (self.step.tokens.len(), self.step.logit_rows.len());
        assert_eq!(scheduler.planned, in_step);
        // Nobody starves: the first one gets on in every step but in turns that are not its kind's, of which there are
        // never two in a row, and so does everybody who was decoding.
        let takes_part = |index: usize| scheduler.shares.iter().any(|s| s.running == index);
        let is_turn_of = |choice: &Choice| pass_of(choice, &self.pager) == scheduler.pass;
        assert_eq!(
            keys.is_empty() && waiting.is_empty(),
            scheduler.shares.is_empty(),
            "nobody gets on"
        );
        // A text that was just admitted may find too little room left of an encoder's step.
        let is_new =
            |choice: &Choice| scheduler.options.in_one_step && waited.contains(&choice.key);
        let mut running = scheduler.running.iter().enumerate();
        let first = running.find(|(_, choice)| !is_new(choice));
        let first = first.filter(|(index, _)| !takes_part(*index));
        let first = first.map(|(_, choice)| choice);
        if let Some(first) = first {
            assert!(!is_turn_of(first), "the first does not get on");
            assert_ne!(self.passed_over, Some(first.key), "two turns in a row");
        }
        self.passed_over = first.map(|choice| choice.key);
        for (index, choice) in scheduler.running.iter().enumerate() {
            let missing = choice.tokens.len() - self.pager.computed(sequence_of(choice));
            let decodes = missing == 1 && self.pager.is_encoded(sequence_of(choice));
            let decodes = decodes && !scheduler.options.in_one_step;
            let was_decoding = decodes && !waited.contains(&choice.key);
            let goes_on = takes_part(index) || !is_turn_of(choice);
            assert!(!was_decoding || goes_on, "{:?}", choice.key);
        }
        // Nobody overtakes: whoever was admitted came before all who still wait.
        let admitted = keys.iter().filter(|key| waited.contains(key)).max();
        if let (Some(admitted), Some(first)) = (admitted, waiting.first()) {
            assert!(admitted < first, "{first:?} was overtaken by {admitted:?}");
        }
    }

    fn check_pages(&self) {
        let pool = self.pager.pool();
        let held: usize = self
            .scheduler
            .running
            .iter()
            .map(|c| self.pager.held(sequence_of(c)))
            .sum();
        assert!(pool.used() <= held, "{} used, {held} held", pool.used());
        assert_eq!(pool.used() == 0, held == 0);
        assert_eq!(pool.used() + pool.free(), pool.total());
    }

    /// Without new arrivals everything ends; gives the steps it took.
    fn finish(&mut self) -> usize {
        let work = |c: &Caller| c.request.n * (c.request.prompt.len() + c.request.max_tokens);
        let limit = 10 + 2 * self.callers.iter().map(work).sum::<usize>();
        let mut steps = 0;
        while !self.scheduler.is_idle() {
            self.step();
            steps += 1;
            assert!(steps <= limit, "more than {limit} steps");
        }
        assert_eq!(self.pager.pool().free(), self.pager.pool().total());
        assert_eq!(self.stats.live.load(Relaxed), 0);
        steps
    }
}

impl Caller {
    fn read(&mut self) {
        let Some(events) = &mut self.events else {
            return;
        };
        while let Some(event) = events.try_read() {
            match event {
                Event::Token { choice, id, .. } => {
                    assert_eq!(self.ends[choice], None, "a token after the end");
                    self.tokens[choice].push(id);
                }
                Event::PromptLogprobs(scored) => {
                    assert_eq!(scored.len(), self.request.prompt.len());
                    assert!(scored.iter().skip(1).all(Option::is_some));
                    self.scored += 1;
                }
                Event::Finished(end) => {
                    let twice = self.ends[end.choice].replace(end.reason);
                    assert_eq!(twice, None, "a choice ends once");
                    assert_eq!(end.usage.completion, self.tokens[end.choice].len());
                    assert!(end.usage.cached < self.request.prompt.len());
                    self.pooled = end.pooled;
                }
            }
        }
    }

    fn check(&self, layout: &PageLayout) {
        if self.events.is_none() {
            return;
        }
        for (choice, (tokens, end)) in self.tokens.iter().zip(&self.ends).enumerate() {
            let expected = expected(layout, &self.request, choice);
            assert_eq!(tokens, &expected[..tokens.len()], "choice {choice}");
            match end.as_ref().expect("every choice ends") {
                FinishReason::Length => assert_eq!(tokens.len(), self.request.max_tokens),
                FinishReason::Abort => assert!(self.abort.is_set(choice)),
                FinishReason::Deadline => assert!(self.request.deadline.is_some()),
                other => panic!("{other:?}"),
            }
            if *end == Some(FinishReason::Length) && self.request.prompt_logprobs.is_some() {
                assert_eq!(self.scored, 1, "the prompt is scored once");
            }
            let whole = *end == Some(FinishReason::Length);
            let vector = self.request.pooling.filter(|_| whole);
            let vector = vector.map(|p| expected_vector(layout, &self.request.prompt, p));
            assert_eq!(self.pooled, vector);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Every choice ends exactly once with the tokens it would have alone, pages are conserved, nobody starves.
    #[test]
    fn scheduler_and_pager_serve_everybody(shape in shapes(), operations in operations()) {
        let mut world = World::new(&shape);
        operations.into_iter().for_each(|operation| world.run(operation));
        world.finish();
        let World { callers, layout, .. } = &world;
        callers.iter().for_each(|caller| caller.check(layout));
    }
}

fn plain_shape() -> Shape {
    Shape {
        layout: 0,
        pages: 40,
        sequences: 4,
        chunk: 32,
        rows: 8,
        prefix_cache: true,
        takes_largest: false,
    }
}

fn arrival(length: usize, token: u32, max_tokens: usize) -> Arrival {
    Arrival {
        prompt: vec![token; length],
        max_tokens,
        n: 1,
        priority: 0,
        is_late: false,
        scores_prompt: false,
        is_salted: false,
        seed: None,
        pooling: None,
    }
}

fn shares(scheduler: &Scheduler) -> Vec<(u64, usize)> {
    let shares = scheduler.shares.iter();
    shares
        .map(|s| (scheduler.running[s.running].key.arrival, s.end - s.first))
        .collect()
}

/// Takes a step and gives what was in it: arrival numbers and token counts.
fn next_step(world: &mut World) -> Vec<(u64, usize)> {
    world.step();
    world.planned.clone()
}

#[test]
fn decodes_come_first_and_prompts_fill_the_budget_in_order() {
    let mut world = World::new(&plain_shape());
    world.arrive(arrival(8, 1, 10));
    assert_eq!(next_step(&mut world), [(0, 8)]);
    // More urgent than the one that decodes, which comes first all the same.
    world.arrive(Arrival {
        priority: -1,
        ..arrival(60, 2, 10)
    });
    world.arrive(arrival(20, 3, 10));
    assert_eq!(next_step(&mut world), [(0, 1), (1, 31)]);
    assert_eq!(next_step(&mut world), [(0, 1), (1, 29), (2, 2)]);
    assert_eq!(next_step(&mut world), [(1, 1), (0, 1), (2, 18)]);
}

#[test]
fn lower_priority_numbers_run_sooner() {
    let shape = Shape {
        sequences: 1,
        ..plain_shape()
    };
    let mut world = World::new(&shape);
    for priority in [1, 0, 1, -1] {
        world.arrive(Arrival {
            priority,
            ..arrival(4, 1, 1)
        });
    }
    let order: Vec<u64> = (0..4).map(|_| next_step(&mut world)[0].0).collect();
    assert_eq!(order, [3, 1, 0, 2]);
}

#[test]
fn the_youngest_of_the_lowest_priority_gives_its_pages_back() {
    let shape = Shape {
        pages: 9,
        prefix_cache: false,
        ..plain_shape()
    };
    let mut world = World::new(&shape);
    for priority in [1, 0, 1] {
        world.arrive(Arrival {
            priority,
            ..arrival(10, 1, 8)
        });
    }
    // Three pages each: the pool is full.
    assert_eq!(next_step(&mut world), [(1, 10), (0, 10), (2, 10)]);
    assert_eq!(next_step(&mut world), [(1, 1), (0, 1), (2, 1)]);
    assert_eq!(next_step(&mut world), [(1, 1), (0, 1), (2, 1)]);
    assert_eq!(world.stats.preemptions.load(Relaxed), 0);
    // The thirteenth tokens need a fourth page each.
    assert_eq!(next_step(&mut world), [(1, 1), (0, 1)]);
    assert_eq!(world.stats.preemptions.load(Relaxed), 1);
    let waiting = &world.scheduler.waiting[0];
    assert_eq!((waiting.key.arrival, waiting.tokens.len()), (2, 13));
    world.finish();
    world.callers.iter().for_each(|c| c.check(&world.layout));
}

#[test]
fn pages_that_a_running_choice_is_about_to_need_are_not_given_away() {
    let shape = Shape {
        pages: 2,
        ..plain_shape()
    };
    let mut world = World::new(&shape);
    // One page is full after the prompt, the next token goes to the second.
    world.arrive(arrival(4, 1, 3));
    world.arrive(arrival(3, 2, 2));
    assert_eq!(next_step(&mut world), [(0, 4)]);
    world.finish();
    assert_eq!(world.stats.preemptions.load(Relaxed), 0);
    world.callers.iter().for_each(|c| c.check(&world.layout));
}

#[test]
fn a_preempted_choice_finds_its_pages_again() {
    let shape = Shape {
        pages: 8,
        ..plain_shape()
    };
    let mut world = World::new(&shape);
    world.arrive(arrival(12, 1, 8));
    world.arrive(arrival(12, 2, 8));
    world.finish();
    assert!(world.stats.preemptions.load(Relaxed) > 0);
    // Two prompts and seven more tokens each; of what was preempted, a page at the most had to be computed again.
    let least = 2 * (12 + 7);
    assert!(
        (least + 1..=least + 4).contains(&world.computed),
        "{}",
        world.computed
    );
    world.callers.iter().for_each(|c| c.check(&world.layout));
}
