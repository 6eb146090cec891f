//! A record as a page to look at: one HTML file with its charts inside, no script, no network.

mod chart;
mod page;
mod scale;
mod series;

pub use page::html;
