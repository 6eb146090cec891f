//! One file per kind of benchmark.

pub mod compare;
pub mod kernels;
pub mod latency;
mod load_table;
mod ops;
pub mod serve;
pub mod throughput;
mod types;

use crate::args::BenchCommand;

pub fn run(command: BenchCommand) -> anyhow::Result<()> {
    match command {
        BenchCommand::Latency(args) => latency::run(args),
        BenchCommand::Throughput(args) => throughput::run(args),
        BenchCommand::Serve(args) => serve::run(args),
        BenchCommand::Kernels(args) => kernels::run(args),
        BenchCommand::Compare(args) => compare::run(args),
    }
}
