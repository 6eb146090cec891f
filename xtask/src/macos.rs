//! Owns the check that what ships for Macs compiles and is clean, on machines that are none.
//!
//! A check links nothing, so that neither Apple's libraries nor its C compiler are needed: only a standard library for the
//! target. Where rustup has not brought one, Debian's compiler makes it from its sources; its own target folder keeps it.

use crate::setup::{self, DEBIAN_CARGO, DEBIAN_CLIPPY, DEBIAN_RUSTC, HOW_TO_GET_DEBIAN_RUST};
use crate::steps::{cargo, repository, step};
use anyhow::{Result, bail};
use std::path::PathBuf;
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
    } else if has_compiled_std() {
        for_macs(cargo(&["clippy"]))
    } else if setup::debian_rust()? {
        for_macs(debian_clippy())
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

/// Whether rustup has brought the target.
fn has_compiled_std() -> bool {
    let sysroot = Command::new("rustc")
        .args(["--print", "sysroot"])
        .output()
        .map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    sysroot.is_ok_and(|folder| {
        let libraries = PathBuf::from(folder).join("lib/rustlib").join(TARGET);
        libraries.exists()
    })
}

/// Clippy called by name: cargo would look for it beside the one of rustup first, and that one for a toolchain of rustup's.
fn debian_clippy() -> Command {
    let mut command = Command::new(DEBIAN_CLIPPY);
    command.current_dir(repository());
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(belongs_to_another_toolchain) {
            command.env_remove(&name);
        }
    }
    command.env("CARGO", DEBIAN_CARGO);
    command.env("RUSTC", DEBIAN_RUSTC);
    // Building std is an unstable option of a stable cargo.
    command.env("RUSTC_BOOTSTRAP", "1");
    command.args(["clippy", "-Zbuild-std=std,panic_abort"]);
    command
}

/// What rustup and the cargo that runs us have set, apart from where packages come from.
fn belongs_to_another_toolchain(variable: &str) -> bool {
    const SOURCES: [&str; 5] = [
        "CARGO_HOME",
        "CARGO_HTTP_",
        "CARGO_NET_",
        "CARGO_REGISTRIES_",
        "CARGO_SOURCE_",
    ];
    const OTHERS: [&str; 4] = ["CARGO", "RUST", "CLIPPY", "LD_LIBRARY_PATH"];
    let starts_with = |prefix: &&str| variable.starts_with(prefix);
    OTHERS.iter().any(starts_with) && !SOURCES.iter().any(starts_with)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_other_toolchain_keeps_only_where_packages_come_from() {
        for name in ["RUSTUP_TOOLCHAIN", "RUSTFLAGS", "CARGO", "CARGO_TARGET_DIR"] {
            assert!(belongs_to_another_toolchain(name), "{name}");
        }
        for name in ["PATH", "CARGO_HOME", "CARGO_REGISTRIES_OURS_INDEX"] {
            assert!(!belongs_to_another_toolchain(name), "{name}");
        }
    }
}
