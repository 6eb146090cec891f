//! Owns a request for embeddings: its fields, and one request for the engine for each input.

use crate::answers::Job;
use crate::app::App;
use crate::completions::Prompts;
use crate::error::ApiError;
use crate::fields::Fields;
use crate::generation::{priority, refuse};
use mettle_engine::{AnswerOptions, EngineError, Pooling, Request};
use mettle_text::SpecialTokens;
use std::time::Instant;
use utoipa::ToSchema;

/// Inputs of one request, as many as OpenAI takes.
const MOST_INPUTS: usize = 2048;

/// A request as it was written: of the right types, not yet known to make sense.
#[derive(Debug, ToSchema)]
pub struct EmbeddingRequest {
    pub model: Option<String>,
    #[schema(schema_with = crate::openapi::prompt_schema)]
    pub input: Prompts,
    /// `float` for numbers, `base64` for the bytes of little-endian f32.
    #[schema(schema_with = crate::openapi::encoding_schema)]
    #[serde(default)]
    pub encoding_format: Encoding,
    /// Refused: the model was not trained to have its vectors cut.
    pub dimensions: Option<i64>,
    /// `last`, `mean` or `cls` (the first token); the model's own or the server's where nothing is said.
    #[schema(schema_with = crate::openapi::pooling_schema)]
    pub pooling: Option<Pooling>,
    /// Vectors have length 1; as the model's files say where nothing is said, else true.
    pub normalize: Option<bool>,
    #[schema(default = true)]
    #[serde(default)]
    pub add_special_tokens: bool,
    /// Of a longer input only the last so many tokens count, of an encoder's the first and its last; -1: as many as the
    /// context holds.
    #[schema(minimum = -1)]
    pub truncate_prompt_tokens: Option<i64>,
    /// Lower numbers run sooner.
    #[schema(default = 0)]
    #[serde(default)]
    pub priority: i32,
    /// Prefixes are shared only between requests with the same salt.
    pub cache_salt: Option<String>,
    pub request_id: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    Float,
    Base64,
}

impl EmbeddingRequest {
    pub fn parse(fields: &Fields<'_>) -> Result<EmbeddingRequest, ApiError> {
        let expected = Prompts::EXPECTED;
        let missing = || ApiError::bad("input", format!("input is missing: {expected}"));
        Ok(EmbeddingRequest {
            model: fields.get("model", "a string")?,
            input: fields.get("input", expected)?.ok_or_else(missing)?,
            encoding_format: one_of(
                fields,
                "encoding_format",
                [("float", Encoding::Float), ("base64", Encoding::Base64)],
            )?
            .unwrap_or(Encoding::Float),
            dimensions: fields.integer("dimensions")?,
            pooling: one_of(
                fields,
                "pooling",
                [
                    ("last", Pooling::Last),
                    ("mean", Pooling::Mean),
                    ("cls", Pooling::First),
                ],
            )?,
            normalize: fields.get("normalize", "true or false")?,
            add_special_tokens: fields.flag("add_special_tokens", true)?,
            truncate_prompt_tokens: fields.integer("truncate_prompt_tokens")?,
            priority: priority(fields)?,
            cache_salt: fields.get("cache_salt", "a string")?,
            request_id: fields.get("request_id", "a string")?,
        })
    }

    pub fn jobs(&self, app: &App) -> Result<Vec<Job>, ApiError> {
        app.check_model(self.model.as_deref())?;
        self.validate()?;
        match &self.input {
            Prompts::Ids(lists) => {
                let jobs = lists.iter().enumerate();
                jobs.map(|(index, ids)| self.job(app, index, ids.clone()))
                    .collect()
            }
            Prompts::Texts(texts) => {
                let jobs = texts.iter().enumerate();
                jobs.map(|(index, text)| {
                    app.check_length("input", text.len())?;
                    let ids = app.encode(text, SpecialTokens::Parse, self.add_special_tokens)?;
                    self.job(app, index, ids)
                })
                .collect()
            }
        }
    }

    fn validate(&self) -> Result<(), ApiError> {
        if let Some(dimensions) = self.dimensions {
            let message = format!(
                "dimensions is {dimensions}: this model was not trained to have its vectors cut, leave it out"
            );
            return refuse("dimensions", message);
        }
        if let Some(tokens) = self.truncate_prompt_tokens.filter(|n| *n < -1 || *n == 0) {
            let message = format!("truncate_prompt_tokens is {tokens}, it must be -1 or above 0");
            return refuse("truncate_prompt_tokens", message);
        }
        let count = self.input.len();
        if count > MOST_INPUTS {
            let message = format!("input has {count} entries, it may have {MOST_INPUTS}");
            return refuse("input", message);
        }
        Ok(())
    }

    fn job(&self, app: &App, index: usize, mut ids: Vec<u32>) -> Result<Job, ApiError> {
        let limits = app.engine.limits();
        if let Some(tokens) = self.truncate_prompt_tokens {
            let keep = usize::try_from(tokens).unwrap_or(limits.context);
            let surplus = ids.len().saturating_sub(keep);
            // An encoder's first token stands for the text, and the last one ends it.
            let start = match limits.gives_logits {
                true => 0,
                false => keep - 1,
            };
            ids.drain(start..start + surplus);
        }
        let pooling = self.pooling.unwrap_or(app.options.pooling);
        let timeout = app.options.request_timeout;
        let request = Request {
            priority: self.priority,
            deadline: timeout.map(|timeout| Instant::now() + timeout),
            cache_salt: self.cache_salt.clone(),
            ..Request::pooled(ids, pooling)
        };
        let checked = request.validate(limits);
        checked.map_err(|error| refusal(index, error))?;
        let options = AnswerOptions::default();
        Ok(Job { request, options })
    }
}

/// The engine speaks of a prompt; here that is an input, and there may be many.
fn refusal(index: usize, error: EngineError) -> ApiError {
    match error {
        EngineError::ContextOverflow {
            prompt, context, ..
        } => ApiError::bad(
            "input",
            format!(
                "this model's maximum context length is {context} tokens, you requested {prompt} tokens (input {index})"
            ),
        ),
        EngineError::CacheTooSmall {
            prompt,
            needed,
            pages,
            ..
        } => ApiError::bad(
            "input",
            format!(
                "input {index} has {prompt} tokens, which take {needed} pages of the KV cache; it has {pages}"
            ),
        ),
        EngineError::EmptyPrompt => ApiError::bad("input", format!("input {index} is empty")),
        EngineError::OutOfVocabulary { id, last, .. } => ApiError::bad(
            "input",
            format!("input {index} holds token id {id}, the vocabulary ends at {last}"),
        ),
        other => other.into(),
    }
}

/// A field that is one of a few words.
fn one_of<T: Copy, const N: usize>(
    fields: &Fields<'_>,
    name: &str,
    words: [(&str, T); N],
) -> Result<Option<T>, ApiError> {
    let quoted = words.map(|(word, _)| format!("{word:?}"));
    let (last, others) = quoted.split_last().expect("there are words");
    let expected = format!("{} or {last}", others.join(", "));
    let Some(given) = fields.get::<String>(name, &expected)? else {
        return Ok(None);
    };
    let known = words.into_iter().find(|(word, _)| *word == given);
    let Some((_, value)) = known else {
        let shown: String = given.chars().take(40).collect();
        let message = format!("{name} must be {expected}, found {shown:?}");
        return Err(ApiError::bad(name, message));
    };
    Ok(Some(value))
}
