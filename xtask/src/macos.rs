//! Owns the check that what ships for Macs compiles and is clean, on machines that are none.
//!
//! A check links nothing, so that neither Apple's libraries nor its C compiler are needed: only a standard library for the
//! target. Where rustup has not brought one, Debian's compiler makes it from its sources; its own target folder keeps it.

use crate::cross::{debian, has_compiled_std};
use crate::setup::{self, DEBIAN_CLIPPY, HOW_TO_GET_DEBIAN_RUST};
use crate::steps::{cargo, repository, step};
use anyhow::{Result, bail};
use std::process::Command;

const TARGET: &str = "aarch64-apple-darwin";

/// The binary, all that is in it, and the tests that only a Mac runs. Crates that these use are linted with them.
const WHAT: [&str; 6] = [
    "--quiet",
    "--package",
    "mettle-cli",
    "--package",
    "mettle-metal",
    "--all-targets",
];

/// Nothing that was compiled here ever runs. Std without optimization takes a third of the time.
const UNOPTIMIZED: [&str; 6] = [
    "--config",
    "profile.dev.opt-level=0",
    "--config",
    "profile.dev.package.\"*\".opt-level=0",
    "--config",
    "profile.dev.debug=false",
];

/// Says what it needs where it cannot run.
pub fn run() -> Result<()> {
    match check()? {
        None => Ok(()),
        Some(needed) => bail!("macos-check needs {needed}"),
    }
}

/// `None` when all is well, what is needed when it cannot be run.
pub fn check() -> Result<Option<String>> {
    let mut command = if cfg!(target_os = "macos") {
        cargo(&["clippy"])
    } else if has_compiled_std(TARGET) {
        for_macs(cargo(&["clippy"]))
    } else if setup::debian_rust()? {
        let mut clippy = debian(DEBIAN_CLIPPY);
        clippy.args(["clippy", "-Zbuild-std=std,panic_abort"]);
        for_macs(clippy)
    } else {
        return Ok(Some(format!(
            "a standard library for Macs (rustup target add {TARGET}, or on Debian {HOW_TO_GET_DEBIAN_RUST})"
        )));
    };
    command.args(WHAT).args(["--", "-D", "warnings"]);
    step("macos-check", &mut command)?;
    Ok(None)
}

fn for_macs(mut clippy: Command) -> Command {
    clippy.args(["--target", TARGET]).args(UNOPTIMIZED);
    let folder = repository().join("target").join("macos-check");
    clippy.env("CARGO_TARGET_DIR", folder);
    // Some crates build C for the target. What a check needs of it is that the build script succeeds.
    clippy.env("CC_aarch64_apple_darwin", "true");
    clippy.env("AR_aarch64_apple_darwin", "true");
    clippy
}
