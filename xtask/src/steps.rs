//! Owns how steps are run and reported: a line before, the time after, the command when it fails.

use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

/// What `mettle` fetches when no model is named.
pub const DEFAULT_MODEL: &str = "smollm2:135m";

pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("xtask lies in the repository")
        .to_owned()
}

/// The program as cargo has built it with a profile.
pub fn binary(profile: &str) -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    let target = target.unwrap_or_else(|| PathBuf::from("target"));
    repository().join(target).join(profile).join("mettle")
}

/// Cargo itself, in the repository.
pub fn cargo(arguments: &[&str]) -> Command {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.current_dir(repository()).args(arguments);
    command
}

/// Runs a command with its output shown.
pub fn step(name: &str, command: &mut Command) -> Result<()> {
    println!("== {name}");
    let start = Instant::now();
    let status = command
        .status()
        .with_context(|| format!("{name}: cannot run {command:?}"))?;
    if !status.success() {
        bail!("{name} failed ({status}): {command:?}");
    }
    println!("== {name}: {:.0} s", start.elapsed().as_secs_f64());
    Ok(())
}
