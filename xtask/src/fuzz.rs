//! Owns the fuzz runs. The targets are plain libFuzzer binaries; coverage instrumentation needs compiler flags only, so
//! no other tool has to be installed.

use crate::steps::{cargo, repository, step};
use anyhow::{Context, Result};
use std::process::Command;

const TARGETS: [&str; 5] = [
    "gguf",
    "quantized_safetensors",
    "safetensors_header",
    "template",
    "tokenizer_model",
];

const COVERAGE: &str = "--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Ccodegen-units=1";

/// That the targets still compile: they are outside the workspace, so no other step would notice.
pub fn check() -> Result<()> {
    let folder = repository().join("fuzz");
    let mut check = cargo(&["check", "--quiet", "--bins"]);
    check
        .current_dir(&folder)
        .env("CARGO_TARGET_DIR", folder.join("target"));
    step("fuzz targets", &mut check)
}

pub fn run(seconds: u32) -> Result<()> {
    let folder = repository().join("fuzz");
    // Naming the target keeps the flags away from build scripts, which could not link with them.
    let target = host()?;
    let mut build = cargo(&["build", "--release", "--bins", "--target", &target]);
    // The coverage pass is an unstable flag of the stable compiler.
    build
        .current_dir(&folder)
        .env("RUSTFLAGS", COVERAGE)
        .env("RUSTC_BOOTSTRAP", "1")
        .env("CARGO_TARGET_DIR", folder.join("target"));
    step("fuzz build", &mut build)?;
    let binaries = folder.join("target").join(&target).join("release");
    for name in TARGETS {
        let corpus = folder.join("corpus").join(name);
        std::fs::create_dir_all(&corpus).with_context(|| format!("{}", corpus.display()))?;
        let mut command = Command::new(binaries.join(name));
        command
            .current_dir(&folder)
            .arg(&corpus)
            .arg(folder.join("seeds").join(name))
            .arg(format!("-max_total_time={seconds}"))
            .args([
                "-rss_limit_mb=2048",
                "-timeout=20",
                "-verbosity=0",
                "-print_final_stats=1",
            ]);
        step(&format!("fuzz {name}"), &mut command)?;
    }
    Ok(())
}

/// The triple of this machine, as the compiler says it.
fn host() -> Result<String> {
    let output = Command::new("rustc")
        .arg("-vV")
        .output()
        .context("rustc -vV")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(line.context("rustc -vV names no host")?.to_owned())
}
