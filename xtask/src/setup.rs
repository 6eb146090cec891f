//! Owns what the tests need beyond Rust: packages of the distribution, installed where we may.

use crate::steps::step;
use anyhow::Result;
use std::path::Path;
use std::process::Command;

/// How a person gets it where we may not install it.
pub const HOW_TO_GET_CLANG: &str =
    "clang-19 (Debian, Ubuntu: apt-get install clang-19 lld-19 libclang-rt-19-dev)";

/// The same for what `debian_rust` looks for.
pub const HOW_TO_GET_DEBIAN_RUST: &str =
    "apt-get install rustc-web cargo-web rust-web-src rust-web-clippy";

/// What links for ARM, and what runs it.
pub const HOW_TO_GET_ARM_TOOLS: &str = "a linker for ARM and an emulator of it (Debian, Ubuntu: apt-get install gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user)";

/// What the drivers of the tests from outside run with.
pub const HOW_TO_GET_PYTHON: &str = "Python 3.11 with venv and pip that reach a package index (Debian: apt-get install python3-venv)";

/// What the page is tested in.
pub const HOW_TO_GET_CHROMIUM: &str = "Chromium (Debian: apt-get install chromium)";

/// Debian's own compiler, whose name no other may have on the path.
pub const DEBIAN_RUSTC: &str = "/usr/bin/rustc";
pub const DEBIAN_CARGO: &str = "/usr/bin/cargo";
pub const DEBIAN_CLIPPY: &str = "/usr/bin/cargo-clippy";
/// The sources of its standard library, as cargo looks for them.
const DEBIAN_STD: &str = "/usr/lib/rustlib/src/rust/library/Cargo.lock";

/// Whether clang 19 is there, for the kernels' emulator and PTX; installed now if need be and possible.
pub fn clang() -> Result<bool> {
    let packages = ["clang-19", "lld-19", "libclang-rt-19-dev"];
    present_or_installed("clang", &packages, || runs("clang++-19", &["--version"]))
}

/// Whether Python is there, and new enough.
pub fn python() -> bool {
    let newer = "import sys, venv; sys.exit(sys.version_info < (3, 11))";
    runs("python3", &["-c", newer])
}

/// Whether a browser is there, for the page; installed now if need be and possible.
pub fn chromium() -> Result<bool> {
    let names = ["chromium", "chromium-browser", "google-chrome"];
    present_or_installed("Chromium", &["chromium"], || {
        names.iter().any(|name| runs(name, &["--version"]))
    })
}

/// Whether Debian's Rust is there with the sources of the standard library, for targets that have no compiled one;
/// installed now if need be and possible.
pub fn debian_rust() -> Result<bool> {
    let packages = ["rustc-web", "cargo-web", "rust-web-src", "rust-web-clippy"];
    present_or_installed("Debian's Rust", &packages, || {
        let programs = [DEBIAN_CARGO, DEBIAN_CLIPPY];
        programs.iter().all(|program| runs(program, &["--version"]))
            && Path::new(DEBIAN_STD).exists()
            && debian_rustc_is_new_enough()
    })
}

/// Whether programs for ARM can be linked and run here; installed now if need be and possible.
pub fn arm_tools() -> Result<bool> {
    let packages = [
        "gcc-aarch64-linux-gnu",
        "libc6-dev-arm64-cross",
        "qemu-user",
    ];
    let programs = ["aarch64-linux-gnu-gcc", "qemu-aarch64"];
    present_or_installed("a linker and an emulator for ARM", &packages, || {
        programs.iter().all(|program| runs(program, &["--version"]))
    })
}

/// Debian's stable release has an older one beside the one that is kept up for browsers.
fn debian_rustc_is_new_enough() -> bool {
    let Ok(output) = Command::new(DEBIAN_RUSTC).arg("--version").output() else {
        return false;
    };
    let text = String::from_utf8_lossy(&output.stdout);
    let version = text.split(' ').nth(1).and_then(minor);
    version.is_some() && version >= minor(env!("CARGO_PKG_RUST_VERSION"))
}

/// 95 of 1.95 and of 1.95.0.
fn minor(version: &str) -> Option<u32> {
    version.strip_prefix("1.")?.split('.').next()?.parse().ok()
}

fn present_or_installed(
    what: &str,
    packages: &[&str],
    is_present: impl Fn() -> bool,
) -> Result<bool> {
    if is_present() {
        return Ok(true);
    }
    let is_root = Command::new("id")
        .arg("-u")
        .output()
        .is_ok_and(|o| o.stdout == b"0\n");
    if !is_root || !runs("apt-get", &["--version"]) {
        return Ok(false);
    }
    let apt = |arguments: &[&str]| {
        let mut command = Command::new("apt-get");
        command.args(["-q", "-y"]).args(arguments);
        command.env("DEBIAN_FRONTEND", "noninteractive");
        command
    };
    let mut install = apt(&["install", "--no-install-recommends"]);
    install.args(packages);
    let installed =
        step("package lists", &mut apt(&["update"])).and_then(|()| step(what, &mut install));
    if let Err(error) = installed {
        println!("{error:#}");
    }
    Ok(is_present())
}

fn runs(program: &str, arguments: &[&str]) -> bool {
    Command::new(program)
        .args(arguments)
        .output()
        .is_ok_and(|output| output.status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_compare_by_their_second_number() {
        assert_eq!(minor("1.95"), Some(95));
        assert_eq!(minor("1.100.0"), Some(100));
        assert!(minor("1.100.0") > minor("1.95"));
        assert_eq!(minor("2.0"), None);
    }
}
