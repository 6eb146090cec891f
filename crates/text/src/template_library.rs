//! Owns what templates can call: the functions of the reference implementation that the engine lacks, and the
//! engine's own that must not make a huge text out of a number.

use std::fmt::Write as _;

use minijinja::value::{Kwargs, Rest, Value, ValueOrKwargs};
use minijinja::{Environment, Error, ErrorKind, State, filters};

use crate::python_json::{self, Style};

/// Ten times the text of a million-token prompt would be no prompt any more.
pub(crate) const MAX_TEXT: usize = 64 << 20;
/// The engine's own limit for `range`.
const MAX_ITEMS: usize = 100_000;
const MAX_INDENT: usize = 64;

/// Why a template refused a conversation.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Refused(pub(crate) String);

pub(crate) fn install(environment: &mut Environment<'static>) {
    environment.set_unknown_method_callback(method);
    environment.add_filter("tojson", tojson);
    environment.add_test("iterable", is_iterable);
    environment.add_function("raise_exception", raise_exception);
    environment.add_function("strftime_now", strftime_now);
    let guarded: [(&'static str, Value, Guard); 5] = [
        ("indent", Value::from_function(filters::indent), indent),
        ("format", Value::from_function(filters::format), printf),
        ("replace", Value::from_function(filters::replace), replace),
        ("batch", Value::from_function(filters::batch), portions),
        ("slice", Value::from_function(filters::slice), portions),
    ];
    for (name, builtin, guard) in guarded {
        let filter = move |state: &mut State, arguments: Rest<ValueOrKwargs>| {
            let arguments = arguments.into_values();
            guard(&arguments)?;
            builtin.call(state, &arguments)
        };
        environment.add_filter(name, filter);
    }
}

/// Looks at the arguments of a filter (the filtered value is the first) before it runs.
type Guard = fn(&[Value]) -> Result<(), Error>;

/// Python's methods of strings, lists and dictionaries.
fn method(state: &mut State, value: &Value, name: &str, rest: &[Value]) -> Result<Value, Error> {
    let guard: Option<Guard> = match name {
        "format" => Some(str_format),
        "replace" => Some(replace),
        _ => None,
    };
    if let Some(guard) = guard {
        let arguments: Vec<Value> = std::iter::once(value).chain(rest).cloned().collect();
        guard(&arguments)?;
    }
    minijinja_contrib::pycompat::unknown_method_callback(state, value, name, rest)
}

fn indent(arguments: &[Value]) -> Result<(), Error> {
    let lines = text(arguments, 0).matches('\n').count() + 1;
    let named = arguments.iter().filter(|value| value.is_kwargs());
    let named = named.filter_map(|named| named.get_attr("width").ok());
    let width = named.chain(arguments.get(1).cloned());
    let width = width.filter_map(|width| width.as_usize()).max();
    refuse_huge("indent", lines.checked_mul(width.unwrap_or(0)))
}

/// `%5d`: the numbers behind the flags.
fn printf(arguments: &[Value]) -> Result<(), Error> {
    let format = text(arguments, 0).replace("%%", "");
    let fields = format.split('%').skip(1).map(|field| {
        let key = field.starts_with('(').then(|| field.find(')')).flatten();
        let field = &field[key.map_or(0, |end| end + 1)..];
        let end = field.find(|character: char| character.is_alphabetic());
        &field[..end.unwrap_or(field.len())]
    });
    formatted(fields, arguments)
}

/// `{name:>5}`: the numbers between colon and brace.
fn str_format(arguments: &[Value]) -> Result<(), Error> {
    let format = text(arguments, 0).replace("{{", "");
    let fields = format.split('{').skip(1).map(|field| {
        let field = field.split('}').next().unwrap_or_default();
        field.split_once(':').map_or("", |(_, field)| field)
    });
    formatted(fields, arguments)
}

/// Each field takes the room that it asks for, or as much as the longest argument.
fn formatted<'f>(fields: impl Iterator<Item = &'f str>, arguments: &[Value]) -> Result<(), Error> {
    let longest = (1..arguments.len()).map(|index| text(arguments, index).len());
    let longest = longest.max().unwrap_or(0);
    let mut size = Some(0_usize);
    for field in fields {
        let numbers = field.split(|character: char| !character.is_ascii_digit());
        for number in numbers.filter(|number| !number.is_empty()) {
            let width = number.parse().ok();
            size = size.zip(width).and_then(|(a, b)| a.checked_add(b));
        }
        size = size.and_then(|size| size.checked_add(longest));
    }
    refuse_huge("format", size)
}

fn replace(arguments: &[Value]) -> Result<(), Error> {
    let (whole, new) = (text(arguments, 0), text(arguments, 2));
    let found = whole.matches(text(arguments, 1)).count();
    refuse_huge("replace", found.checked_mul(new.len()))
}

fn portions(arguments: &[Value]) -> Result<(), Error> {
    match arguments.get(1).and_then(Value::as_usize) {
        Some(count) if count > MAX_ITEMS => Err(refuse(format!(
            "{count} portions are more than {MAX_ITEMS}"
        ))),
        _ => Ok(()),
    }
}

fn text(arguments: &[Value], index: usize) -> &str {
    let value = arguments.get(index);
    value.and_then(Value::as_str).unwrap_or_default()
}

fn refuse_huge(what: &str, size: Option<usize>) -> Result<(), Error> {
    match size {
        Some(size) if size <= MAX_TEXT => Ok(()),
        _ => Err(refuse(format!(
            "{what}: the text could be longer than {MAX_TEXT} bytes"
        ))),
    }
}

fn refuse(message: String) -> Error {
    Error::new(ErrorKind::InvalidOperation, message)
}

/// Unlike the engine's own test, this one agrees with Python about `none`.
fn is_iterable(value: &Value) -> bool {
    !value.is_none() && value.try_iter().is_ok()
}

/// `json.dumps` with the arguments that the reference implementation exposes to templates.
fn tojson(value: &Value, indent: Option<Value>, arguments: Kwargs) -> Result<String, Error> {
    let indent = match indent {
        Some(indent) => Some(indent),
        None => arguments.get("indent")?,
    };
    let indent: Option<Value> = indent.filter(|indent: &Value| !indent.is_none());
    let indent = match &indent {
        Some(indent) if indent.as_str().is_some() => indent.as_str().map(str::to_owned),
        Some(indent) => Some(" ".repeat(usize::try_from(indent.clone())?.min(MAX_INDENT))),
        None => None,
    };
    if indent.as_ref().is_some_and(|text| text.len() > MAX_INDENT) {
        return Err(refuse(format!(
            "tojson: indent is longer than {MAX_INDENT} bytes"
        )));
    }
    let separators: Option<Vec<String>> = arguments.get("separators")?;
    let (item_separator, key_separator) = match separators.as_deref() {
        Some([item, key]) => (item.clone(), key.clone()),
        Some(_) => {
            return Err(refuse("tojson: separators must be two strings".to_owned()));
        }
        None if indent.is_some() => (",".to_owned(), ": ".to_owned()),
        None => (", ".to_owned(), ": ".to_owned()),
    };
    let style = Style {
        indent,
        item_separator,
        key_separator,
        ensure_ascii: arguments
            .get::<Option<bool>>("ensure_ascii")?
            .unwrap_or(false),
        sort_keys: arguments.get::<Option<bool>>("sort_keys")?.unwrap_or(false),
        limit: MAX_TEXT,
    };
    arguments.assert_all_used()?;
    python_json::dumps(value, &style)
}

fn strftime_now(format: &str) -> Result<String, Error> {
    let mut out = String::new();
    // Unlike Python's, this formatter refuses what it does not know.
    write!(out, "{}", chrono::Local::now().format(format))
        .map_err(|_| refuse(format!("strftime_now: cannot format `{format}`")))?;
    Ok(out)
}

fn raise_exception(message: String) -> Result<Value, Error> {
    Err(refuse(message.clone()).with_source(Refused(message)))
}
