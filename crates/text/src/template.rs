//! Owns the chat template: nothing outside this file, its library and its JSON writer names `minijinja`.

use std::sync::Arc;
use std::time::Duration;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::Value;
use minijinja::{Environment, Error, ErrorKind};
use serde_json::Value as Json;

use crate::chat::{Message, free_markers};
use crate::template_library::{self, MAX_TEXT, Refused};
use crate::template_threads::TemplateThreads;
use crate::{TextError, template_source};

/// A long conversation takes about 100 instructions a message; an endless loop ends in a fraction of a second.
const FUEL: u64 = 2_000_000;
/// The longest templates that models come with have 30 KB. The stack that compiling takes grows with the source.
const MAX_SOURCE: usize = 256 << 10;
const PATIENCE: Duration = Duration::from_secs(10);
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

/// A compiled template. It comes with a model that the user chose; requests bring none. It sees nothing but what it
/// is given, and a broken or hostile one cannot hold up its caller:
///
/// - Compiling and rendering end with an error after 10 seconds. What does not stop by itself goes on in the
///   background, on at most four threads for each template; while all are taken, rendering is refused.
/// - Source, instructions, recursion, output and the text of one `tojson` are bounded, as are the functions that make
///   a large text out of a number (`indent`, `format`, `replace`, `batch`, `slice`, and by the engine itself `range`
///   and `*`). The stack holds whatever depth of nesting source and instructions allow.
///
/// Not bounded is the memory for values that a template builds up: doubling a text sixty times with `~` (or `+`, or a
/// `{% set %}` block) exhausts any machine. The engine lets nobody see these operations, allocations cannot fail
/// without ending the process, and a look at the source cannot tell such a loop from the usual ones that gather text.
#[derive(Debug)]
pub struct ChatTemplate {
    environment: Arc<Environment<'static>>,
    threads: TemplateThreads,
    source: String,
    specials: TemplateSpecials,
}

impl ChatTemplate {
    pub fn new(source: &str, specials: TemplateSpecials) -> Result<Self, TextError> {
        Self::with_patience(source, specials, PATIENCE)
    }

    fn with_patience(
        source: &str,
        specials: TemplateSpecials,
        patience: Duration,
    ) -> Result<Self, TextError> {
        if source.len() > MAX_SOURCE {
            return Err(TextError::TemplateSource {
                size: source.len(),
                limit: MAX_SOURCE,
            });
        }
        let source = template_source::without_generation_tags(source);
        let threads = TemplateThreads::new(patience);
        let compiled = source.clone();
        let environment = threads.run(move || {
            compile(compiled).map_err(|error| TextError::TemplateSyntax(explain(&error)))
        })?;
        Ok(Self {
            environment: Arc::new(environment),
            threads,
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
        let context = self.context(messages, options)?;
        let environment = self.environment.clone();
        self.threads.run(move || render(&environment, context))
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

fn compile(source: String) -> Result<Environment<'static>, Error> {
    let mut environment = Environment::new();
    let syntax = SyntaxConfig::builder()
        .trim_blocks(true)
        .lstrip_blocks(true)
        .build()?;
    environment.set_syntax(syntax);
    environment.set_fuel(Some(FUEL));
    environment.set_recursion_limit(MAX_RECURSION);
    environment.set_debug(false);
    template_library::install(&mut environment);
    environment.add_template_owned(NAME, source)?;
    Ok(environment)
}

fn render(environment: &Environment<'static>, context: Value) -> Result<String, TextError> {
    let mut output = Limited::default();
    let template = environment
        .get_template(NAME)
        .map_err(|error| failure(&error))?;
    let outcome = template
        .render_captured_to(context, &mut output)
        .map(|_| ());
    if output.overflowed {
        return Err(TextError::TemplateOutput { limit: MAX_TEXT });
    }
    outcome.map_err(|error| failure(&error))?;
    String::from_utf8(output.text).map_err(|error| TextError::TemplateRender(error.to_string()))
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
        if self.text.len() + bytes.len() > MAX_TEXT {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn impatient(source: &str) -> Result<String, TextError> {
        // Each of the templates below takes seconds at the least, on any machine.
        let patience = Duration::from_millis(20);
        let template = ChatTemplate::with_patience(source, TemplateSpecials::default(), patience)?;
        template.render(&[], &RenderOptions::default())
    }

    #[test]
    fn what_takes_too_long_is_given_up() {
        let doubled = "{% set n = namespace(x=1, y=1) %}{% for i in range(32) %}\
                       {% set n.x = [n.x, n.x] %}{% set n.y = [n.y, n.y] %}{% endfor %}{{ n.x == n.y }}";
        let upper = "{% set big = 'x' * 900000 %}{% for i in range(20000) %}{% set x = big|upper %}{% endfor %}";
        let compiling = format!("{{{{ a{} }}}}", "~a".repeat(100_000));
        for source in [doubled, upper, &compiling] {
            let start = std::time::Instant::now();
            let result = impatient(source);
            assert!(
                matches!(result, Err(TextError::TemplateTime { .. })),
                "{result:?}"
            );
            assert!(start.elapsed() < Duration::from_secs(5));
        }
    }
}
