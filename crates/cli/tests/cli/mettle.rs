//! Owns one run of the program, in a home of its own and without the caller's environment.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;

pub struct Mettle {
    pub home: TempDir,
}

#[derive(Debug, PartialEq, Eq)]
pub struct Outcome {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Mettle {
    pub fn new() -> Mettle {
        Mettle {
            home: tempfile::tempdir().unwrap(),
        }
    }

    /// No network can be reached: a test that would fetch something fails.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_mettle"));
        command
            .args(args)
            .env_clear()
            .env("METTLE_HOME", self.home.path())
            .env("METTLE_OFFLINE", "1")
            .env("METTLE_THREADS", "2")
            .current_dir(self.home.path());
        command
    }

    pub fn run(&self, args: &[&str]) -> Outcome {
        self.run_with_stdin(args, "")
    }

    pub fn run_with_stdin(&self, args: &[&str], stdin: &str) -> Outcome {
        let mut child = self
            .command(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut pipe = child.stdin.take().unwrap();
        // A program that does not read its input is none of ours to blame.
        let _ = pipe.write_all(stdin.as_bytes());
        drop(pipe);
        let output = child.wait_with_output().unwrap();
        let text = |bytes: Vec<u8>| {
            let text = String::from_utf8(bytes).expect("UTF-8");
            let models = models().display().to_string();
            text.replace(&self.home.path().display().to_string(), "HOME")
                .replace(&models, "MODELS")
        };
        Outcome {
            code: output.status.code(),
            stdout: text(output.stdout),
            stderr: text(output.stderr),
        }
    }

    /// The stderr of a run that must fail with `code` and print nothing else.
    pub fn fail(&self, code: i32, args: &[&str]) -> String {
        let outcome = self.run(args);
        assert_eq!(
            (outcome.code, outcome.stdout.as_str()),
            (Some(code), ""),
            "{outcome:?}"
        );
        outcome.stderr
    }

    /// The stdout of a run that must succeed.
    pub fn succeed(&self, args: &[&str]) -> String {
        let outcome = self.run(args);
        assert_eq!(outcome.code, Some(0), "{outcome:?}");
        outcome.stdout
    }
}

/// A tiny model of the fixtures.
pub fn fixture(name: &str) -> String {
    let path = models().join(name);
    assert!(path.exists(), "{}", path.display());
    path.display().to_string()
}

fn models() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/models")
}
