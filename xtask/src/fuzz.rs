//! Owns the fuzz runs. The targets are plain libFuzzer binaries; coverage instrumentation needs compiler flags only, so
//! no other tool has to be installed.

use crate::steps::{cargo, repository, step};
use anyhow::{Context, Result};

const TARGETS: [&str; 3] = ["gguf", "safetensors_header", "template"];

const COVERAGE: &str = "--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Ccodegen-units=1";

pub fn run(seconds: u32) -> Result<()> {
    let folder = repository().join("fuzz");
    let mut build = cargo(&["build", "--release", "--bins"]);
    // The coverage pass is an unstable flag of the stable compiler.
    build
        .current_dir(&folder)
        .env("RUSTFLAGS", COVERAGE)
        .env("RUSTC_BOOTSTRAP", "1")
        .env("CARGO_TARGET_DIR", folder.join("target"));
    step("fuzz build", &mut build)?;
    for target in TARGETS {
        let corpus = folder.join("corpus").join(target);
        std::fs::create_dir_all(&corpus).with_context(|| format!("{}", corpus.display()))?;
        let mut command = std::process::Command::new(folder.join("target/release").join(target));
        command
            .current_dir(&folder)
            .arg(&corpus)
            .arg(folder.join("seeds").join(target))
            .arg(format!("-max_total_time={seconds}"))
            .args([
                "-rss_limit_mb=2048",
                "-timeout=20",
                "-verbosity=0",
                "-print_final_stats=1",
            ]);
        step(&format!("fuzz {target}"), &mut command)?;
    }
    Ok(())
}
