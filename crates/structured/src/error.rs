//! Owns the reasons why a request for structured output is refused.

use std::time::Duration;

/// Longest part of a message that quotes somebody else's words.
const LONGEST_REASON: usize = 300;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StructuredError {
    #[error("{what} has {size} bytes, the limit is {limit}")]
    TooLarge {
        what: &'static str,
        size: usize,
        limit: usize,
    },
    #[error("{what} has {count} entries, the limit is {limit}")]
    TooMany {
        what: &'static str,
        count: usize,
        limit: usize,
    },
    #[error("{what} is nested deeper than {limit} levels")]
    TooDeep { what: &'static str, limit: usize },
    #[error("{what}: {reason}")]
    Invalid { what: &'static str, reason: String },
    #[error("{what} does not compile: {reason}")]
    DoesNotCompile { what: &'static str, reason: String },
    #[error("{what} did not compile within {} ms", limit.as_millis())]
    TooSlow { what: &'static str, limit: Duration },
    /// Not the caller's fault: try again.
    #[error("too many grammars are being compiled; try again later")]
    Busy,
    /// Not the caller's fault: the model's vocabulary cannot be constrained.
    #[error("this model's vocabulary cannot be constrained: {0}")]
    Vocabulary(String),
}

impl StructuredError {
    /// True where another request would have been served: a 400. Otherwise the server is at fault or busy.
    pub fn is_callers_fault(&self) -> bool {
        !matches!(self, Self::Busy | Self::Vocabulary(_))
    }

    pub(crate) fn invalid(what: &'static str, reason: impl Into<String>) -> Self {
        Self::Invalid {
            what,
            reason: reason.into(),
        }
    }
}

/// One line of bounded length out of a message of the grammar library, which may bring states and backtraces along.
pub(crate) fn one_line(message: &str) -> String {
    if message.starts_with("panic: ") {
        return "it is beyond what can be constrained".to_owned();
    }
    let lines = message.lines().map(str::trim);
    let kept: Vec<&str> = lines
        .take_while(|line| !line.starts_with('<'))
        .filter(|line| !line.is_empty() && !quotes_source(line))
        .collect();
    let mut line = kept.join("; ");
    // Advice to authors of grammars, where a schema was asked for.
    line.truncate(line.find("; consider ").unwrap_or(line.len()));
    match line.char_indices().nth(LONGEST_REASON) {
        Some((end, _)) => format!("{}...", &line[..end]),
        None => line,
    }
}

/// A numbered line of a grammar that is our own translation: `12 | start: ..`, and the mark below it.
fn quotes_source(line: &str) -> bool {
    let number = line.split_once(" |").map(|(number, _)| number.trim());
    line.trim_matches(['^', '~', ' ']).is_empty()
        || number.is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_become_one_line() {
        assert_eq!(
            one_line("at 1(2): a\n\n 3 | start: x\n  ^\nb"),
            "at 1(2): a; b"
        );
        assert_eq!(one_line("a\n\n  b\n<state>\nsecret"), "a; b");
        assert_eq!(one_line("panic: at /x\n<backtrace>"), one_line("panic: y"));
        assert!(!one_line("panic: at /x").contains("/x"));
        let long = one_line(&"é".repeat(1000));
        assert_eq!(long.chars().count(), LONGEST_REASON + 3);
    }
}
