//! One file per command.

pub mod bench;
pub mod chat;
pub mod config;
pub mod doctor;
pub mod inspect;
pub mod models;
pub mod perplexity;
pub mod plan;
pub mod pull;
pub mod quantize;
pub mod run;
pub mod serve;
pub mod validate;

use crate::config::{Config, Flags, Settings, environment};

/// The settings of a command with these flags.
fn settings(flags: Flags) -> anyhow::Result<Settings> {
    Ok(Settings::new(&Config::resolve(flags, environment)?)?)
}
