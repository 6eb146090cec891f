//! Owns finding tool calls in a model's text as it streams in.

use crate::ToolFormat;
use crate::call_body::{CallBody, Nest, Progress};
use crate::marker::MarkerFinder;
use crate::tool_format::Syntax;

/// In order; indices count calls from 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ParserEvent {
    Text(String),
    CallStart {
        index: usize,
        name: String,
    },
    /// The next piece of the arguments' JSON, as the model wrote it.
    CallArguments {
        index: usize,
        fragment: String,
    },
    CallEnd {
        index: usize,
    },
}

/// Reads character by character, so pieces do not matter. What may become a call is held back until it is one; what
/// turns out to be none comes as text. Markup around calls and whitespace between them are dropped.
pub struct ToolParser {
    syntax: Syntax,
    tools: Vec<String>,
    state: State,
    finder: Option<MarkerFinder>,
    /// What was read since the last thing that is sure.
    held: String,
    /// In `held`, where whitespace and separators after a call end.
    separated: usize,
    /// In `held`, where the marker ends.
    opened: usize,
    body: CallBody,
    arguments: Nest,
    in_list: bool,
    calls: usize,
    events: Vec<ParserEvent>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Nothing but whitespace yet, and a call may stand here with no marker.
    Begin,
    Text,
    /// Behind a marker or the bracket of a list: a call has to follow.
    Open,
    Body,
    /// The name before the arguments.
    Name,
    /// Arguments behind a name of their own.
    Arguments,
    /// Behind a call.
    After,
}

impl ToolParser {
    /// `tools` are the names that the request knows, none for any.
    pub fn new(format: ToolFormat, tools: Vec<String>) -> ToolParser {
        let syntax = format.syntax();
        ToolParser {
            state: match syntax.bare {
                true => State::Begin,
                false => State::Text,
            },
            finder: syntax.marker.map(MarkerFinder::new),
            syntax,
            tools,
            held: String::new(),
            separated: 0,
            opened: 0,
            body: CallBody::default(),
            arguments: Nest::default(),
            in_list: false,
            calls: 0,
            events: Vec::new(),
        }
    }

    pub fn push(&mut self, piece: &str) -> Vec<ParserEvent> {
        piece.chars().for_each(|c| self.feed(c));
        std::mem::take(&mut self.events)
    }

    /// The text is over. A call whose arguments have begun ends where they broke off.
    pub fn finish(&mut self) -> Vec<ParserEvent> {
        match self.state {
            State::Arguments => self.end_call(),
            State::Body if self.body.is_started() => self.end_call(),
            State::After if self.held.trim().is_empty() => self.held.clear(),
            _ => {}
        }
        self.release();
        let mut rest = String::new();
        if let Some(finder) = &mut self.finder {
            finder.finish(&mut rest);
        }
        self.text(&rest);
        self.state = State::Text;
        std::mem::take(&mut self.events)
    }

    /// Calls found so far.
    pub fn calls(&self) -> usize {
        self.calls
    }

    fn feed(&mut self, c: char) {
        match self.state {
            State::Begin if c == '{' || (c == '[' && self.syntax.list) => self.open(c),
            State::Begin if c.is_whitespace() => self.held.push(c),
            State::Begin => self.give_back(c),
            State::Text => self.look_for_marker(c),
            State::Open => self.open(c),
            State::Body => self.feed_body(c),
            State::Name => self.feed_name(c),
            State::Arguments => {
                self.argument(c.encode_utf8(&mut [0; 4]));
                if self.arguments.feed(c) {
                    self.end_call();
                }
            }
            State::After => self.feed_after(c),
        }
    }

    fn look_for_marker(&mut self, c: char) {
        let mut released = String::new();
        let found = match &mut self.finder {
            Some(finder) => finder.feed(c, &mut released),
            None => {
                released.push(c);
                false
            }
        };
        self.text(&released);
        if found {
            self.held.push_str(self.syntax.marker.unwrap_or_default());
            self.opened = self.held.len();
            self.state = State::Open;
        }
    }

    fn open(&mut self, c: char) {
        if c == '{' {
            self.begin_body(c);
        } else if c == '[' && self.syntax.list && !self.in_list {
            self.in_list = true;
            self.held.push(c);
            self.state = State::Open;
        } else if c.is_whitespace() {
            self.held.push(c);
        } else if self.syntax.named && !self.in_list && is_name(c) {
            self.held.push(c);
            self.state = State::Name;
        } else {
            self.give_back(c);
        }
    }

    fn begin_body(&mut self, c: char) {
        self.body = CallBody::default();
        self.state = State::Body;
        self.feed_body(c);
    }

    fn feed_body(&mut self, c: char) {
        let was_started = self.body.is_started();
        let progress = self.body.feed(c, !self.syntax.bare);
        if progress == Progress::Broken {
            match was_started {
                true => {
                    self.end_call();
                    self.feed(c);
                }
                false => self.give_back(c),
            }
            return;
        }
        if !self.body.is_started() {
            self.held.push(c);
            return;
        }
        if !was_started {
            if self.syntax.bare && !self.knows(self.body.name()) {
                return self.give_back(c);
            }
            let name = self.body.name().to_owned();
            self.start_call(name);
        }
        let fragment = self.body.take_arguments();
        self.argument(&fragment);
        if progress == Progress::Done {
            self.end_call();
        }
    }

    /// `name{`, or `name[ARGS]{`, or `name[CALL_ID]id[ARGS]{`.
    fn feed_name(&mut self, c: char) {
        let behind = self.held[self.opened..].trim();
        let (name, rest) = behind.split_at(behind.find('[').unwrap_or(behind.len()));
        if c == '{' && (rest.is_empty() || rest.ends_with("[ARGS]")) {
            let name = name.trim_end().to_owned();
            self.start_call(name);
            self.arguments = Nest::default();
            self.state = State::Arguments;
            self.argument("{");
        } else if self.held.len() < LONGEST_NAME && (is_name(c) || c == '[' || c == ']' || c == ' ')
        {
            self.held.push(c);
        } else {
            self.give_back(c);
        }
    }

    fn feed_after(&mut self, c: char) {
        let separates =
            c.is_whitespace() || self.syntax.separator == Some(c) || (c == ',' && self.in_list);
        let alone = self.separated == self.held.len();
        if alone && separates {
            self.held.push(c);
            self.separated = self.held.len();
        } else if alone && c == '{' && (self.in_list || self.syntax.bare) {
            self.begin_body(c);
        } else if alone && c == ']' && self.in_list {
            self.in_list = false;
            self.held.clear();
            self.separated = 0;
        } else {
            self.held.push(c);
            let tail = &self.held[self.separated..];
            if self.syntax.closing == Some(tail) {
                self.held.clear();
                self.separated = 0;
            } else if self.syntax.marker == Some(tail) {
                // A marker in a list that was never closed opens anew.
                self.in_list = false;
                self.opened = self.held.len();
                self.state = State::Open;
            } else if ![self.syntax.closing, self.syntax.marker]
                .into_iter()
                .flatten()
                .any(|text| text.starts_with(tail))
            {
                let held = std::mem::take(&mut self.held);
                self.leave();
                held.chars().for_each(|c| self.feed(c));
            }
        }
    }

    fn start_call(&mut self, name: String) {
        self.held.clear();
        let index = self.calls;
        self.calls += 1;
        self.events.push(ParserEvent::CallStart { index, name });
    }

    fn argument(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        match self.events.last_mut() {
            Some(ParserEvent::CallArguments { fragment, .. }) => fragment.push_str(text),
            _ => self.events.push(ParserEvent::CallArguments {
                index: self.calls - 1,
                fragment: text.to_owned(),
            }),
        }
    }

    fn end_call(&mut self) {
        let index = self.calls - 1;
        self.events.push(ParserEvent::CallEnd { index });
        self.held.clear();
        self.separated = 0;
        self.state = State::After;
    }

    /// What was held back is text after all, and so may be `c`.
    fn give_back(&mut self, c: char) {
        self.release();
        self.leave();
        self.feed(c);
    }

    fn release(&mut self) {
        let held = std::mem::take(&mut self.held);
        self.text(&held);
    }

    fn leave(&mut self) {
        self.state = State::Text;
        self.in_list = false;
        self.separated = 0;
    }

    fn text(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        match self.events.last_mut() {
            Some(ParserEvent::Text(last)) => last.push_str(text),
            _ => self.events.push(ParserEvent::Text(text.to_owned())),
        }
    }

    fn knows(&self, name: &str) -> bool {
        self.tools.is_empty() || self.tools.iter().any(|tool| tool == name)
    }
}

/// Of what stands between a marker and the arguments.
const LONGEST_NAME: usize = 256;

fn is_name(c: char) -> bool {
    c.is_alphanumeric() || "_-.:/".contains(c)
}
