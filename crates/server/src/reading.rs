//! Owns what a model's text says beyond plain text: reasoning and tool calls, found as the text comes.

use crate::app::App;
use crate::request_id::random;
use crate::tools::{FunctionDelta, ToolCallDelta, name_of};
use mettle_structured::{
    ParserEvent, ReasoningEvent, ReasoningFormat, ReasoningSplitter, ToolFormat, ToolParser,
};
use serde_json::Value;

/// Tokens at the end of a prompt in which a template may have opened the reasoning.
const PROMPT_END: usize = 16;
/// A prompt that ends like this leaves the model nothing to think about.
const THOUGHT: &str = "</think>";

/// What one more piece of text says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Said {
    pub content: String,
    pub reasoning: String,
    pub calls: Vec<ToolCallDelta>,
}

impl Said {
    pub fn is_empty(&self) -> bool {
        self.content.is_empty() && self.reasoning.is_empty() && self.calls.is_empty()
    }
}

/// How the text of a request's answers is read.
#[derive(Clone, Debug, Default)]
pub struct Reading {
    /// The format of calls and the names that are known; `None`: there are no calls.
    calls: Option<(ToolFormat, Vec<String>)>,
    /// More than one call in an answer counts.
    parallel: bool,
    /// The format of reasoning and how the prompt ends.
    reasoning: Option<(ReasoningFormat, String)>,
    /// Makes ids of calls differ from other requests'.
    number: u64,
}

impl Reading {
    pub fn new(app: &App) -> Reading {
        Reading {
            number: app.next_number(),
            ..Reading::default()
        }
    }

    pub fn with_calls(mut self, format: ToolFormat, tools: &[Value], parallel: bool) -> Reading {
        let names = tools.iter().map(|tool| name_of(tool).to_owned());
        self.calls = Some((format, names.collect()));
        self.parallel = parallel;
        self
    }

    pub fn with_reasoning(mut self, app: &App, prompt: &[u32]) -> Reading {
        let end = &prompt[prompt.len().saturating_sub(PROMPT_END)..];
        let end = app.tokenizer.decode_continuation(end, false);
        let format = app.options.reasoning_format;
        let format = format.filter(|_| !end.trim_end().ends_with(THOUGHT));
        self.reasoning = format.map(|format| (format, end));
        self
    }

    /// Whether the answer begins inside the reasoning (true), or may open it; `None` where there is no reasoning.
    pub fn opens_reasoning(&self) -> Option<bool> {
        let (format, end) = self.reasoning.as_ref()?;
        Some(ReasoningSplitter::new(*format, end).is_reasoning())
    }

    /// Whether markup may be written with special tokens, which are then part of the text.
    pub fn needs_special_tokens(&self) -> bool {
        let format = self.calls.as_ref().map(|(format, _)| *format);
        matches!(format, Some(ToolFormat::Mistral | ToolFormat::Llama3Json))
    }

    pub fn reader(&self, choice: usize) -> Reader {
        let reasoning = self.reasoning.as_ref();
        let calls = self.calls.as_ref();
        Reader {
            splitter: reasoning.map(|(format, end)| ReasoningSplitter::new(*format, end)),
            parser: calls.map(|(format, names)| ToolParser::new(*format, names.clone())),
            parallel: self.parallel,
            number: self.number.wrapping_add(choice as u64),
        }
    }
}

/// Reads one answer.
pub struct Reader {
    splitter: Option<ReasoningSplitter>,
    parser: Option<ToolParser>,
    parallel: bool,
    number: u64,
}

impl Reader {
    /// `None` where no reasoning is told from the answer.
    pub fn is_reasoning(&self) -> Option<bool> {
        self.splitter.as_ref().map(ReasoningSplitter::is_reasoning)
    }

    pub fn push(&mut self, text: String) -> Said {
        let mut said = Said::default();
        let events = self.splitter.as_mut().map(|splitter| splitter.push(&text));
        match events {
            Some(events) => self.split(events, &mut said),
            None => self.parse(text, &mut said),
        }
        said
    }

    /// What was held back.
    pub fn finish(&mut self) -> Said {
        let mut said = Said::default();
        let events = self.splitter.as_mut().map(ReasoningSplitter::finish);
        self.split(events.unwrap_or_default(), &mut said);
        let events = self.parser.as_mut().map(ToolParser::finish);
        self.take(events.unwrap_or_default(), &mut said);
        said
    }

    fn split(&mut self, events: Vec<ReasoningEvent>, said: &mut Said) {
        for event in events {
            match event {
                ReasoningEvent::Reasoning(text) => said.reasoning.push_str(&text),
                ReasoningEvent::Content(text) => self.parse(text, said),
            }
        }
    }

    fn parse(&mut self, text: String, said: &mut Said) {
        let events = self.parser.as_mut().map(|parser| parser.push(&text));
        match events {
            Some(events) => self.take(events, said),
            None => said.content.push_str(&text),
        }
    }

    fn take(&mut self, events: Vec<ParserEvent>, said: &mut Said) {
        let counts = |index: usize| self.parallel || index == 0;
        for event in events {
            match event {
                ParserEvent::Text(text) => said.content.push_str(&text),
                ParserEvent::CallStart { index, name } if counts(index) => {
                    let id = random(self.number);
                    said.calls.push(ToolCallDelta {
                        index,
                        id: Some(format!("call_{}", &id[..24])),
                        kind: Some("function"),
                        function: FunctionDelta {
                            name: Some(name),
                            arguments: String::new(),
                        },
                    });
                }
                ParserEvent::CallArguments { index, fragment } if counts(index) => {
                    said.calls.push(ToolCallDelta {
                        index,
                        function: FunctionDelta {
                            name: None,
                            arguments: fragment,
                        },
                        ..ToolCallDelta::default()
                    });
                }
                _ => {}
            }
        }
    }
}
