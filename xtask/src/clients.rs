//! Owns the tests from outside: official clients, fuzzers, a browser and a load against the real program. Each is a Python
//! driver in `tests/clients` that starts its own servers with the default model.

use crate::setup;
use crate::steps::{DEFAULT_MODEL, binary, cargo, repository, step};
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The packages that a driver runs with.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Packages {
    /// None: any Python will do.
    Own,
    /// Those that `tests/clients/NAME.txt` pins.
    Pinned(&'static str),
}

struct Driver {
    name: &'static str,
    script: &'static str,
    packages: Packages,
    needs_chromium: bool,
}

const fn driver(name: &'static str, script: &'static str, packages: Packages) -> Driver {
    Driver {
        name,
        script,
        packages,
        needs_chromium: false,
    }
}

const OLDER: Packages = Packages::Pinned("openai_2");
const NEWER: Packages = Packages::Pinned("openai_3");

const DRIVERS: [Driver; 11] = [
    driver("openai-2", "openai_client.py", OLDER),
    driver("openai-3", "openai_client.py", NEWER),
    driver("structured-2", "openai_structured.py", OLDER),
    driver("structured-3", "openai_structured.py", NEWER),
    driver("anthropic", "anthropic_client.py", NEWER),
    driver("schema", "schema_fuzz.py", NEWER),
    driver("nonsense", "nonsense.py", Packages::Own),
    driver("misbehaving", "misbehaving_clients.py", Packages::Own),
    driver("kill", "kill.py", Packages::Own),
    Driver {
        needs_chromium: true,
        ..driver("page", "page.py", Packages::Own)
    },
    driver("load", "load.py", Packages::Own),
];

/// Builds the program and runs one driver or all, for whoever is at work on either.
pub fn run(name: Option<&str>, full: bool) -> Result<()> {
    if let Some(name) = name.filter(|name| DRIVERS.iter().all(|driver| driver.name != *name)) {
        let names = DRIVERS.map(|driver| driver.name).join(", ");
        bail!("there is no driver {name}; there are {names}");
    }
    let build = ["build", "--profile", "checked", "--package", "mettle-cli"];
    step("build", &mut cargo(&build))?;
    pull_default_model()?;
    let not_run = check(name, full)?;
    match not_run.is_empty() {
        true => Ok(()),
        false => bail!("not run: {}", not_run.join("; ")),
    }
}

/// The default model, fetched by the program that was built for the tests.
pub fn pull_default_model() -> Result<()> {
    let mut pull = Command::new(binary("checked"));
    step("default model", pull.args(["pull", DEFAULT_MODEL]))
}

/// Runs the drivers, all of them even where one fails. Gives what could not be run, and how it could.
pub fn check(only: Option<&str>, full: bool) -> Result<Vec<String>> {
    let mut not_run = Vec::new();
    let mut failed = Vec::new();
    if !setup::python() {
        return Ok(vec![format!(
            "the tests from outside: {}",
            setup::HOW_TO_GET_PYTHON
        )]);
    }
    for driver in DRIVERS {
        if only.is_some_and(|name| name != driver.name) {
            continue;
        }
        if driver.needs_chromium && !setup::chromium()? {
            not_run.push(format!("the page: {}", setup::HOW_TO_GET_CHROMIUM));
            continue;
        }
        let python = match driver.packages {
            Packages::Own => Ok(PathBuf::from("python3")),
            Packages::Pinned(name) => environment(name),
        };
        let python = match python {
            Ok(python) => python,
            Err(error) => {
                not_run.push(format!(
                    "{}: {error:#} ({})",
                    driver.name,
                    setup::HOW_TO_GET_PYTHON
                ));
                continue;
            }
        };
        if let Err(error) = step(
            &format!("clients: {}", driver.name),
            &mut driver.command(&python, full),
        ) {
            println!("{error:#}");
            failed.push(driver.name);
        }
    }
    match failed.is_empty() {
        true => Ok(not_run),
        false => bail!("tests from outside failed: {}", failed.join(", ")),
    }
}

impl Driver {
    fn command(&self, python: &Path, full: bool) -> Command {
        let mut command = Command::new(python);
        command
            .current_dir(repository())
            .arg(scripts().join(self.script))
            .arg(binary("checked"))
            .arg("--out")
            .arg(folder());
        if full {
            command.arg("--full");
        }
        command
    }
}

fn scripts() -> PathBuf {
    repository().join("tests").join("clients")
}

fn folder() -> PathBuf {
    repository().join("target").join("clients")
}

/// The Python of a virtual environment with what `NAME.txt` pins, made where it is not there yet or was made for other pins.
fn environment(name: &str) -> Result<PathBuf> {
    let pins_file = scripts().join(format!("{name}.txt"));
    let pins = std::fs::read_to_string(&pins_file)
        .with_context(|| format!("cannot read {}", pins_file.display()))?;
    let place = folder().join(name);
    let python = place.join("bin").join("python");
    // Written last, so that a half-made environment is made again.
    let stamp = place.join("installed.txt");
    if std::fs::read_to_string(&stamp).is_ok_and(|installed| installed == pins) {
        return Ok(python);
    }
    if place.exists() {
        std::fs::remove_dir_all(&place)
            .with_context(|| format!("cannot remove {}", place.display()))?;
    }
    let mut create = Command::new("python3");
    step(
        &format!("environment {name}"),
        create.args(["-m", "venv"]).arg(&place),
    )?;
    let mut install = Command::new(&python);
    install.args([
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--requirement",
    ]);
    step(&format!("packages of {name}"), install.arg(&pins_file))?;
    std::fs::write(&stamp, &pins).with_context(|| format!("cannot write {}", stamp.display()))?;
    Ok(python)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_script_and_list_of_packages_is_there_and_used() {
        let others = [
            "serving.py",
            "openai_asking.py",
            "spoilt_bodies.py",
            "picture.py",
        ];
        let mut used = others.map(str::to_owned).to_vec();
        for driver in DRIVERS {
            used.push(driver.script.to_owned());
            if let Packages::Pinned(name) = driver.packages {
                used.push(format!("{name}.txt"));
            }
        }
        used.sort();
        used.dedup();
        let mut there: Vec<String> = std::fs::read_dir(scripts())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| name.ends_with(".py") || name.ends_with(".txt"))
            .collect();
        there.sort();
        assert_eq!(there, used);
    }
}
