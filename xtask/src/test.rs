//! Owns the test command: set up, check, test.

use crate::steps::{cargo, step};
use crate::{fuzz, tidy};
use anyhow::Result;

/// Random cases a property test runs in `--full`; the default is proptest's 256.
const MANY_CASES: &str = "4000";

pub fn run(full: bool) -> Result<()> {
    let mut not_run = Vec::new();
    if has_component("fmt") {
        step("format", &mut cargo(&["fmt", "--all", "--check"]))?;
    } else {
        not_run.push("the format check (rustup component add rustfmt)");
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
            "--",
            "-D",
            "warnings",
        ];
        step("clippy", &mut cargo(&lints))?;
    } else {
        not_run.push("clippy (rustup component add clippy)");
    }
    let pull = [
        "run",
        "--quiet",
        "--profile",
        "checked",
        "--package",
        "mettle-cli",
        "--",
        "pull",
        "smollm2:135m",
    ];
    step("default model", &mut cargo(&pull))?;
    let mut tests = cargo(&["test", "--workspace", "--profile", "checked"]);
    if full {
        tests.env("PROPTEST_CASES", MANY_CASES);
    }
    step("tests", &mut tests)?;
    if full {
        fuzz::run(60)?;
    }
    for name in not_run {
        println!("not run: {name}");
    }
    Ok(())
}

fn has_component(name: &str) -> bool {
    cargo(&[name, "--version"])
        .output()
        .is_ok_and(|output| output.status.success())
}
