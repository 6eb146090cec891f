//! `cargo xtask`: everything a developer or CI runs, from a fresh clone, in one command each.

mod arm;
mod clients;
mod cross;
mod device;
mod fuzz;
mod macos;
mod mutate;
mod setup;
mod steps;
mod test;
mod tidy;

use anyhow::{Result, bail};
use std::process::ExitCode;

const HELP: &str = "\
cargo xtask test [--full]   set up what tests need, then format check, clippy, tidy, all tests, and those from outside
                            --full adds what takes longer: ARM emulated, mutants of the kernels, fuzzing (a minute a target), many more random cases
cargo xtask test --device D on one device (metal, cuda, emulator): its own tests, then every kernel, fixtures and the
                            default model compared with references by the release binary
cargo xtask clients [NAME] [--full]
                            the tests from outside: official clients, a browser, fuzzers and a load against the real program
cargo xtask macos-check     type check and clippy of what ships for Macs, on any system
cargo xtask arm-test        the CPU backend's tests on an emulated ARM processor: NEON, dotprod, i8mm
cargo xtask mutate [TEXT]   the test of the kernels' tests: any barrier left out, any bound shifted must make one fail
cargo xtask tidy            what clippy cannot see: dependency direction, file heads, stubs, sizes
cargo xtask fuzz [SECONDS]  run every fuzz target for SECONDS (default 60)

The test command fetches the default model (98 MB) once into the cache folder (METTLE_HOME overrides it).
Fixtures are remade by the scripts in fixtures/make; see fixtures/README.md.";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &[String]) -> Result<()> {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["test"] => test::run(false),
        ["test", "--full"] => test::run(true),
        ["test", "--device", name] => device::run(name),
        ["clients"] => clients::run(None, false),
        ["clients", "--full"] => clients::run(None, true),
        ["clients", name] => clients::run(Some(name), false),
        ["clients", name, "--full"] => clients::run(Some(name), true),
        ["macos-check"] => macos::run(),
        ["arm-test"] => arm::run(),
        ["mutate"] => mutate::run(""),
        ["mutate", filter] => mutate::run(filter),
        ["tidy"] => tidy::run(),
        ["fuzz"] => fuzz::run(60),
        ["fuzz", seconds] => fuzz::run(seconds.parse()?),
        [] | ["help"] | ["--help"] | ["-h"] => {
            println!("{HELP}");
            Ok(())
        }
        _ => bail!("unknown: {}\n{HELP}", words.join(" ")),
    }
}
