//! Owns the test of the kernels' tests: every mutant of the kernels must make a test fail, or stand in the list of those
//! that cannot, with the reason.

use crate::setup::{self, HOW_TO_GET_CLANG};
use crate::steps::{cargo, repository, step};
use anyhow::{Context, Result, bail};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A mutant that takes longer hangs, and that is noticed too.
const LONGEST: Duration = Duration::from_secs(600);

/// `file:line`, a tab, the change, a tab, the reason. Lines move with edits, so the change tells them apart.
const SURVIVORS: &str = "crates/kernels/survivors.tsv";

struct Mutant {
    number: usize,
    place: String,
    change: String,
}

struct Survivor {
    file: String,
    change: String,
    reason: String,
}

enum Outcome {
    Caught,
    Survived,
}

/// Runs the mutants whose place or change contains `filter`.
pub fn run(filter: &str) -> Result<()> {
    if !setup::clang()? {
        bail!("mutate needs {HOW_TO_GET_CLANG}");
    }
    let build = [
        "build",
        "--profile",
        "checked",
        "--package",
        "mettle-kernels",
    ];
    let what = ["--features", "mutants", "--example", "mutants"];
    step("mutants", cargo(&build).args(what))?;
    let mut mutants = list()?;
    mutants.retain(|m| m.place.contains(filter) || m.change.contains(filter));
    let known = survivors()?;
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let queue = std::sync::Mutex::new(mutants.iter());
    let done = std::sync::Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let next = queue.lock().expect("no holder panics").next();
                    let Some(mutant) = next else { return };
                    let outcome = try_one(mutant);
                    done.lock()
                        .expect("no holder panics")
                        .push((mutant, outcome));
                }
            });
        }
    });
    let mut done = done.into_inner().expect("no holder panics");
    done.sort_by_key(|(mutant, _)| mutant.number);
    judge(done, &known)
}

fn judge(done: Vec<(&Mutant, Result<Outcome>)>, known: &[Survivor]) -> Result<()> {
    let count = done.len();
    let (mut caught, mut unexplained) = (0, 0);
    for (mutant, outcome) in done {
        let explained = known.iter().find(|s| {
            mutant.place.starts_with(&format!("{}:", s.file)) && mutant.change == s.change
        });
        match (outcome?, explained) {
            (Outcome::Caught, None) => caught += 1,
            (Outcome::Caught, Some(_)) => {
                caught += 1;
                println!(
                    "{} ({}): caught now; {SURVIVORS} may forget it",
                    mutant.place, mutant.change
                );
            }
            (Outcome::Survived, Some(known)) => {
                println!(
                    "survives: {} ({}): {}",
                    mutant.place, mutant.change, known.reason
                );
            }
            (Outcome::Survived, None) => {
                unexplained += 1;
                println!(
                    "SURVIVES, no reason given: {} ({})",
                    mutant.place, mutant.change
                );
            }
        }
    }
    println!("{caught} of {count} mutants caught");
    match unexplained {
        0 => Ok(()),
        _ => bail!("{unexplained} mutants survive without a reason in {SURVIVORS}"),
    }
}

fn example() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    let target = target.unwrap_or_else(|| PathBuf::from("target"));
    repository().join(target).join("checked/examples/mutants")
}

fn list() -> Result<Vec<Mutant>> {
    let output = Command::new(example()).arg("list").output()?;
    let text = String::from_utf8(output.stdout)?;
    text.lines()
        .map(|line| {
            let mut parts = line.splitn(3, '\t');
            let mut part = || parts.next().context("three columns").map(str::to_owned);
            Ok(Mutant {
                number: part()?.parse()?,
                place: part()?,
                change: part()?,
            })
        })
        .collect()
}

fn survivors() -> Result<Vec<Survivor>> {
    let path = repository().join(SURVIVORS);
    let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    text.lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(|line| match line.split('\t').collect::<Vec<_>>()[..] {
            [file, change, reason] if !reason.is_empty() => Ok(Survivor {
                file: file.to_owned(),
                change: change.to_owned(),
                reason: reason.to_owned(),
            }),
            _ => bail!("{SURVIVORS}: a line is file, change and reason with tabs between: {line}"),
        })
        .collect()
}

fn try_one(mutant: &Mutant) -> Result<Outcome> {
    let mut child = Command::new(example())
        .args(["run", &mutant.number.to_string()])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    Ok(match ended_well(&mut child)? {
        true => Outcome::Survived,
        false => Outcome::Caught,
    })
}

/// Whether it ended with 0, in time.
fn ended_well(child: &mut Child) -> Result<bool> {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status.success());
        }
        if start.elapsed() > LONGEST {
            child.kill()?;
            child.wait()?;
            return Ok(false);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}
