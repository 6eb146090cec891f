//! Owns what every request needs: the engine, the tokenizer, the names the model answers to and the keys that open it.

use crate::error::ApiError;
use mettle_engine::EngineHandle;
use mettle_text::{ChatTemplate, GenerationDefaults, SpecialTokens, Tokenizer};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// What the server is started with, besides an engine and a tokenizer.
#[derive(Debug)]
pub struct AppOptions {
    /// The names the model answers to; the first is the one in responses.
    pub model_names: Vec<String>,
    pub template: Option<Arc<ChatTemplate>>,
    /// Sampling where a request says nothing.
    pub generation: GenerationDefaults,
    /// Tokens that end an answer.
    pub eos_ids: Vec<u32>,
    /// Any of these opens `/v1`; none leaves it open to all.
    pub api_keys: Vec<String>,
    /// The largest body, in bytes.
    pub body_limit: usize,
    /// Connections open at a time; more wait to be accepted.
    pub max_connections: usize,
    /// How long a connection may take to send the head of a request, the wait for its first byte included.
    pub head_timeout: Duration,
}

impl AppOptions {
    /// A model called `name`, open to all, bodies up to 32 MB, 1024 connections of which none is idle for 30 seconds.
    pub fn new(name: impl Into<String>) -> AppOptions {
        AppOptions {
            model_names: vec![name.into()],
            template: None,
            generation: GenerationDefaults::default(),
            eos_ids: Vec::new(),
            api_keys: Vec::new(),
            body_limit: 32_000_000,
            max_connections: 1024,
            head_timeout: Duration::from_secs(30),
        }
    }
}

#[derive(Debug)]
pub struct App {
    pub(crate) engine: EngineHandle,
    pub(crate) tokenizer: Arc<Tokenizer>,
    pub(crate) options: AppOptions,
    /// Seconds since 1970.
    pub(crate) started: u64,
    /// The most bytes of text that can fit the context.
    longest_text: usize,
    requests: AtomicU64,
    draining: AtomicBool,
}

impl App {
    pub fn new(engine: EngineHandle, tokenizer: Arc<Tokenizer>, options: AppOptions) -> App {
        assert!(!options.model_names.is_empty(), "a model needs a name");
        let ids = 0..tokenizer.vocab_size() as u32;
        let longest_token = ids
            .filter_map(|id| tokenizer.token_bytes(id))
            .map(<[u8]>::len)
            .max()
            .unwrap_or(1);
        App {
            // Normalization and stripped blanks shorten a text; by more than 4 it would be no text any more.
            longest_text: 4 * longest_token.max(1) * engine.limits().context,
            engine,
            tokenizer,
            options,
            started: seconds_since_1970(),
            requests: AtomicU64::new(0),
            draining: AtomicBool::new(false),
        }
    }

    pub(crate) fn model_name(&self) -> &str {
        &self.options.model_names[0]
    }

    /// `None` asks for whatever is there.
    pub(crate) fn check_model(&self, asked: Option<&str>) -> Result<(), ApiError> {
        match asked {
            Some(name) if !self.options.model_names.iter().any(|known| known == name) => {
                Err(ApiError::UnknownModel(name.to_owned()))
            }
            _ => Ok(()),
        }
    }

    /// Token ids of a text. One that cannot fit is refused before the work of tokenizing it.
    pub(crate) fn encode(
        &self,
        text: &str,
        specials: SpecialTokens,
        add_special: bool,
    ) -> Result<Vec<u32>, ApiError> {
        if text.len() > self.longest_text {
            return Err(ApiError::bad(
                "prompt",
                format!(
                    "this model's maximum context length is {} tokens, you requested a text of {} bytes, which cannot fit",
                    self.engine.limits().context,
                    text.len()
                ),
            ));
        }
        Ok(self.tokenizer.encode(text, specials, add_special)?)
    }

    /// Different for every request of this server.
    pub(crate) fn next_number(&self) -> u64 {
        self.requests.fetch_add(1, Ordering::Relaxed)
    }

    /// From now on new requests are refused.
    pub(crate) fn drain(&self) {
        self.draining.store(true, Ordering::SeqCst);
    }

    pub(crate) fn check_ready(&self) -> Result<(), ApiError> {
        if self.draining.load(Ordering::SeqCst) {
            return Err(ApiError::Unavailable("the server is shutting down".into()));
        }
        match self.engine.is_alive() {
            true => Ok(()),
            false => Err(ApiError::Unavailable("the engine has stopped".into())),
        }
    }
}

pub(crate) fn seconds_since_1970() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |duration| duration.as_secs())
}
