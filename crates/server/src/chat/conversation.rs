//! Owns a conversation that wants an answer, whichever API it came by, and its way to a request for the engine.

use crate::answers::Job;
use crate::app::App;
use crate::constraints::Form;
use crate::error::ApiError;
use crate::generation::Generation;
use crate::reading::Reading;
use crate::tools::{ToolChoice, Tools};
use mettle_structured::ToolFormat;
use mettle_text::{Message, RenderOptions, TextError, encode_chat};
use serde_json::{Map, Value};
use std::borrow::Cow;

#[derive(Clone, Debug, Default)]
pub struct Conversation {
    pub messages: Vec<Message>,
    pub tools: Tools,
    pub generation: Generation,
    /// How the answer must look.
    pub form: Option<Form>,
    /// Log-probabilities of each token, with this many alternatives.
    pub logprobs: Option<usize>,
    /// The model goes on writing the last message.
    pub continues: bool,
    /// The answer begins with what the last message has already.
    pub echo: bool,
    pub no_generation_prompt: bool,
    pub add_special_tokens: bool,
    pub template_kwargs: Map<String, Value>,
}

/// A conversation, ready for the engine.
#[derive(Clone, Debug)]
pub struct ChatJob {
    pub job: Job,
    pub reading: Reading,
    /// What stands before the answer.
    pub echo: Option<String>,
    pub prompt_logprobs: bool,
    pub return_token_ids: bool,
}

impl Conversation {
    pub fn prompt(&self, app: &App) -> Result<Vec<u32>, ApiError> {
        let template = app.options.template.as_ref();
        let template = template.ok_or(ApiError::from(TextError::NoChatTemplate))?;
        let tools = Some(self.tools.definitions.clone()).filter(|tools| !tools.is_empty());
        let knows_tools = app.options.tool_format.is_some();
        let explained = tools.is_some() && !knows_tools;
        let options = RenderOptions {
            add_generation_prompt: !self.continues && !self.no_generation_prompt,
            continue_final_message: self.continues,
            tools: tools.filter(|_| knows_tools).map(Value::Array),
            kwargs: self.template_kwargs.clone(),
        };
        let mut messages = Cow::Borrowed(&self.messages);
        if explained {
            explain(messages.to_mut(), self.tools.explained());
        }
        app.check_length("messages", messages.iter().map(text_bytes).sum())?;
        let mut ids = encode_chat(&app.tokenizer, template, &messages, &options)?;
        if let Some(bos) = app.tokenizer.bos().filter(|_| self.add_special_tokens) {
            ids.insert(0, bos);
        }
        Ok(ids)
    }

    pub fn job(&self, app: &App) -> Result<ChatJob, ApiError> {
        let format = app.options.tool_format.unwrap_or(ToolFormat::GenericJson);
        let calls = self.tools.forced(format)?;
        let (prompt, _) = self.generation.truncate(self.prompt(app)?, app);
        let mut reading = Reading::new(app).with_reasoning(app, &prompt);
        // An answer that must have a form is no call, however it looks.
        let may_call = self.form.is_none() && self.tools.choice == ToolChoice::Auto;
        if calls.is_some() || may_call {
            reading = reading.with_calls(format, &self.tools.definitions, self.tools.parallel);
        }
        let form = calls.map(|calls| Form::new("tools", calls));
        let form = form.or_else(|| self.form.clone());
        // What a model thinks before it answers is its own.
        let form = form.map(|form| match reading.opens_reasoning() {
            Some(opened) => form.after_reasoning(opened),
            None => form,
        });
        let constraint = form.map(|form| form.compile(app)).transpose()?;
        let sampling = self.generation.sampling(app)?;
        // As long as the context allows.
        let mut request = self.generation.request(prompt, sampling, app, usize::MAX);
        request.logprobs = self.logprobs;
        request.constraint = constraint;
        request.validate(app.engine.limits())?;
        let mut options = self.generation.answer_options()?;
        options.skip_special &= !reading.needs_special_tokens();
        let last = self.messages.last().filter(|_| self.echo && self.continues);
        Ok(ChatJob {
            job: Job { request, options },
            reading,
            echo: last.and_then(|message| Some(message.content.as_str()?.to_owned())),
            prompt_logprobs: self.generation.prompt_logprobs.is_some(),
            return_token_ids: self.generation.return_token_ids,
        })
    }
}

/// Adds to the system message, or makes one.
fn explain(messages: &mut Vec<Message>, text: String) {
    match messages.first_mut() {
        Some(first) if first.role == "system" => {
            let before = first.content.as_str().unwrap_or_default();
            first.content = format!("{before}\n\n{text}").into();
        }
        _ => messages.insert(0, Message::new("system", text)),
    }
}

fn text_bytes(message: &Message) -> usize {
    message.content.as_str().map_or(0, str::len)
}
