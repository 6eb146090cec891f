//! Owns what people see: errors in one line, colours and progress bars only on a terminal, quiet broken pipes.

use crate::config::ConfigError;
use crate::interrupt::{self, Interrupted};
use indicatif::{ProgressBar, ProgressStyle};
use mettle_weights::WeightsError;
use mettle_weights::download::Progress;
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

const USAGE: u8 = 2;

/// Prints why a command failed and gives its exit code.
pub fn report(error: &anyhow::Error) -> ExitCode {
    if is_broken_pipe(error) {
        return ExitCode::SUCCESS;
    }
    let is_interrupt =
        error.is::<Interrupted>() || matches!(error.downcast_ref(), Some(WeightsError::Cancelled));
    let text = match is_interrupt {
        true => "interrupted".to_owned(),
        false => format!("{error:#}"),
    };
    let label = paint(&io::stderr(), "1;31", "error:");
    // Nothing is left to tell anybody if stderr is gone.
    let _ = writeln!(io::stderr(), "{label} {text}");
    match is_interrupt {
        true => ExitCode::from(interrupt::EXIT_CODE),
        false if error.is::<ConfigError>() => ExitCode::from(USAGE),
        false => ExitCode::FAILURE,
    }
}

/// The reader of our output has what it wanted.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<io::Error>())
        .any(|cause| cause.kind() == io::ErrorKind::BrokenPipe)
}

/// A line on stderr that only informs.
pub fn note(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// `text` in a colour where `stream` shows colours and nobody forbade them.
pub fn paint(stream: &impl IsTerminal, code: &str, text: &str) -> String {
    match has_colour(stream) {
        true => format!("\x1b[{code}m{text}\x1b[0m"),
        false => text.to_owned(),
    }
}

fn has_colour(stream: &impl IsTerminal) -> bool {
    let is_set = |name| crate::config::environment(name).is_some_and(|v| !v.is_empty());
    let is_dumb = crate::config::environment("TERM").is_some_and(|term| term == "dumb");
    stream.is_terminal() && !is_set("NO_COLOR") && !is_dumb
}

/// `98.4 MB`.
pub fn bytes(count: u64) -> String {
    format!("{}B", mettle_plan::print::human(count))
}

/// Progress through a known number of things, on a terminal only.
pub struct Counter {
    bar: Option<ProgressBar>,
    what: &'static str,
}

impl Counter {
    pub fn new(what: &'static str) -> Counter {
        Counter { bar: None, what }
    }

    /// `done` of `of` are done, `name` the last of them.
    pub fn at(&mut self, done: usize, of: usize, name: &str) {
        if !io::stderr().is_terminal() {
            return;
        }
        let what = self.what;
        let bar = self.bar.get_or_insert_with(|| {
            let template = format!("{{wide_bar}} {{pos}}/{{len}} {what} {{elapsed}} {{msg}}");
            ProgressBar::new(of as u64).with_style(style(&template))
        });
        bar.set_position(done as u64);
        bar.set_message(name.to_owned());
        if done == of {
            bar.finish_and_clear();
        }
    }
}

/// A download's progress: a bar on a terminal, a line per step elsewhere.
pub struct Bar {
    bar: Option<ProgressBar>,
}

impl Bar {
    pub fn new() -> Bar {
        Bar { bar: None }
    }
}

impl Progress for Bar {
    fn begin(&mut self, what: &str, total: Option<u64>) {
        if !io::stderr().is_terminal() {
            let size = total.map(|total| format!(" ({})", bytes(total)));
            return note(&format!("{what}{}", size.unwrap_or_default()));
        }
        let bar = match total {
            Some(total) => ProgressBar::new(total).with_style(style(
                "{msg} {wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {eta}",
            )),
            None => ProgressBar::new_spinner().with_style(style("{spinner} {msg} {bytes}")),
        };
        bar.set_message(what.to_owned());
        self.bar = Some(bar);
    }

    fn advance(&mut self, done: u64) {
        if let Some(bar) = &self.bar {
            bar.set_position(done);
        }
    }

    fn finish(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).expect("the template is a constant")
}
