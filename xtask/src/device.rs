//! Owns the tests on one GPU: its crate's own, then kernels, fixtures and the default model through the release binary.

use crate::setup::{self, HOW_TO_GET_CLANG};
use crate::steps::{DEFAULT_MODEL, binary, cargo, repository, step};
use anyhow::{Result, bail};
use std::process::Command;

/// A device that can be tested.
struct Device {
    name: &'static str,
    /// The crate that implements it.
    package: &'static str,
    /// What turns it on in the binary; what has to be turned on calls clang.
    feature: Option<&'static str>,
    /// What turns it and its tests on in its crate.
    tests: Option<&'static str>,
}

const fn device(
    name: &'static str,
    package: &'static str,
    feature: Option<&'static str>,
    tests: Option<&'static str>,
) -> Device {
    Device {
        name,
        package,
        feature,
        tests,
    }
}

const DEVICES: [Device; 3] = [
    device("metal", "mettle-metal", None, None),
    device("cuda", "mettle-cuda", Some("cuda"), Some("test-on-device")),
    device("emulator", "mettle-gpu", Some("emulator"), Some("emulator")),
];

/// One command for whoever has the device, whose output is the report.
pub fn run(name: &str) -> Result<()> {
    let Some(device) = DEVICES.iter().find(|device| device.name == name) else {
        let names = DEVICES.map(|device| device.name).join(", ");
        bail!("there is no device {name}; there are {names}");
    };
    if name == "metal" && !cfg!(target_os = "macos") {
        bail!("metal needs a Mac; `cargo xtask macos-check` is what other systems can do");
    }
    if device.feature.is_some() && !setup::clang()? {
        bail!("{name} needs {HOW_TO_GET_CLANG}");
    }
    let mut tests = cargo(&["test", "--profile", "checked", "--no-fail-fast"]);
    tests.args(["--package", device.package]);
    let mut build = cargo(&["build", "--release", "--package", "mettle-cli"]);
    if let Some(feature) = device.tests {
        tests.args(["--features", feature]);
    }
    if let Some(feature) = device.feature {
        build.args(["--features", feature]);
    }
    let own = step(&format!("tests of {}", device.package), &mut tests);
    step("release build", &mut build)?;
    let validate = |what: &[&str]| {
        let mut command = Command::new(binary("release"));
        command.current_dir(repository()).arg("validate");
        command.args(what).args(["--device", device.name]);
        step(&format!("validate {}", what.join(" ")), &mut command)
    };
    let kernels = validate(&["--kernels"]);
    let fixtures = validate(&["--fixtures", "fixtures/models"]);
    let model = validate(&["-m", DEFAULT_MODEL]);
    summary(
        device.name,
        [
            ("the device's own tests", own),
            ("every kernel", kernels),
            ("tiny models against transformers", fixtures),
            (DEFAULT_MODEL, model),
        ],
    )
}

/// A line each, failures with their reason; fails if one did.
fn summary(device: &str, results: [(&str, Result<()>); 4]) -> Result<()> {
    println!("== {device}");
    let mut failed = 0;
    for (what, result) in &results {
        match result {
            Ok(()) => println!("passed: {what}"),
            Err(error) => {
                failed += 1;
                println!("FAILED: {what}: {error:#}");
            }
        }
    }
    match failed {
        0 => Ok(()),
        _ => bail!("{device}: {failed} of {} failed", results.len()),
    }
}
