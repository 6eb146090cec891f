//! Owns how we compile for machines other than this one: with the standard library that rustup brought, or with Debian's
//! compiler, which makes one from its sources.

use crate::setup::{DEBIAN_CARGO, DEBIAN_RUSTC};
use crate::steps::repository;
use std::path::PathBuf;
use std::process::Command;

/// Whether rustup has brought the target.
pub fn has_compiled_std(target: &str) -> bool {
    let sysroot = Command::new("rustc")
        .args(["--print", "sysroot"])
        .output()
        .map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    sysroot.is_ok_and(|folder| {
        let libraries = PathBuf::from(folder).join("lib/rustlib").join(target);
        libraries.exists()
    })
}

/// A program of Debian's Rust, in the repository and in an environment that leads it to no other toolchain. It is called
/// by its path: cargo would look for it beside the one of rustup first, and that one for a toolchain of rustup's.
pub fn debian(program: &str) -> Command {
    let mut command = Command::new(program);
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
