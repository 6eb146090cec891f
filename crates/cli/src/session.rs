//! Owns the way from a model's name to a running engine: locate or fetch, open, plan, rewrite, prepare, start.

use crate::config::{LoadFormat, Settings};
use crate::device::{Candidate, candidates};
use crate::fit;
use crate::interrupt::{Interrupt, Interrupted};
use crate::kv_budget::{self, KvBudget, Wanted};
use crate::terminal::{Bar, bytes, note};
use anyhow::{Context, bail};
use mettle_engine::{Engine, EngineError, EngineHandle, EngineOptions};
use mettle_models::{Model, OpenOptions};
use mettle_plan::{BackendError, Executable, MemoryUse, PageLayout, Plan, PrepareOptions, passes};
use mettle_text::{ChatTemplate, SpecialTokens, Tokenizer};
use mettle_weights::download::{self, Home, Located, Options};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Tokens in a KV page.
pub const PAGE_TOKENS: usize = 32;
/// Full contexts that a server's KV cache has room for unasked: most answers need a small part of theirs.
const CONTEXTS: usize = 4;

/// How many answers are to be made at a time, and how many requests may wait.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    pub sequences: usize,
    pub queue: usize,
}

impl Load {
    /// One conversation in a terminal.
    pub const SINGLE: Load = Load {
        sequences: 1,
        queue: 1,
    };
}

/// A model that answers.
pub struct Session {
    pub model: Model,
    pub tokenizer: Arc<Tokenizer>,
    /// The model's own, compiled; `None` for models that only continue text.
    pub template: Option<Arc<ChatTemplate>>,
    pub engine: EngineHandle,
    pub backend: String,
    /// Why this backend.
    pub backend_reason: String,
    /// `cpu`, `metal`, `cuda` or `emulator`.
    pub device: &'static str,
    pub memory: MemoryUse,
    /// Tokens of a step.
    pub batched_tokens: usize,
    pub load_time: Duration,
}

impl Session {
    pub fn open(settings: &Settings, interrupt: &Interrupt, load: Load) -> anyhow::Result<Session> {
        let path = fetch(settings, interrupt)?;
        let start = Instant::now();
        let model = Model::open(&path, open_options(settings))?;
        let mut plans = model.plans();
        for plan in &mut plans {
            passes::apply(plan, &settings.disable_pass)?;
        }
        let candidates = candidates(settings)?;
        // Each takes a good part of a second for a small model; together they take as long as the longer one.
        let (text, prepared) = std::thread::scope(|scope| {
            let text = scope.spawn(|| text_of(&model));
            let prepared = prepare_on_first(candidates, &plans, &model, settings, load);
            (
                text.join().expect("the text thread does not panic"),
                prepared,
            )
        });
        let (tokenizer, template) = text?;
        let Prepared {
            executable,
            budget,
            backend,
            reason: backend_reason,
            device,
        } = prepared?;
        let memory = executable.memory();
        let batched_tokens = executable.bounds().tokens;
        let engine = Engine::start(
            executable,
            EngineOptions {
                max_sequences: load.sequences,
                max_queue: load.queue,
                max_batched_tokens: batched_tokens,
                prefix_cache: settings.prefix_cache,
                decoder_start: model.decoder_start(),
                ..EngineOptions::new(model.vocab_size, budget.context, budget.pages)
            },
        )?;
        if interrupt.is_pressed() {
            return Err(Interrupted.into());
        }
        Ok(Session {
            model,
            tokenizer,
            template,
            engine,
            backend,
            backend_reason,
            device,
            memory,
            batched_tokens,
            load_time: start.elapsed(),
        })
    }

    /// An error for a model that has only vectors to give.
    pub fn check_generates(&self) -> Result<(), EngineError> {
        match self.engine.limits().gives_logits {
            true => Ok(()),
            false => Err(EngineError::OnlyPools),
        }
    }

    /// Token ids of a raw prompt.
    pub fn encode(&self, text: &str) -> anyhow::Result<Vec<u32>> {
        Ok(self.tokenizer.encode(text, SpecialTokens::Parse, true)?)
    }
}

type Text = (Arc<Tokenizer>, Option<Arc<ChatTemplate>>);

fn text_of(model: &Model) -> anyhow::Result<Text> {
    let tokenizer = model.tokenizer()?;
    let template = match &model.chat_template {
        Some(source) => {
            let template = ChatTemplate::new(source, tokenizer.template_specials())?;
            Some(Arc::new(template))
        }
        None => None,
    };
    Ok((tokenizer, template))
}

/// The file or folder of the model that the settings name; fetched if it is not there.
pub fn fetch(settings: &Settings, interrupt: &Interrupt) -> anyhow::Result<PathBuf> {
    let home = Home::discover(Some(settings.home.clone()))?;
    match download::locate(&settings.model, &home)? {
        Located::Path(path) => Ok(path),
        Located::NotCached { name, .. } if settings.offline => {
            bail!(
                "{name} is not in the cache and the network is switched off (METTLE_OFFLINE, HF_HUB_OFFLINE)"
            )
        }
        Located::NotCached { name, bytes: size } => {
            let size = size.map(|size| format!(" ({})", bytes(size)));
            note(&format!(
                "{name}{} is not in the cache yet; fetching it once",
                size.unwrap_or_default()
            ));
            Ok(download::pull(
                &name,
                &home,
                &download_options(settings, interrupt),
                &mut Bar::new(),
            )?)
        }
    }
}

pub fn download_options(settings: &Settings, interrupt: &Interrupt) -> Options {
    Options {
        hub_endpoint: settings.hub_endpoint.clone(),
        hub_token: settings.hub_token.clone(),
        cancel: interrupt.flag(),
    }
}

pub fn open_options(settings: &Settings) -> OpenOptions {
    OpenOptions {
        load_format: match settings.load_format {
            LoadFormat::Auto => mettle_models::LoadFormat::Auto,
            LoadFormat::Dummy => mettle_models::LoadFormat::Dummy {
                seed: settings.seed.unwrap_or(0),
            },
        },
        kv_element: settings.kv_element,
        context_length: settings.max_model_len,
        ..OpenOptions::default()
    }
}

/// The plan of a model for commands that measure plain decoders.
pub fn only_plan(model: &Model) -> anyhow::Result<Plan> {
    match model.decoder_start() {
        None => Ok(model.plan()),
        Some(_) => bail!(
            "{} has an encoder and a decoder ({}), which this command does not measure",
            model.name,
            model.architecture()
        ),
    }
}

/// A plan on the backend that took it.
struct Prepared {
    executable: Box<dyn Executable>,
    budget: KvBudget,
    backend: String,
    reason: String,
    device: &'static str,
}

/// Prepares the model on the first backend that can run it; one line says why another could not.
fn prepare_on_first(
    candidates: Vec<Candidate>,
    plans: &[Plan],
    model: &Model,
    settings: &Settings,
    load: Load,
) -> anyhow::Result<Prepared> {
    let last = candidates.len() - 1;
    for (number, candidate) in candidates.into_iter().enumerate() {
        match prepare(candidate, plans, model, settings, load) {
            Err(error) if number < last && !settings.strict && can_fall_back(&error) => {
                note(&format!(
                    "note: {error:#}; the CPU takes over (--strict forbids that)"
                ));
            }
            result => return result.with_context(|| format!("{} cannot run", model.name)),
        }
    }
    unreachable!("the last backend's result was returned")
}

/// What another backend may do better: not a broken file, not a wrong setting.
fn can_fall_back(error: &anyhow::Error) -> bool {
    matches!(
        error.downcast_ref(),
        Some(
            BackendError::Unsupported { .. }
                | BackendError::Device { .. }
                | BackendError::OutOfMemory { .. }
        )
    )
}

fn prepare(
    candidate: Candidate,
    plans: &[Plan],
    model: &Model,
    settings: &Settings,
    load: Load,
) -> anyhow::Result<Prepared> {
    let layout = PageLayout::new(&plans[0].kv_groups, PAGE_TOKENS);
    let wanted = Wanted {
        context: model.context_length,
        is_context_fixed: settings.max_model_len.is_some(),
        memory: settings.kv_memory,
        chunk: settings.max_num_batched_tokens,
        contexts: load.sequences.min(CONTEXTS),
    };
    let free = candidate.free_memory(&*model.tensors);
    if candidate.backend.memory_budget().is_none() {
        fit::check_weights(fit::weight_bytes(model.tensors.tensors()), free)?;
    }
    let budget = kv_budget::budget(&layout, &wanted, free)?;
    let cache_bytes = (budget.pages * layout.page_bytes) as u64;
    // What no cache keeps is computed in one step, and so is what an encoder reads.
    let at_least = match layout.groups.is_empty() || plans.len() > 1 {
        true => budget.context,
        false => 0,
    };
    let tokens = settings.max_num_batched_tokens.max(at_least);
    let bounds = plans[0].bounds(tokens, load.sequences);
    let options = PrepareOptions {
        bounds,
        kv_pages: budget.pages,
        page_layout: layout,
        taps: Vec::new(),
    };
    let backend = candidate.backend;
    let executable = backend.prepare(plans, &*model.tensors, options)?;
    if budget.context < model.context_length {
        note(&format!(
            "note: the KV cache ({}) holds {} of the model's {} tokens; --kv-memory gives it more",
            bytes(cache_bytes),
            budget.context,
            model.context_length
        ));
    }
    Ok(Prepared {
        executable,
        budget,
        backend: backend.describe(),
        reason: candidate.reason,
        device: backend.name(),
    })
}
