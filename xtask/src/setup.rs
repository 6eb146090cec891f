//! Owns what the tests need beyond Rust: clang from the distribution, for the kernels' emulator and PTX.

use crate::steps::step;
use anyhow::Result;
use std::process::Command;

/// How a person gets it where we may not install it.
pub const HOW_TO_GET_CLANG: &str =
    "clang-19 (Debian, Ubuntu: apt-get install clang-19 lld-19 libclang-rt-19-dev)";

/// Whether clang 19 is there, installed now if need be and possible.
pub fn clang() -> Result<bool> {
    if runs("clang++-19", &["--version"]) {
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
    let packages = [
        "install",
        "--no-install-recommends",
        "clang-19",
        "lld-19",
        "libclang-rt-19-dev",
    ];
    let installed = step("package lists", &mut apt(&["update"]))
        .and_then(|()| step("clang", &mut apt(&packages)));
    if let Err(error) = installed {
        println!("{error:#}");
    }
    Ok(runs("clang++-19", &["--version"]))
}

fn runs(program: &str, arguments: &[&str]) -> bool {
    Command::new(program)
        .args(arguments)
        .output()
        .is_ok_and(|output| output.status.success())
}
