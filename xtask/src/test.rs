//! Owns the test command: set up, check, test.

use crate::steps::{cargo, step};
use crate::{arm, clients, fuzz, macos, mutate, setup, tidy};
use anyhow::{Result, bail};

/// Random cases a property test runs in `--full`; the default is proptest's 256.
const MANY_CASES: &str = "4000";

/// What needs clang to build.
const KERNEL_FEATURES: &str = "mettle-kernels/emulator,mettle-kernels/cuda,mettle-gpu/emulator,mettle-validate/emulator,mettle-cuda/cuda,mettle-cli/emulator,mettle-cli/cuda";

pub fn run(full: bool) -> Result<()> {
    let mut not_run = Vec::new();
    let features: &[&str] = if setup::clang()? {
        &["--features", KERNEL_FEATURES]
    } else {
        not_run.push(format!("the kernels' tests: {}", setup::HOW_TO_GET_CLANG));
        &[]
    };
    if has_component("fmt") {
        step("format", &mut cargo(&["fmt", "--all", "--check"]))?;
    } else {
        not_run.push("the format check (rustup component add rustfmt)".to_owned());
    }
    println!("== tidy");
    tidy::run()?;
    if has_component("clippy") {
        let lints = [
            "clippy",
            "--workspace",
            "--all-targets",
            "--profile",
            "checked",
            "--quiet",
        ];
        let mut clippy = cargo(&lints);
        // Linted here, run where the device is.
        let device_tests: &[&str] = match features {
            [] => &[],
            _ => &["--features", "mettle-cuda/test-on-device"],
        };
        step(
            "clippy",
            clippy
                .args(features)
                .args(device_tests)
                .args(["--", "-D", "warnings"]),
        )?;
    } else {
        not_run.push("clippy (rustup component add clippy)".to_owned());
    }
    // On a Mac that is what clippy has just done.
    if !cfg!(target_os = "macos")
        && let Some(needed) = macos::check()?
    {
        not_run.push(format!("the check of what ships for Macs: {needed}"));
    }
    // Built before the model is fetched, and by the very command that runs them: a build of the program alone would
    // choose other features and compile most of it twice.
    let tests_of_all = || {
        let mut tests = cargo(&[
            "test",
            "--workspace",
            "--profile",
            "checked",
            "--no-fail-fast",
        ]);
        tests.args(features);
        tests
    };
    step("build of the tests", tests_of_all().arg("--no-run"))?;
    clients::pull_default_model()?;
    let mut tests = tests_of_all();
    if full {
        tests.env("PROPTEST_CASES", MANY_CASES);
    }
    step("tests", &mut tests)?;
    not_run.extend(clients::check(None, full)?);
    if full {
        // On an ARM processor the tests above were these.
        if !cfg!(target_arch = "aarch64")
            && let Some(needed) = arm::check()?
        {
            not_run.push(format!("the CPU backend's tests on ARM: {needed}"));
        }
        if !features.is_empty() {
            mutate::run("")?;
        }
        fuzz::run(60)?;
    } else {
        fuzz::check()?;
    }
    println!("GPUs are tested where they are: `cargo xtask test --device cuda`, `--device metal`");
    for name in &not_run {
        println!("not run: {name}");
    }
    if !not_run.is_empty() && std::env::var_os("CI").is_some() {
        bail!("CI runs everything or fails");
    }
    Ok(())
}

fn has_component(name: &str) -> bool {
    cargo(&[name, "--version"])
        .output()
        .is_ok_and(|output| output.status.success())
}
