//! Owns the cutting of MSL text into words and signs, each with the file and line it came from. Knows no grammar.

use crate::error::KernelError;
use std::ops::Range;
use std::sync::Arc;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenKind {
    Word,
    Number,
    /// A string or character literal, quotes included.
    Literal,
    /// One character.
    Sign,
}

#[derive(Clone, Debug)]
pub struct Token<'a> {
    pub kind: TokenKind,
    pub text: &'a str,
    pub span: Range<usize>,
    pub file: Arc<str>,
    pub line: usize,
}

impl Token<'_> {
    pub fn is(&self, text: &str) -> bool {
        self.text == text && self.kind != TokenKind::Literal
    }

    pub fn error(&self, message: impl Into<String>) -> KernelError {
        KernelError::Source {
            file: self.file.to_string(),
            line: self.line,
            message: message.into(),
        }
    }
}

/// Cuts `text`, leaving out comments and preprocessor lines; `#line` sets where the next tokens come from.
pub fn tokenize<'a>(name: &str, text: &'a str) -> Vec<Token<'a>> {
    let mut tokens = Vec::new();
    let mut file: Arc<str> = name.into();
    let mut line = 1;
    let mut at = 0;
    let mut line_start = true;
    while let Some(next) = text[at..].chars().next() {
        let rest = &text[at..];
        let (kind, length) = if next == '\n' {
            (line, line_start) = (line + 1, true);
            at += 1;
            continue;
        } else if next.is_whitespace() {
            at += next.len_utf8();
            continue;
        } else if next == '#' && line_start {
            let length = directive_length(rest);
            if let Some((number, name)) = line_directive(&rest[..length]) {
                file = name.into();
                line = number;
                // The directive numbers the line after it.
                at += (length + 1).min(rest.len());
                continue;
            }
            line += rest[..length].matches('\n').count();
            at += length;
            continue;
        } else if rest.starts_with("//") {
            at += rest.find('\n').unwrap_or(rest.len());
            continue;
        } else if rest.starts_with("/*") {
            let length = rest.find("*/").map_or(rest.len(), |end| end + 2);
            line += rest[..length].matches('\n').count();
            at += length;
            continue;
        } else if next == '"' || next == '\'' {
            (TokenKind::Literal, literal_length(rest, next))
        } else if next.is_alphabetic() || next == '_' {
            let is_part = |c: char| c.is_alphanumeric() || c == '_';
            let length = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
            (TokenKind::Word, length)
        } else if next.is_ascii_digit() {
            let is_part = |c: char| c.is_alphanumeric() || c == '.' || c == '_';
            let length = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
            (TokenKind::Number, length)
        } else {
            (TokenKind::Sign, next.len_utf8())
        };
        line_start = false;
        tokens.push(Token {
            kind,
            text: &rest[..length],
            span: at..at + length,
            file: file.clone(),
            line,
        });
        line += rest[..length].matches('\n').count();
        at += length;
    }
    tokens
}

/// Up to the end of the line, backslashed line ends included.
fn directive_length(rest: &str) -> usize {
    let mut length = 0;
    for line in rest.split_inclusive('\n') {
        length += line.len();
        if !line.trim_end().ends_with('\\') {
            break;
        }
    }
    length - usize::from(rest[..length].ends_with('\n'))
}

fn line_directive(directive: &str) -> Option<(usize, &str)> {
    let rest = directive.strip_prefix("#line ")?;
    let (number, name) = rest.split_once(' ')?;
    Some((number.parse().ok()?, name.trim().trim_matches('"')))
}

fn literal_length(rest: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, next) in rest.char_indices().skip(1) {
        match next {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if next == quote => return at + 1,
            _ => {}
        }
    }
    rest.len()
}

/// The index of the sign that closes the one at `open`, counting only that pair.
pub fn closing(tokens: &[Token], open: usize, signs: (&str, &str)) -> Result<usize, KernelError> {
    let mut depth = 0;
    for (index, token) in tokens.iter().enumerate().skip(open) {
        if token.is(signs.0) {
            depth += 1;
        } else if token.is(signs.1) {
            depth -= 1;
            if depth == 0 {
                return Ok(index);
            }
        }
    }
    Err(tokens[open].error(format!("`{}` is never closed", signs.0)))
}

/// Splits at commas that lie in no bracket of any kind.
pub fn split_commas<'t, 'a>(tokens: &'t [Token<'a>]) -> Vec<&'t [Token<'a>]> {
    let mut parts = Vec::new();
    let (mut depth, mut start) = (0, 0);
    for (index, token) in tokens.iter().enumerate() {
        match token.text {
            "(" | "[" | "{" | "<" => depth += 1,
            ")" | "]" | "}" | ">" => depth -= 1,
            "," if depth == 0 => {
                parts.push(&tokens[start..index]);
                start = index + 1;
            }
            _ => {}
        }
    }
    if start < tokens.len() {
        parts.push(&tokens[start..]);
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_know_their_line_through_comments_directives_and_includes() {
        let text =
            "a /* x\n y */ b\n#define Z \\\n  more\nc \"d\\\"e\" // f\n#line 7 \"h.h\"\ng1.5h";
        let tokens = tokenize("k.metal", text);
        let seen: Vec<_> = tokens
            .iter()
            .map(|t| format!("{} {}:{}", t.text, t.file, t.line))
            .collect();
        let expected = [
            "a k.metal:1",
            "b k.metal:2",
            "c k.metal:5",
            "\"d\\\"e\" k.metal:5",
            "g1 h.h:7",
            ". h.h:7",
            "5h h.h:7",
        ];
        assert_eq!(seen, expected);
    }
}
