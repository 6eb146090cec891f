//! Owns engines on the mock executable, and how tests ask them and know what they should answer.

use mettle_engine::mock::{MockExecutable, MockStep};
use mettle_engine::{
    Engine, EngineHandle, EngineOptions, Event, Finished, Request, RequestStream, TokenLogprobs,
};
use mettle_plan::{GroupPages, PageLayout, Retention, Sizes};
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

pub const VOCABULARY: usize = 50;
pub const CONTEXT: usize = 400;

pub fn group(retention: Retention, tokens_per_page: usize) -> GroupPages {
    GroupPages {
        retention,
        tokens_per_page,
        pages_per_state: usize::from(retention == Retention::State),
    }
}

pub fn layout(groups: &[GroupPages]) -> PageLayout {
    PageLayout {
        page_bytes: 1,
        groups: groups.to_vec(),
    }
}

pub fn layouts() -> Vec<PageLayout> {
    let full = group(Retention::Full, 16);
    vec![
        layout(&[full]),
        layout(&[full, group(Retention::Window(40), 32)]),
        layout(&[group(Retention::Window(20), 8)]),
        layout(&[
            full,
            GroupPages {
                tokens_per_page: 0,
                ..group(Retention::State, 0)
            },
        ]),
    ]
}

pub fn plain() -> PageLayout {
    layouts().swap_remove(0)
}

pub struct Setup {
    pub layout: PageLayout,
    pub pages: usize,
    pub logit_rows: usize,
    pub options: EngineOptions,
}

impl Setup {
    pub fn new(layout: PageLayout) -> Setup {
        Setup {
            layout,
            pages: 200,
            logit_rows: 64,
            options: EngineOptions::new(VOCABULARY, CONTEXT, 200),
        }
    }

    pub fn pages(mut self, pages: usize) -> Setup {
        self.pages = pages;
        self.options.kv_pages = pages;
        self
    }

    pub fn chunk(mut self, tokens: usize) -> Setup {
        self.options.max_batched_tokens = tokens;
        self
    }

    pub fn sequences(mut self, count: usize) -> Setup {
        self.options.max_sequences = count;
        self
    }

    pub fn mock(&self) -> MockExecutable {
        let bounds = Sizes {
            logit_rows: self.logit_rows,
            ..Sizes::bounds(512, 32)
        };
        MockExecutable::new(VOCABULARY, self.layout.clone(), self.pages, bounds)
    }

    pub fn start(self) -> EngineHandle {
        let mock = self.mock();
        Engine::start(Box::new(mock), self.options).unwrap()
    }

    /// One whose first step waits until the gate is dropped: what is submitted before runs together.
    pub fn start_held(self) -> (EngineHandle, Sender<()>) {
        let (gate, opened) = channel();
        let engine = self.start_with(move |step| {
            if step == 0 {
                let _ = opened.recv();
            }
            MockStep::Run
        });
        (engine, gate)
    }

    pub fn start_with(self, hook: impl FnMut(u64) -> MockStep + Send + 'static) -> EngineHandle {
        let mock = self.mock().with_hook(hook);
        Engine::start(Box::new(mock), self.options).unwrap()
    }
}

#[derive(Debug, PartialEq)]
pub struct Outcome {
    pub tokens: Vec<u32>,
    pub logprobs: Vec<Option<TokenLogprobs>>,
    pub prompt_logprobs: Option<Vec<Option<TokenLogprobs>>>,
    pub end: Finished,
}

/// The only choice's outcome.
pub fn read(stream: RequestStream) -> Outcome {
    let mut outcomes = read_all(stream);
    assert_eq!(outcomes.len(), 1);
    outcomes.swap_remove(0)
}

/// Every choice's outcome.
pub fn read_all(mut stream: RequestStream) -> Vec<Outcome> {
    let mut prompt_logprobs = None;
    type Read = (Vec<u32>, Vec<Option<TokenLogprobs>>, Option<Finished>);
    let mut choices: Vec<Read> = Vec::new();
    choices.resize_with(stream.choices(), Default::default);
    while choices.iter().any(|(_, _, end)| end.is_none()) {
        match stream.recv().expect("terminal events come first") {
            Event::PromptLogprobs(scored) => {
                let is_first = choices.iter().all(|(tokens, ..)| tokens.is_empty());
                assert!(is_first && prompt_logprobs.is_none());
                prompt_logprobs = Some(scored);
            }
            Event::Token {
                choice,
                id,
                logprobs,
                ..
            } => {
                let (tokens, kept, end) = &mut choices[choice];
                assert_eq!(*end, None, "a token after the end");
                tokens.push(id);
                kept.push(logprobs);
            }
            Event::Finished(finished) => {
                let end = &mut choices[finished.choice].2;
                assert_eq!(*end, None, "a choice ends once");
                *end = Some(finished);
            }
        }
    }
    assert_eq!(stream.recv(), None, "the terminal events are the last");
    let outcome = |(tokens, logprobs, end): Read| {
        let end = end.unwrap();
        assert_eq!(end.usage.completion, tokens.len());
        Outcome {
            tokens,
            logprobs,
            prompt_logprobs: prompt_logprobs.clone(),
            end,
        }
    };
    choices.into_iter().map(outcome).collect()
}

pub fn ask(engine: &EngineHandle, request: Request) -> Outcome {
    read(engine.submit(request).unwrap())
}

pub fn prompt(length: usize, seed: u32) -> Vec<u32> {
    let token = |i: u32| (i.wrapping_mul(2_654_435_761).wrapping_add(seed * 77) >> 7) % 50;
    (0..length as u32).map(token).collect()
}

/// The greedy continuation by the mock's own definition, without engine or pages.
pub fn greedy(layout: &PageLayout, prompt: &[u32], count: usize) -> Vec<u32> {
    let mut tokens = prompt.to_vec();
    for _ in 0..count {
        let logits = MockExecutable::logits_after(VOCABULARY, layout, &tokens);
        let best = (0..VOCABULARY).max_by(|a, b| logits[*a].total_cmp(&logits[*b]).then(b.cmp(a)));
        tokens.push(best.unwrap() as u32);
    }
    tokens.split_off(prompt.len())
}

pub fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < Duration::from_secs(20), "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}
