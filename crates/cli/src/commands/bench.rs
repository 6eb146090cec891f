//! One file per kind of benchmark.

pub mod kernels;
pub mod latency;

use crate::args::BenchCommand;

pub fn run(command: BenchCommand) -> anyhow::Result<()> {
    match command {
        BenchCommand::Latency(args) => latency::run(args),
        BenchCommand::Kernels(args) => kernels::run(args),
    }
}
