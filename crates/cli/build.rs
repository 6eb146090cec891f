//! Owns the commit that the binary was built from, for benchmark records.

use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=../../.git/HEAD");
    println!("cargo::rerun-if-changed=../../.git/logs/HEAD");
    let output = Command::new("git")
        .args(["rev-parse", "--short=12", "HEAD"])
        .output();
    let commit = output
        .ok()
        .filter(|o| o.status.success())
        .and_then(|o| String::from_utf8(o.stdout).ok());
    println!(
        "cargo::rustc-env=METTLE_COMMIT={}",
        commit.as_deref().map_or("unknown", str::trim)
    );
}
