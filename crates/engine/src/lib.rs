//! Requests in, tokens out: scheduler, KV pager with prefix cache, sampler, and the worker thread that owns them.
//!
//! [`Engine::start`] takes an executable (a prepared plan) and gives an [`EngineHandle`]; [`EngineHandle::submit`] gives
//! a [`RequestStream`] of [`Event`]s; [`Answer`] turns one into text. One step is schedule -> submit -> wait -> commit.
//! A request has one or more choices (`n`), each of which ends in exactly one terminal event. A request with a
//! [`Pooling`] makes no tokens: its terminal event holds a vector.
//!
//! ```
//! use mettle_engine::{Engine, EngineOptions, Event, Request, mock::MockExecutable};
//! use mettle_plan::{KvElement, KvGroup, PageLayout, Plane, Retention, Sizes};
//!
//! // A real executable comes from a backend's `prepare`.
//! let plane = Plane { heads: 1, width: 64, element: KvElement::F16 };
//! let group = KvGroup { name: "all".into(), layers: 1, planes: vec![plane; 2], retention: Retention::Full };
//! let layout = PageLayout::new(&[group], 32);
//! let executable = MockExecutable::new(1000, layout, 64, Sizes::bounds(512, 1));
//!
//! let engine = Engine::start(Box::new(executable), EngineOptions::new(1000, 2048, 64))?;
//! let mut stream = engine.submit(Request::new(vec![1, 2, 3], 8))?;
//! while let Some(event) = stream.recv() {
//!     match event {
//!         Event::Token { id, .. } => println!("{id}"),
//!         Event::Finished(end) => println!("{:?}", end.reason),
//!         Event::PromptLogprobs(_) => {}
//!     }
//! }
//! engine.shutdown();
//! # Ok::<(), mettle_engine::EngineError>(())
//! ```

mod answer;
mod bell;
mod choice;
mod constraint;
mod constraint_threads;
mod error;
mod event;
mod handle;
mod job;
mod mail;
pub mod mock;
mod output_rows;
pub mod pager;
mod pooling;
mod request;
mod sampler;
mod scheduler;
mod stats;
mod stop_finder;
mod stream;
mod tape;
mod token_mask;
mod worker;

pub use answer::{Answer, AnswerEnd, AnswerEvent, AnswerOptions, Piece};
pub use constraint::{ConstraintError, MASK_PATIENCE, MAX_CONSTRAINT_THREADS, TokenConstraint};
pub use error::EngineError;
pub use event::{Event, FinishReason, Finished, StopCause, Timings, TokenLogprobs, Usage};
pub use handle::{Engine, EngineHandle, EngineOptions};
pub use pooling::Pooling;
pub use request::{EncoderLimits, Limits, MAX_CHOICES, MAX_LOGPROBS, Request};
pub use sampler::{MAX_LISTED, SamplingParams};
pub use stats::{Ended, HistogramSnapshot, Histograms, Stats, StepRecord};
pub use stream::RequestStream;
pub use token_mask::TokenMask;
