//! Owns the chat template: nothing outside this file (and its JSON writer) names `minijinja`.

use std::fmt::Write as _;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Value};
use minijinja::{Environment, Error, ErrorKind};
use serde_json::Value as Json;

use crate::chat::{Message, free_markers};
use crate::python_json::{self, Style};
use crate::{TextError, template_source};

/// A long conversation takes about 100 instructions a message; an endless loop ends in a fraction of a second.
const FUEL: u64 = 2_000_000;
/// A template can nest a list in a list as often as its fuel lasts, and freeing such a value recurses as deep. Memory
/// for the stack is committed only as it is used.
const STACK: usize = 512 << 20;
/// Ten times the text of a million-token prompt would be no prompt any more.
const MAX_OUTPUT: usize = 64 << 20;
/// Macros that call themselves.
const MAX_RECURSION: usize = 100;
const NAME: &str = "chat";

/// The texts of the tokens that templates may name; those that are `None` stay undefined.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TemplateSpecials {
    pub bos: Option<String>,
    pub eos: Option<String>,
    pub unk: Option<String>,
    pub pad: Option<String>,
}

/// What a conversation is rendered with, besides its messages.
#[derive(Clone, Debug, Default)]
pub struct RenderOptions {
    /// End with the opening of the assistant's answer.
    pub add_generation_prompt: bool,
    /// Leave the last message open, so that the model goes on writing it.
    pub continue_final_message: bool,
    pub tools: Option<Json>,
    /// More variables for the template (`enable_thinking`, `documents`, ...).
    pub kwargs: serde_json::Map<String, Json>,
}

/// A compiled template. It runs without access to anything, within limits on time and output.
#[derive(Debug)]
pub struct ChatTemplate {
    environment: Environment<'static>,
    source: String,
    specials: TemplateSpecials,
}

impl ChatTemplate {
    pub fn new(source: &str, specials: TemplateSpecials) -> Result<Self, TextError> {
        let syntax = |error: Error| TextError::TemplateSyntax(explain(&error));
        let mut environment = Environment::new();
        let config = SyntaxConfig::builder()
            .trim_blocks(true)
            .lstrip_blocks(true)
            .build()
            .map_err(syntax)?;
        environment.set_syntax(config);
        environment.set_fuel(Some(FUEL));
        environment.set_recursion_limit(MAX_RECURSION);
        environment.set_debug(false);
        environment
            .set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        environment.add_filter("tojson", tojson);
        environment.add_test("iterable", is_iterable);
        environment.add_function("raise_exception", raise_exception);
        environment.add_function("strftime_now", strftime_now);
        let source = template_source::without_generation_tags(source);
        environment
            .add_template_owned(NAME, source.clone())
            .map_err(syntax)?;
        Ok(Self {
            environment,
            source,
            specials,
        })
    }

    /// The prompt for a conversation, as text.
    pub fn render(
        &self,
        messages: &[Message],
        options: &RenderOptions,
    ) -> Result<String, TextError> {
        if options.add_generation_prompt && options.continue_final_message {
            return Err(TextError::GenerationPromptAndContinue);
        }
        if !options.continue_final_message {
            return self.render_values(messages, options);
        }
        // The end of the last message is found again by a mark put there, not by searching for its
        // text. The space behind the mark tells whether the template trimmed the message.
        let [mark] = free_markers(self, messages, options)?;
        let mut messages = messages.to_vec();
        let last = messages
            .last_mut()
            .ok_or(TextError::CannotContinue("there are no messages"))?;
        last.final_text_mut()?.push_str(&format!("{mark} "));
        let rendered = self.render_values(&messages, options)?;
        let Some((text, rest)) = rendered.rsplit_once(mark) else {
            return Err(TextError::CannotContinue(
                "the template leaves out the end of the final message",
            ));
        };
        let text = if rest.starts_with(' ') {
            text
        } else {
            text.trim_end()
        };
        // A template may have written the message elsewhere too.
        Ok(text.replace(&format!("{mark} "), "").replace(mark, ""))
    }

    pub(crate) fn source(&self) -> &str {
        &self.source
    }

    fn render_values(
        &self,
        messages: &[Message],
        options: &RenderOptions,
    ) -> Result<String, TextError> {
        // A thread of its own, for the size of its stack.
        std::thread::scope(|scope| {
            std::thread::Builder::new()
                .stack_size(STACK)
                .spawn_scoped(scope, || self.render_here(messages, options))
                .map_err(|error| TextError::TemplateRender(format!("no thread for it: {error}")))?
                .join()
                .unwrap_or_else(|_| Err(TextError::TemplateRender("it panicked".into())))
        })
    }

    fn render_here(
        &self,
        messages: &[Message],
        options: &RenderOptions,
    ) -> Result<String, TextError> {
        let context = self.context(messages, options)?;
        let mut output = Limited::default();
        let template = self
            .environment
            .get_template(NAME)
            .map_err(|error| failure(&error))?;
        let outcome = template
            .render_captured_to(context, &mut output)
            .map(|_| ());
        if output.overflowed {
            return Err(TextError::TemplateOutput { limit: MAX_OUTPUT });
        }
        outcome.map_err(|error| failure(&error))?;
        String::from_utf8(output.text).map_err(|error| TextError::TemplateRender(error.to_string()))
    }

    fn context(&self, messages: &[Message], options: &RenderOptions) -> Result<Value, TextError> {
        let text = |text: &Option<String>| text.as_ref().map(|text| Value::from(text.as_str()));
        let messages =
            Value::from_iter(messages.iter().map(|message| to_value(&message.to_json())));
        let own = [
            ("messages", Some(messages)),
            (
                "tools",
                Some(options.tools.as_ref().map_or(Value::from(()), to_value)),
            ),
            (
                "add_generation_prompt",
                Some(Value::from(options.add_generation_prompt)),
            ),
            ("bos_token", text(&self.specials.bos)),
            ("eos_token", text(&self.specials.eos)),
            ("unk_token", text(&self.specials.unk)),
            ("pad_token", text(&self.specials.pad)),
        ];
        for name in options.kwargs.keys() {
            let builtin = self.environment.globals().any(|(global, _)| global == name);
            if builtin || own.iter().any(|(own, _)| own == name) {
                return Err(TextError::ReservedArgument(name.clone()));
            }
        }
        let documents = [("documents", Value::from(()))];
        let given = options
            .kwargs
            .iter()
            .map(|(name, value)| (name.as_str(), to_value(value)));
        let own = own
            .into_iter()
            .filter_map(|(name, value)| Some((name, value?)));
        Ok(Value::from_pairs(
            documents.into_iter().chain(given).chain(own),
        ))
    }
}

fn to_value(json: &Json) -> Value {
    match json {
        Json::Null => Value::from(()),
        Json::Bool(flag) => Value::from(*flag),
        Json::Number(number) => match (number.as_i64(), number.as_u64(), number.as_f64()) {
            (Some(integer), _, _) => Value::from(integer),
            (_, Some(integer), _) => Value::from(integer),
            (_, _, float) => Value::from(float.unwrap_or(f64::NAN)),
        },
        Json::String(text) => Value::from(text.as_str()),
        Json::Array(items) => items.iter().map(to_value).collect(),
        Json::Object(entries) => Value::from_pairs(
            entries
                .iter()
                .map(|(key, value)| (key.as_str(), to_value(value))),
        ),
    }
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
        Some(indent) => Some(" ".repeat(usize::try_from(indent.clone())?.min(64))),
        None => None,
    };
    let separators: Option<Vec<String>> = arguments.get("separators")?;
    let (item_separator, key_separator) = match separators.as_deref() {
        Some([item, key]) => (item.clone(), key.clone()),
        Some(_) => {
            return Err(Error::new(
                ErrorKind::InvalidOperation,
                "tojson: separators must be two strings",
            ));
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
    };
    arguments.assert_all_used()?;
    python_json::dumps(value, &style)
}

fn strftime_now(format: &str) -> Result<String, Error> {
    let mut out = String::new();
    // Unlike Python's, this formatter refuses what it does not know.
    write!(out, "{}", chrono::Local::now().format(format)).map_err(|_| {
        Error::new(
            ErrorKind::InvalidOperation,
            format!("strftime_now: cannot format `{format}`"),
        )
    })?;
    Ok(out)
}

#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Refused(String);

fn raise_exception(message: String) -> Result<Value, Error> {
    Err(Error::new(ErrorKind::InvalidOperation, message.clone()).with_source(Refused(message)))
}

fn failure(error: &Error) -> TextError {
    let mut source: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(inner) = source {
        if let Some(Refused(message)) = inner.downcast_ref() {
            return TextError::TemplateRefused(message.clone());
        }
        let engine = inner.downcast_ref::<Error>();
        if engine.is_some_and(|engine| engine.kind() == ErrorKind::OutOfFuel) {
            return TextError::TemplateFuel { limit: FUEL };
        }
        source = inner.source();
    }
    TextError::TemplateRender(explain(error))
}

/// What went wrong and on which line, without the name that only this file knows.
fn explain(error: &Error) -> String {
    let what = error
        .detail()
        .map_or_else(|| error.kind().to_string(), str::to_owned);
    match error.line() {
        Some(line) => format!("{what} (line {line})"),
        None => what,
    }
}

/// Collects the output up to the limit.
#[derive(Default)]
struct Limited {
    text: Vec<u8>,
    overflowed: bool,
}

impl std::io::Write for Limited {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if self.text.len() + bytes.len() > MAX_OUTPUT {
            self.overflowed = true;
            return Err(std::io::Error::other("too much output"));
        }
        self.text.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
