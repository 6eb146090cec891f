//! Owns what every request needs: the engine, the tokenizer, the names the model answers to and the keys that open it.

use crate::error::ApiError;
use crate::rates::Rates;
use mettle_engine::{EngineHandle, MAX_LOGPROBS, Pooling};
use mettle_structured::{GrammarCompiler, ReasoningFormat, StructuredError, ToolFormat};
use mettle_text::{ChatTemplate, GenerationDefaults, SpecialTokens, Tokenizer};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A file of the web page.
#[derive(Clone, Copy, Debug)]
pub struct Asset {
    pub bytes: &'static [u8],
    pub content_type: &'static str,
    /// Other contents, other tag; with its quotes.
    pub etag: &'static str,
    /// What the file may load and run.
    pub content_security_policy: &'static str,
}

/// What only the one who started the engine knows of it; shown, never used.
#[derive(Clone, Debug, Default)]
pub struct EngineFacts {
    pub backend: String,
    /// Why this backend.
    pub backend_reason: String,
    /// `cpu`, `metal`, `cuda` or `emulator`.
    pub device: String,
    pub max_num_seqs: usize,
    pub max_num_batched_tokens: usize,
    /// Tokens in a page of the KV cache.
    pub page_tokens: usize,
    pub weight_bytes: u64,
    pub kv_bytes: u64,
    pub scratch_bytes: u64,
}

/// What the server is started with, besides an engine and a tokenizer.
pub struct AppOptions {
    /// The names the model answers to; the first is the one in responses.
    pub model_names: Vec<String>,
    pub template: Option<Arc<ChatTemplate>>,
    /// How the model's template writes tool calls; `None` where it knows no tools, which are then explained to the model.
    pub tool_format: Option<ToolFormat>,
    /// How the model marks its reasoning.
    pub reasoning_format: Option<ReasoningFormat>,
    /// Sampling where a request says nothing.
    pub generation: GenerationDefaults,
    /// Tokens that end an answer.
    pub eos_ids: Vec<u32>,
    /// Any of these opens `/v1`; none leaves it open to all.
    pub api_keys: Vec<String>,
    /// Web pages from these origins may read answers; `*` is any.
    pub allowed_origins: Vec<String>,
    /// The most alternatives that may be asked for with each token; the engine's own limit holds besides.
    pub max_logprobs: usize,
    /// How hidden states become an embedding where a request says nothing.
    pub pooling: Pooling,
    /// Whether an embedding gets length 1 where a request says nothing.
    pub normalize: bool,
    /// When an answer is too late.
    pub request_timeout: Option<Duration>,
    pub facts: EngineFacts,
    /// The web page's files by path (`/`, `/app.js`); nothing is served there without it.
    pub page: Option<fn(&str) -> Option<Asset>>,
    /// The largest body, in bytes.
    pub body_limit: usize,
    /// Connections open at a time. For one more, the client that has been silent longest gives way; where all are being
    /// answered, it waits.
    pub max_connections: usize,
    /// How long a connection may take to send the head of a request, the wait for its first byte included.
    pub head_timeout: Duration,
    /// How long a client may read nothing of what it is sent.
    pub write_timeout: Duration,
}

impl AppOptions {
    /// A model called `name`, open to all and to every web page, bodies up to 32 MB, 1024 connections of which none is
    /// idle for 30 seconds.
    pub fn new(name: impl Into<String>) -> AppOptions {
        AppOptions {
            model_names: vec![name.into()],
            template: None,
            tool_format: None,
            reasoning_format: None,
            generation: GenerationDefaults::default(),
            eos_ids: Vec::new(),
            api_keys: Vec::new(),
            allowed_origins: vec!["*".to_owned()],
            max_logprobs: MAX_LOGPROBS,
            pooling: Pooling::Last,
            normalize: true,
            request_timeout: None,
            facts: EngineFacts::default(),
            page: None,
            body_limit: 32_000_000,
            max_connections: 1024,
            head_timeout: Duration::from_secs(30),
            write_timeout: Duration::from_secs(60),
        }
    }
}

const ONLY_EMBEDS: &str = "this model only makes embeddings: use /v1/embeddings";

pub struct App {
    pub(crate) engine: EngineHandle,
    pub(crate) tokenizer: Arc<Tokenizer>,
    pub(crate) options: AppOptions,
    /// Seconds since 1970.
    pub(crate) started: u64,
    pub(crate) start: Instant,
    pub(crate) rates: Rates,
    /// The most bytes of text that can fit the context.
    longest_text: usize,
    requests: AtomicU64,
    draining: AtomicBool,
    /// Made when it is first needed: that takes a moment and some memory.
    grammars: OnceLock<Result<GrammarCompiler, StructuredError>>,
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
            start: Instant::now(),
            rates: Rates::default(),
            requests: AtomicU64::new(0),
            draining: AtomicBool::new(false),
            grammars: OnceLock::new(),
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

    /// The same, for a request that is to be answered with tokens.
    pub(crate) fn check_generating_model(&self, asked: Option<&str>) -> Result<(), ApiError> {
        self.check_model(asked)?;
        match self.engine.limits().gives_logits {
            true => Ok(()),
            false => Err(ApiError::bad("model", ONLY_EMBEDS)),
        }
    }

    /// Token ids of a text. One that cannot fit is refused before the work of tokenizing it.
    pub(crate) fn encode(
        &self,
        text: &str,
        specials: SpecialTokens,
        add_special: bool,
    ) -> Result<Vec<u32>, ApiError> {
        self.check_length("prompt", text.len())?;
        Ok(self.tokenizer.encode(text, specials, add_special)?)
    }

    /// Refuses a text that is longer than any that could fit.
    pub(crate) fn check_length(&self, param: &str, bytes: usize) -> Result<(), ApiError> {
        if bytes <= self.longest_text {
            return Ok(());
        }
        let context = self.engine.limits().context;
        Err(ApiError::bad(
            param,
            format!(
                "this model's maximum context length is {context} tokens, you requested a text of {bytes} bytes, which cannot fit"
            ),
        ))
    }

    pub(crate) fn grammars(&self) -> Result<&GrammarCompiler, StructuredError> {
        let make = || GrammarCompiler::new(&self.tokenizer, &self.options.eos_ids);
        self.grammars
            .get_or_init(make)
            .as_ref()
            .map_err(Clone::clone)
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
