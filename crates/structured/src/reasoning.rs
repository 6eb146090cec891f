//! Owns telling a model's reasoning from its answer as the text streams in.

use crate::marker::MarkerFinder;

pub(crate) const OPEN: &str = "<think>";
pub(crate) const CLOSE: &str = "</think>";

/// vLLM's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReasoningFormat {
    /// Reasoning comes first, whether or not `<think>` is written.
    DeepseekR1,
    /// Reasoning comes first if `<think>` is written, by the model or at the end of the prompt.
    Qwen3,
}

impl ReasoningFormat {
    pub fn name(self) -> &'static str {
        match self {
            ReasoningFormat::DeepseekR1 => "deepseek_r1",
            ReasoningFormat::Qwen3 => "qwen3",
        }
    }

    /// Of `--reasoning-parser`.
    pub fn from_name(name: &str) -> Option<ReasoningFormat> {
        let all = [ReasoningFormat::DeepseekR1, ReasoningFormat::Qwen3];
        all.into_iter().find(|format| format.name() == name)
    }

    /// What a chat template's text suggests. `Qwen3` serves every family that writes its tags: where the template
    /// opens the reasoning, the prompt shows it.
    pub fn detect(template: &str) -> Option<ReasoningFormat> {
        (template.contains(OPEN) || template.contains(CLOSE)).then_some(ReasoningFormat::Qwen3)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReasoningEvent {
    Reasoning(String),
    Content(String),
}

/// Drops the two tags and whitespace before the first; everything else comes out as it came in.
#[derive(Debug)]
pub struct ReasoningSplitter {
    state: State,
    finder: MarkerFinder,
    /// Whitespace before anything else.
    held: String,
    /// What the text is where no tag says otherwise.
    reasons_from_start: bool,
    events: Vec<ReasoningEvent>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Begin,
    Reasoning,
    Content,
}

impl ReasoningSplitter {
    /// `prompt` is the rendered prompt's end, which may have opened the reasoning already.
    pub fn new(format: ReasoningFormat, prompt: &str) -> ReasoningSplitter {
        let opened = prompt.trim_end().ends_with(OPEN);
        ReasoningSplitter {
            state: State::Begin,
            finder: MarkerFinder::new(OPEN),
            held: String::new(),
            reasons_from_start: opened || format == ReasoningFormat::DeepseekR1,
            events: Vec::new(),
        }
    }

    pub fn push(&mut self, piece: &str) -> Vec<ReasoningEvent> {
        piece.chars().for_each(|c| self.feed(c));
        std::mem::take(&mut self.events)
    }

    pub fn finish(&mut self) -> Vec<ReasoningEvent> {
        let mut rest = std::mem::take(&mut self.held);
        self.finder.finish(&mut rest);
        self.decide();
        self.emit(&rest);
        std::mem::take(&mut self.events)
    }

    /// True inside the reasoning: a text that ends here has no answer yet.
    pub fn is_reasoning(&self) -> bool {
        match self.state {
            State::Begin => self.reasons_from_start,
            state => state == State::Reasoning,
        }
    }

    fn feed(&mut self, c: char) {
        let mut released = String::new();
        match self.state {
            State::Begin => {
                if self.finder.feed(c, &mut released) {
                    self.held.clear();
                    self.reason();
                } else if released.chars().all(char::is_whitespace) {
                    self.held.push_str(&released);
                } else {
                    // No opening tag can come any more; what was released may hold the beginning of a closing one.
                    self.finder.finish(&mut released);
                    self.decide();
                    let start = std::mem::take(&mut self.held) + &released;
                    start.chars().for_each(|c| self.feed(c));
                }
            }
            State::Reasoning => {
                let closed = self.finder.feed(c, &mut released);
                self.emit(&released);
                if closed {
                    self.state = State::Content;
                }
            }
            State::Content => self.emit(c.encode_utf8(&mut [0; 4])),
        }
    }

    fn decide(&mut self) {
        match self.state {
            State::Begin if self.reasons_from_start => self.reason(),
            State::Begin => self.state = State::Content,
            _ => {}
        }
    }

    fn reason(&mut self) {
        self.state = State::Reasoning;
        self.finder = MarkerFinder::new(CLOSE);
    }

    fn emit(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        match (self.state, self.events.last_mut()) {
            (State::Content, Some(ReasoningEvent::Content(last)))
            | (State::Reasoning, Some(ReasoningEvent::Reasoning(last))) => last.push_str(text),
            (State::Reasoning, _) => self.events.push(ReasoningEvent::Reasoning(text.to_owned())),
            _ => self.events.push(ReasoningEvent::Content(text.to_owned())),
        }
    }
}
