//! Owns chat messages and their way to token ids: the template's own special tokens become
//! special ids, while special tokens written inside a message stay plain text.

use serde_json::{Map, Value};

use crate::pipeline::Section;
use crate::{ChatTemplate, RenderOptions, SpecialTokens, TextError, Tokenizer};

/// Code points that are reserved for use inside a program and mean nothing in a text.
const MARKERS: std::ops::RangeInclusive<char> = '\u{fdd0}'..='\u{fdef}';

/// The names under which reasoning arrives, the standard one first.
const REASONING: [&str; 3] = ["reasoning_content", "thinking", "reasoning"];

/// One message of a conversation, as the template sees it.
#[derive(Clone, Debug, PartialEq, serde::Deserialize, serde::Serialize)]
pub struct Message {
    pub role: String,
    /// A string, a list of parts, or null.
    #[serde(default)]
    pub content: Value,
    /// Everything else: `name`, `tool_calls`, `tool_call_id`, `reasoning_content`, ...
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

impl Message {
    pub fn new(role: impl Into<String>, content: impl Into<String>) -> Self {
        Self {
            role: role.into(),
            content: Value::String(content.into()),
            extra: Map::new(),
        }
    }

    pub(crate) fn to_json(&self) -> Value {
        let mut object = Map::new();
        object.insert("role".to_owned(), self.role.as_str().into());
        object.insert("content".to_owned(), self.content.clone());
        object.extend(self.extra.clone());
        // Clients and templates call an assistant's reasoning by different names.
        let reasoning = REASONING
            .iter()
            .find_map(|name| object.get(*name).filter(|value| !value.is_null()));
        if let Some(reasoning) = reasoning.cloned() {
            object
                .entry("thinking")
                .or_insert_with(|| reasoning.clone());
            object.insert("reasoning_content".to_owned(), reasoning);
        }
        Value::Object(object)
    }

    /// The text that a continued message goes on from: its content, or its last text part.
    pub(crate) fn final_text_mut(&mut self) -> Result<&mut String, TextError> {
        let text = match &mut self.content {
            Value::String(text) => Some(text),
            Value::Array(parts) => {
                parts
                    .iter_mut()
                    .rev()
                    .find_map(|part| match part.get_mut("text") {
                        Some(Value::String(text)) => Some(text),
                        _ => None,
                    })
            }
            _ => None,
        };
        text.ok_or(TextError::CannotContinue("the final message has no text"))
    }
}

/// Renders a conversation and tokenizes it. No BOS is added beyond what the template writes.
pub fn encode_chat(
    tokenizer: &Tokenizer,
    template: &ChatTemplate,
    messages: &[Message],
    options: &RenderOptions,
) -> Result<Vec<u32>, TextError> {
    let [marker] = free_markers(template, messages, options)?;
    let breaker = Breaker { tokenizer, marker };
    let messages: Vec<Message> = messages
        .iter()
        .map(|message| breaker.message(message))
        .collect();
    let options = RenderOptions {
        tools: options.tools.as_ref().map(|tools| breaker.value(tools)),
        kwargs: breaker.object(&options.kwargs),
        ..options.clone()
    };
    let rendered = template.render(&messages, &options)?;
    if !rendered.contains(marker) {
        return tokenizer.encode(&rendered, SpecialTokens::Parse, false);
    }
    encode_marked(tokenizer, &rendered, marker)
}

/// Special tokens that no marker touches become ids; the text between them is plain.
fn encode_marked(
    tokenizer: &Tokenizer,
    rendered: &str,
    marker: char,
) -> Result<Vec<u32>, TextError> {
    let mut ids = Vec::new();
    let mut done = 0;
    let plain = |range: std::ops::Range<usize>, ids: &mut Vec<u32>| {
        let section = match range.start {
            0 => Section::Start,
            _ => Section::Later,
        };
        let text = rendered[range].replace(marker, "");
        ids.extend(tokenizer.encode_section(&text, SpecialTokens::Plain, section)?);
        Ok::<_, TextError>(())
    };
    for (id, range) in tokenizer.special_tokens_in(rendered) {
        // A token of one character cannot be broken inside; its marker stands behind it.
        if rendered[range.end..].starts_with(marker) {
            continue;
        }
        plain(done..range.start, &mut ids)?;
        ids.push(id);
        done = range.end;
    }
    plain(done..rendered.len(), &mut ids)?;
    Ok(ids)
}

/// Puts a marker after the first character of every special token in what users wrote (and of what
/// could become one where the template joins two texts), so that none is recognised afterwards.
struct Breaker<'t> {
    tokenizer: &'t Tokenizer,
    marker: char,
}

impl Breaker<'_> {
    fn message(&self, message: &Message) -> Message {
        Message {
            role: self.text(&message.role),
            content: self.value(&message.content),
            extra: self.object(&message.extra),
        }
    }

    fn value(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.text(text)),
            Value::Array(items) => items.iter().map(|item| self.value(item)).collect(),
            Value::Object(object) => Value::Object(self.object(object)),
            other => other.clone(),
        }
    }

    fn object(&self, object: &Map<String, Value>) -> Map<String, Value> {
        object
            .iter()
            .map(|(key, value)| (self.text(key), self.value(value)))
            .collect()
    }

    fn text(&self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        let mut done = 0;
        for start in self.tokenizer.special_starts(text) {
            let first = text[start..].chars().next().map_or(0, char::len_utf8);
            out.push_str(&text[done..start + first]);
            out.push(self.marker);
            done = start + first;
        }
        out.push_str(&text[done..]);
        out
    }
}

/// Code points that occur nowhere in the template or in what it is given.
pub(crate) fn free_markers<const N: usize>(
    template: &ChatTemplate,
    messages: &[Message],
    options: &RenderOptions,
) -> Result<[char; N], TextError> {
    let mut taken = Vec::new();
    note_markers(template.source(), &mut taken);
    for message in messages {
        note_markers_in(&message.to_json(), &mut taken);
    }
    if let Some(tools) = &options.tools {
        note_markers_in(tools, &mut taken);
    }
    note_markers_in(&Value::Object(options.kwargs.clone()), &mut taken);
    let free: Vec<char> = MARKERS
        .filter(|marker| !taken.contains(marker))
        .take(N)
        .collect();
    free.try_into()
        .map_err(|_| TextError::NoFreeMarker(MARKERS.count()))
}

fn note_markers_in(value: &Value, taken: &mut Vec<char>) {
    match value {
        Value::String(text) => note_markers(text, taken),
        Value::Array(items) => items.iter().for_each(|item| note_markers_in(item, taken)),
        Value::Object(object) => object.iter().for_each(|(key, value)| {
            note_markers(key, taken);
            note_markers_in(value, taken);
        }),
        _ => {}
    }
}

fn note_markers(text: &str, taken: &mut Vec<char>) {
    for character in text.chars().filter(|character| MARKERS.contains(character)) {
        if !taken.contains(&character) {
            taken.push(character);
        }
    }
}
