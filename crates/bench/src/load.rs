//! Load on a server over HTTP: prompts, arrivals, streamed answers with their times, and what they amount to.
//!
//! [`Server::connect`] finds a server's model and how to write prompts for it; [`Dataset`] makes prompts; [`drive`] sends
//! them; [`Summary::of`] turns the outcomes into the figures that people compare.

mod arrivals;
mod dataset;
mod drive;
mod exchange;
mod http;
mod material;
mod metrics;
mod outcome;
mod record;
mod server;
mod sse;
mod summary;
mod url;

pub use arrivals::Rate;
pub use dataset::{Dataset, Prompt};
pub use drive::{Drive, Progress, Run, drive};
pub use exchange::{Endpoint, RequestOptions};
pub use material::Content;
pub use metrics::Sample;
pub use outcome::{Failure, FailureKind, Outcome};
pub use record::{LoadRecord, Point};
pub use server::Server;
pub use sse::EventReader;
pub use summary::{Goal, GoalMetric, Quantiles, Summary};
pub use url::BaseUrl;
