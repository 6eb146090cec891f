//! Owns how large a request for structured output may be and how long its grammar may take to compile.

use llguidance::api::ParserLimits;
use std::time::Duration;

/// Levels of nesting in a JSON schema. serde_json reads no more than 128.
pub(crate) const SCHEMA_DEPTH: usize = 128;

/// Levels of brackets in a regular expression or a grammar, which are read by recursion.
pub(crate) const BRACKET_DEPTH: usize = 200;

/// Tools of one request; OpenAI takes 128.
pub(crate) const MAX_TOOLS: usize = 256;

/// What one request may ask for.
#[derive(Clone, Debug)]
pub struct Limits {
    /// From the call to the compiled grammar, waiting for a free thread included.
    pub deadline: Duration,
    /// All JSON schemas of a request together, as compact JSON. OpenAI's own limit is 120,000 characters.
    pub schema_bytes: usize,
    /// One step through a regular expression may cost the square of its length, which the fuel does not see: 2,000
    /// optional characters take 50 ms and 40 MB to refuse.
    pub regex_bytes: usize,
    /// As for regular expressions: 5,000 optional ones in a row take 200 MB to refuse.
    pub grammar_bytes: usize,
    pub choices: usize,
    /// All choices together.
    pub choice_bytes: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            deadline: Duration::from_secs(5),
            schema_bytes: 256 << 10,
            regex_bytes: 4 << 10,
            grammar_bytes: 32 << 10,
            choices: 10_000,
            choice_bytes: 256 << 10,
        }
    }
}

/// What the grammar library may spend. Its fuel is counted, not timed, so the same request is always refused or never.
pub(crate) fn parser_limits() -> ParserLimits {
    ParserLimits {
        // Four for each optional property that may come next: 2,000 of them, at 15 ms a token.
        max_items_in_row: 8_000,
        initial_lexer_fuel: 1_000_000,
        // A mask: about 15 ms of lexing and 3 ms of parsing by the library's own figures.
        step_lexer_fuel: 200_000,
        step_max_items: 50_000,
        // 1 to 2 kB each: tens of megabytes for the worst grammar, where the library's default would allow 500.
        max_lexer_states: 25_000,
        max_grammar_size: 200_000,
        precompute_large_lexemes: true,
        verbose_errors: false,
    }
}
