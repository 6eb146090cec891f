//! Owns the run of the CPU backend's tests on an emulated ARM processor: every instruction set we have kernels for, on
//! machines that have none of them.

use crate::cross::{debian, has_compiled_std};
use crate::setup::{self, DEBIAN_CARGO, HOW_TO_GET_ARM_TOOLS, HOW_TO_GET_DEBIAN_RUST};
use crate::steps::{cargo, repository};
use anyhow::{Context, Result, bail, ensure};
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Instant;

const TARGET: &str = "aarch64-unknown-linux-gnu";

/// `max` has all that the emulator knows; the folder is where Debian puts another architecture's libraries.
const EMULATOR: &str = "qemu-aarch64 -cpu max -L /usr/aarch64-linux-gnu";

/// The best set on that processor. A test compares: an emulator that has less must not pass for one that has all.
const BEST_SET: &str = "neon_i8mm";

/// Says what it needs where it cannot run.
pub fn run() -> Result<()> {
    match check()? {
        None => Ok(()),
        Some(needed) => bail!("arm-test needs {needed}"),
    }
}

/// `None` when all is well, what is needed when it cannot be run.
pub fn check() -> Result<Option<String>> {
    let mut command = if cfg!(target_arch = "aarch64") {
        println!("this machine is one: its own processor runs the tests");
        cargo(&["test"])
    } else if !setup::arm_tools()? {
        return Ok(Some(HOW_TO_GET_ARM_TOOLS.to_owned()));
    } else if has_compiled_std(TARGET) {
        emulated(cargo(&["test"]))
    } else if setup::debian_rust()? {
        let mut test = debian(DEBIAN_CARGO);
        test.args(["test", "-Zbuild-std=std,panic_abort,test"]);
        emulated(test)
    } else {
        return Ok(Some(format!(
            "a standard library for ARM (rustup target add {TARGET}, or on Debian {HOW_TO_GET_DEBIAN_RUST})"
        )));
    };
    // Examples in documentation would need a third compiler, and there are none.
    command.args(["--package", "mettle-cpu", "--lib", "--profile", "checked"]);
    println!("== arm-test");
    let start = Instant::now();
    let passed = count_passed(&mut command)?;
    ensure!(passed > 0, "arm-test ran no test: {command:?}");
    let seconds = start.elapsed().as_secs_f64();
    println!("== arm-test: {passed} tests, {seconds:.0} s");
    Ok(None)
}

fn emulated(mut test: Command) -> Command {
    test.args(["--target", TARGET]);
    let folder = repository().join("target").join("arm-test");
    test.env("CARGO_TARGET_DIR", folder);
    test.env(
        "CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER",
        "aarch64-linux-gnu-gcc",
    );
    test.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER", EMULATOR);
    test.env("METTLE_TEST_ISA", BEST_SET);
    test
}

/// Runs the tests with their output shown, and counts them.
fn count_passed(command: &mut Command) -> Result<usize> {
    let mut child = command
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("arm-test: cannot run {command:?}"))?;
    let output = child.stdout.take().context("it was piped")?;
    let mut passed = 0;
    for line in BufReader::new(output).lines() {
        let line = line?;
        println!("{line}");
        passed += passed_in(&line);
    }
    let status = child.wait()?;
    ensure!(status.success(), "arm-test failed ({status}): {command:?}");
    Ok(passed)
}

/// 27 of `test result: ok. 27 passed; ...`.
fn passed_in(line: &str) -> usize {
    let count = line
        .strip_prefix("test result: ok. ")
        .and_then(|rest| rest.split_once(" passed"))
        .and_then(|(count, _)| count.parse().ok());
    count.unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_counted() {
        let line = "test result: ok. 27 passed; 0 failed; 0 ignored; finished in 44.80s";
        assert_eq!(passed_in(line), 27);
        assert_eq!(passed_in("test result: FAILED. 26 passed; 1 failed"), 0);
        assert_eq!(passed_in("test pool::tests::shares ... ok"), 0);
    }
}
