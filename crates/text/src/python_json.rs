//! Owns writing a template value as JSON the way Python's `json.dumps` does, because chat
//! templates were written against that: models have seen its spaces.

use std::fmt::Write;

use minijinja::value::{Value, ValueKind};
use minijinja::{Error, ErrorKind};

/// Deeper values are an error instead of a stack overflow.
const MAX_DEPTH: usize = 200;

pub(crate) struct Style {
    /// One item a line, indented by this text.
    pub(crate) indent: Option<String>,
    pub(crate) item_separator: String,
    pub(crate) key_separator: String,
    pub(crate) ensure_ascii: bool,
    pub(crate) sort_keys: bool,
    /// An error soon after the text grows beyond these bytes: a small value that holds another twice, which holds
    /// another twice, ... is a text without end.
    pub(crate) limit: usize,
}

pub(crate) fn dumps(value: &Value, style: &Style) -> Result<String, Error> {
    let mut out = String::new();
    write_value(value, style, 0, &mut out)?;
    Ok(out)
}

fn write_value(value: &Value, style: &Style, depth: usize, out: &mut String) -> Result<(), Error> {
    if depth > MAX_DEPTH {
        return Err(refuse(format!(
            "tojson: a value nested deeper than {MAX_DEPTH}"
        )));
    }
    if out.len() > style.limit {
        let limit = style.limit;
        return Err(refuse(format!("tojson: a text of more than {limit} bytes")));
    }
    match value.kind() {
        ValueKind::None => out.push_str("null"),
        ValueKind::Bool => out.push_str(if value.is_true() { "true" } else { "false" }),
        ValueKind::Number => out.push_str(&number(value)),
        ValueKind::String => write_string(value.as_str().unwrap_or_default(), style, out),
        ValueKind::Seq | ValueKind::Iterable => {
            let items = value.try_iter()?.map(|item| (None, item));
            write_items('[', ']', items, style, depth, out)?;
        }
        ValueKind::Map => {
            let mut entries = Vec::new();
            for key in value.try_iter()? {
                entries.push((Some(key_text(&key)?), value.get_item(&key)?));
            }
            if style.sort_keys {
                entries.sort_by(|a, b| a.0.cmp(&b.0));
            }
            write_items('{', '}', entries.into_iter(), style, depth, out)?;
        }
        other => return Err(refuse(format!("tojson: {other} is not JSON serializable"))),
    }
    Ok(())
}

fn write_items(
    open: char,
    close: char,
    items: impl Iterator<Item = (Option<String>, Value)>,
    style: &Style,
    depth: usize,
    out: &mut String,
) -> Result<(), Error> {
    let break_line = |depth: usize, out: &mut String| {
        if let Some(indent) = &style.indent {
            out.push('\n');
            (0..depth).for_each(|_| out.push_str(indent));
        }
    };
    out.push(open);
    let mut empty = true;
    for (key, item) in items {
        if !empty {
            out.push_str(&style.item_separator);
        }
        empty = false;
        break_line(depth + 1, out);
        if let Some(key) = key {
            write_string(&key, style, out);
            out.push_str(&style.key_separator);
        }
        write_value(&item, style, depth + 1, out)?;
    }
    if !empty {
        break_line(depth, out);
    }
    out.push(close);
    Ok(())
}

fn key_text(key: &Value) -> Result<String, Error> {
    match key.kind() {
        ValueKind::String => Ok(key.as_str().unwrap_or_default().to_owned()),
        ValueKind::None => Ok("null".to_owned()),
        ValueKind::Bool => Ok(if key.is_true() { "true" } else { "false" }.to_owned()),
        ValueKind::Number => Ok(number(key)),
        other => Err(refuse(format!("tojson: a key must not be {other}"))),
    }
}

fn number(value: &Value) -> String {
    if value.is_integer() {
        return value.to_string();
    }
    match f64::try_from(value.clone()) {
        Ok(float) => python_float(float),
        Err(_) => value.to_string(),
    }
}

/// Python's `repr`: the shortest digits, an exponent of two digits from 1e16 and below 1e-4.
fn python_float(float: f64) -> String {
    if float.is_nan() {
        return "NaN".to_owned();
    }
    if float.is_infinite() {
        return if float > 0.0 { "Infinity" } else { "-Infinity" }.to_owned();
    }
    let scientific = format!("{float:e}");
    let (digits, exponent) = scientific
        .split_once('e')
        .expect("`{:e}` writes an exponent");
    let exponent: i32 = exponent.parse().expect("`{:e}` writes a number");
    if float != 0.0 && !(-4..16).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{digits}e{sign}{:02}", exponent.abs());
    }
    let plain = float.to_string();
    if plain.contains('.') {
        plain
    } else {
        format!("{plain}.0")
    }
}

fn write_string(text: &str, style: &Style, out: &mut String) {
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            ' '..='~' => out.push(character),
            control if control < ' ' => write_escape(control, out),
            other if style.ensure_ascii => write_escape(other, out),
            other => out.push(other),
        }
    }
    out.push('"');
}

fn write_escape(character: char, out: &mut String) {
    for unit in character.encode_utf16(&mut [0; 2]) {
        write!(out, "\\u{unit:04x}").expect("writing to a String cannot fail");
    }
}

fn refuse(message: String) -> Error {
    Error::new(ErrorKind::InvalidOperation, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_as_python_writes_them() {
        for (float, text) in [
            (1.0, "1.0"),
            (0.1, "0.1"),
            (-0.0, "-0.0"),
            (1e15, "1000000000000000.0"),
            (1e16, "1e+16"),
            (1.5e300, "1.5e+300"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (f64::NEG_INFINITY, "-Infinity"),
        ] {
            assert_eq!(python_float(float), text);
        }
    }
}
