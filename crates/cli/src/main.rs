//! Owns the start and the end of the program: which command runs, and what a failure looks like.

mod args;
mod commands;
mod config;
mod device;
mod fit;
mod interrupt;
mod kv_budget;
mod sampling;
mod session;
mod terminal;

use args::{Cli, Command};
use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    // clap prints help on stdout with 0 and usage errors on stderr with 2.
    let outcome = match Cli::parse().command {
        Command::Run(args) => commands::run::run(args),
        Command::Chat(args) => commands::chat::run(args),
        Command::Pull(args) => commands::pull::run(args),
        Command::Models => commands::models::run(),
        Command::Inspect(args) => commands::inspect::run(args),
        Command::Quantize(args) => commands::quantize::run(args),
        Command::Plan(args) => commands::plan::run(args),
        Command::Config(args) => commands::config::run(args),
        Command::Serve(args) => commands::serve::run(args),
        Command::Bench(command) => commands::bench::run(command),
        Command::Doctor(args) => commands::doctor::run(args),
        Command::Perplexity(args) => commands::perplexity::run(args),
        Command::Validate(args) => commands::validate::run(args),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => terminal::report(&error),
    }
}
