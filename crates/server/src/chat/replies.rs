//! Owns the answers of a conversation as they come, in terms that every API writes in its own way.

use super::conversation::ChatJob;
use crate::answers::Answers;
use crate::app::App;
use crate::completions::{PromptLogprobs, prompt_entry};
use crate::error::ApiError;
use crate::reading::{Reader, Said};
use crate::usage::{Ending, Usage};
use mettle_engine::{AnswerEvent, TokenLogprobs};
use std::sync::Arc;

/// Something that happened to one of the choices.
#[derive(Debug, Default)]
pub struct Reply {
    pub choice: usize,
    pub said: Said,
    pub token: Option<u32>,
    pub logprobs: Option<TokenLogprobs>,
    /// The last of this choice.
    pub ending: Option<Ending>,
}

/// Dropping it aborts the request.
pub struct Replies {
    app: Arc<App>,
    answers: Answers,
    choices: Vec<Choice>,
    wants_prompt_logprobs: bool,
    pub prompt_logprobs: Option<PromptLogprobs>,
    pub usage: Usage,
}

struct Choice {
    reader: Reader,
    /// What is to stand before the answer.
    echo: Option<String>,
    has_calls: bool,
}

impl Replies {
    /// A full queue refuses at once.
    pub fn start(app: &Arc<App>, job: &ChatJob) -> Result<Replies, ApiError> {
        let request = &job.job.request;
        let mut usage = Usage::default();
        usage.add_prompt(request.prompt.len());
        let choice = |number| Choice {
            reader: job.reading.reader(number),
            echo: job.echo.clone(),
            has_calls: false,
        };
        Ok(Replies {
            app: app.clone(),
            answers: Answers::start(app, [job.job.clone()])?,
            choices: (0..request.n).map(choice).collect(),
            wants_prompt_logprobs: job.prompt_logprobs,
            prompt_logprobs: None,
            usage,
        })
    }

    /// `None` after the last choice's end.
    pub async fn next(&mut self) -> Result<Option<Reply>, ApiError> {
        let Some((_, event, answer)) = self.answers.next().await? else {
            return Ok(None);
        };
        if self.wants_prompt_logprobs && self.prompt_logprobs.is_none() {
            let tokenizer = &self.app.tokenizer;
            let entry = |token: &Option<_>| token.as_ref().map(|t| prompt_entry(tokenizer, t));
            let scored = answer.prompt_logprobs();
            self.prompt_logprobs = scored.map(|scored| scored.iter().map(entry).collect());
        }
        Ok(Some(match event {
            AnswerEvent::Piece(piece) => {
                let choice = &mut self.choices[piece.choice];
                let before = choice.reader.is_reasoning();
                let said = choice.read(piece.text);
                if piece.token.is_some() {
                    self.usage.add_token();
                    // The tags themselves are neither thought nor answer.
                    let thinks = before == Some(true) && choice.reader.is_reasoning() == before;
                    self.usage.add_thought(before.map(|_| thinks));
                }
                Reply {
                    choice: piece.choice,
                    said,
                    token: piece.token,
                    logprobs: piece.logprobs,
                    ending: None,
                }
            }
            AnswerEvent::End { choice } => {
                let end = answer.end_of(choice).expect("this choice has ended");
                self.usage.add_end(choice, end);
                let mut ending = Ending::of(end)?;
                let said = self.choices[choice].finish();
                if self.choices[choice].has_calls && ending.finish_reason == "stop" {
                    ending.finish_reason = "tool_calls";
                }
                Reply {
                    choice,
                    said,
                    ending: Some(ending),
                    ..Reply::default()
                }
            }
        }))
    }
}

impl Choice {
    fn read(&mut self, text: String) -> Said {
        let mut said = self.reader.push(text);
        self.note(&mut said);
        said
    }

    fn finish(&mut self) -> Said {
        let mut said = self.reader.finish();
        self.note(&mut said);
        said
    }

    fn note(&mut self, said: &mut Said) {
        self.has_calls |= !said.calls.is_empty();
        if let Some(echo) = self.echo.take() {
            said.content.insert_str(0, &echo);
        }
    }
}
