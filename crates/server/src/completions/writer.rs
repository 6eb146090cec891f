//! Owns the parts of a completion: what each event of the engine adds to a choice. A whole completion is the sum of its
//! parts, so that streamed and unstreamed ones cannot differ.

use super::jobs::PromptJob;
use super::logprobs::{LegacyBuilder, prompt_entry};
use super::types::CompletionChoice;
use crate::app::App;
use crate::error::ApiError;
use crate::usage::{Ending, Usage};
use mettle_engine::{Answer, AnswerEvent, Piece, TokenLogprobs};
use mettle_text::Detokenizer;
use std::sync::Arc;

/// Turns events into parts of choices, and counts tokens.
pub struct Writer {
    app: Arc<App>,
    jobs: Vec<PromptJob>,
    /// Of every choice of every prompt, in order.
    choices: Vec<ChoiceWriter>,
    pub usage: Usage,
}

#[derive(Default)]
struct ChoiceWriter {
    is_started: bool,
    logprobs: Option<LegacyBuilder>,
}

impl Writer {
    pub fn new(app: &Arc<App>, jobs: Vec<PromptJob>) -> Writer {
        let mut usage = Usage::default();
        let mut choices = Vec::new();
        for job in &jobs {
            usage.add_prompt(job.job.request.prompt.len());
            choices.extend((0..job.job.request.n).map(|_| ChoiceWriter::default()));
        }
        Writer {
            app: app.clone(),
            jobs,
            choices,
            usage,
        }
    }

    pub fn choices(&self) -> usize {
        self.choices.len()
    }

    /// What an event of a prompt adds.
    pub fn part(
        &mut self,
        prompt: usize,
        event: AnswerEvent,
        answer: &Answer,
    ) -> Result<CompletionChoice, ApiError> {
        let job = &self.jobs[prompt];
        let choice = match &event {
            AnswerEvent::Piece(piece) => piece.choice,
            AnswerEvent::End { choice } => *choice,
        };
        // All prompts have as many answers.
        let index = prompt * job.job.request.n + choice;
        let writer = &mut self.choices[index];
        let mut part = CompletionChoice {
            index,
            ..CompletionChoice::default()
        };
        let scored = answer.prompt_logprobs().unwrap_or_default();
        if !writer.is_started {
            writer.start(&self.app, job, scored, &mut part);
        }
        match event {
            AnswerEvent::Piece(piece) => {
                if piece.token.is_some() {
                    self.usage.add_token();
                }
                writer.add(job, piece, &mut part);
            }
            AnswerEvent::End { choice } => {
                let end = answer.end_of(choice).expect("this choice has ended");
                self.usage.add_end(choice, end);
                let ending = Ending::of(end)?;
                part.finish_reason = Some(ending.finish_reason);
                part.stop_reason = ending.stop_reason;
            }
        }
        part.logprobs = writer.logprobs.as_mut().map(LegacyBuilder::take);
        Ok(part)
    }
}

impl ChoiceWriter {
    /// What comes before the first token: the prompt, where it is wanted.
    fn start(
        &mut self,
        app: &App,
        job: &PromptJob,
        scored: &[Option<TokenLogprobs>],
        part: &mut CompletionChoice,
    ) {
        self.is_started = true;
        let prompt = &job.job.request.prompt;
        part.text = job.echo.clone().unwrap_or_default();
        self.logprobs = job.logprobs.map(|top| {
            let mut lists = LegacyBuilder::new(&app.tokenizer, top, false);
            if job.echo.is_some() {
                push_prompt(&mut lists, app, prompt, scored, &part.text);
            }
            let detokenizer = match app.engine.limits().encoder {
                Some(_) => Detokenizer::of_whole_text,
                None => Detokenizer::new,
            };
            let skip_special = job.job.options.skip_special;
            lists.start_answer(
                part.text.chars().count(),
                detokenizer(app.tokenizer.clone(), skip_special),
            );
            lists
        });
        if job.prompt_logprobs {
            let entry = |token: &Option<_>| token.as_ref().map(|t| prompt_entry(&app.tokenizer, t));
            part.prompt_logprobs = Some(scored.iter().map(entry).collect());
        }
        if job.return_token_ids {
            part.prompt_token_ids = Some(prompt.clone());
            part.token_ids = Some(Vec::new());
        }
    }

    fn add(&mut self, job: &PromptJob, piece: Piece, part: &mut CompletionChoice) {
        part.text.push_str(&piece.text);
        let Some(id) = piece.token else { return };
        if job.return_token_ids {
            part.token_ids.get_or_insert_default().push(id);
        }
        if let Some(lists) = &mut self.logprobs {
            let request = &job.job.request;
            let is_eos = !request.ignore_eos && request.eos_ids.contains(&id);
            let is_stop = is_eos || request.stop_ids.contains(&id);
            let is_shown = job.job.options.include_stop || !is_stop;
            lists.push(id, piece.logprobs.as_ref(), is_shown);
        }
    }
}

fn push_prompt(
    lists: &mut LegacyBuilder,
    app: &App,
    prompt: &[u32],
    scored: &[Option<TokenLogprobs>],
    text: &str,
) {
    let bos = app.tokenizer.bos();
    let bos_text = bos.map(|id| app.tokenizer.decode(&[id], false));
    let bos_is_written = bos_text.is_some_and(|bos| text.starts_with(&bos));
    for (position, id) in prompt.iter().enumerate() {
        let is_added = position == 0 && Some(*id) == bos && !bos_is_written;
        let logprobs = scored.get(position).and_then(Option::as_ref);
        lists.push(*id, logprobs, !is_added);
    }
}

impl CompletionChoice {
    /// Puts a part behind what is there.
    pub fn append(&mut self, part: CompletionChoice) {
        self.text.push_str(&part.text);
        match (&mut self.logprobs, part.logprobs) {
            (Some(all), Some(more)) => all.append(more),
            (all, more) => *all = all.take().or(more),
        }
        self.finish_reason = self.finish_reason.or(part.finish_reason);
        self.stop_reason = self.stop_reason.take().or(part.stop_reason);
        self.prompt_logprobs = self.prompt_logprobs.take().or(part.prompt_logprobs);
        self.prompt_token_ids = self.prompt_token_ids.take().or(part.prompt_token_ids);
        match (&mut self.token_ids, part.token_ids) {
            (Some(all), Some(more)) => all.extend(more),
            (all, more) => *all = all.take().or(more),
        }
    }

    /// Nothing that a client would miss.
    pub fn is_empty(&self) -> bool {
        let has_tokens = self
            .logprobs
            .as_ref()
            .is_some_and(|lists| !lists.tokens.is_empty());
        self.text.is_empty()
            && !has_tokens
            && self.finish_reason.is_none()
            && self.prompt_token_ids.is_none()
            && self.token_ids.as_ref().is_none_or(Vec::is_empty)
    }
}
