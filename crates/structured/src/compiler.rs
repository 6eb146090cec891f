//! Owns turning what a request asks for into a grammar over the model's tokens, within limits.

use crate::error::one_line;
use crate::limits::parser_limits;
use crate::{Grammar, Limits, Spec, StructuredError, token_trie};
use llguidance::api::{GrammarInit, TopLevelGrammar};
use llguidance::toktrie::InferenceCapabilities;
use llguidance::{Logger, Matcher, ParserFactory};
use mettle_text::Tokenizer;
use std::collections::HashMap;
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Grammars that are compiled at a time, those that nobody waits for any more included.
const THREADS: usize = 4;

/// The library reads grammars by recursion; what passes our limits needs less than 24 MB (tests/hostile.rs). Memory is
/// committed only as it is touched.
const STACK: usize = 128 << 20;

/// First tokens that a grammar is tried with before it is taken.
const TRIALS: usize = 3;

/// Made once for a model. `compile` blocks: call it from a thread that may.
pub struct GrammarCompiler {
    shared: Arc<Shared>,
    specials: HashMap<String, u32>,
}

struct Shared {
    factory: ParserFactory,
    vocabulary: usize,
    running: Mutex<usize>,
    ended: Condvar,
}

impl GrammarCompiler {
    /// `eos` are the ids that end a text: allowed exactly where the grammar may end.
    pub fn new(tokenizer: &Tokenizer, eos: &[u32]) -> Result<GrammarCompiler, StructuredError> {
        let environment = token_trie::build(tokenizer, eos)?;
        let mut factory = ParserFactory::new_simple(&environment)
            .map_err(|e| StructuredError::Vocabulary(one_line(&e.to_string())))?;
        factory.quiet();
        let specials = tokenizer
            .special_tokens()
            .filter(|(id, _)| !eos.contains(id))
            .map(|(id, text)| (text.to_owned(), id))
            .collect();
        Ok(GrammarCompiler {
            shared: Arc::new(Shared {
                factory,
                vocabulary: tokenizer.vocab_size(),
                running: Mutex::new(0),
                ended: Condvar::new(),
            }),
            specials,
        })
    }

    /// Compiles on a thread of its own and waits for it until the deadline.
    pub fn compile(&self, spec: &Spec, limits: &Limits) -> Result<Grammar, StructuredError> {
        let started = Instant::now();
        let what = spec.what();
        let grammar = spec.grammar(limits, &self.specials)?;
        let slot = Slot::take(&self.shared, started, limits)?;
        let too_slow = StructuredError::TooSlow {
            what,
            limit: limits.deadline,
        };
        if started.elapsed() >= limits.deadline {
            return Err(too_slow);
        }
        let (sender, receiver) = sync_channel(1);
        let shared = self.shared.clone();
        let work = move || {
            let compiled = shared.compile(grammar);
            // Free before the caller hears of it: one compilation after another needs one slot.
            drop(slot);
            let _ = sender.send(compiled);
        };
        let thread = std::thread::Builder::new()
            .name("mettle-grammar".to_owned())
            .stack_size(STACK);
        thread.spawn(work).map_err(|_| StructuredError::Busy)?;
        let left = limits.deadline.saturating_sub(started.elapsed());
        match receiver.recv_timeout(left) {
            Ok(compiled) => compiled
                .map(|start| Grammar::new(start, self.shared.vocabulary))
                .map_err(|reason| StructuredError::DoesNotCompile { what, reason }),
            // The library's fuel ends the thread; its slot stays taken until then.
            Err(_) => Err(too_slow),
        }
    }
}

impl std::fmt::Debug for GrammarCompiler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GrammarCompiler")
            .field("vocabulary", &self.shared.vocabulary)
            .finish_non_exhaustive()
    }
}

impl Shared {
    fn compile(&self, grammar: TopLevelGrammar) -> Result<Matcher, String> {
        let parser = self.factory.create_parser_from_init_ext(
            GrammarInit::Serialized(grammar),
            Logger::new(0, 0),
            InferenceCapabilities::default(),
            parser_limits(),
        );
        let parser = parser.map_err(|e| one_line(&format!("{e:#}")))?;
        let mut matcher = Matcher::new(Ok(parser));
        let first = match matcher.compute_mask_or_eos() {
            Ok(first) => first.to_list(),
            Err(e) => {
                return Err(match one_line(&e.to_string()) {
                    reason if reason.contains("NoExtension") => "nothing can satisfy it".to_owned(),
                    reason => reason,
                });
            }
        };
        // A grammar whose second step is beyond the limits is refused now, not in the middle of an answer: the fuel
        // is spent only from there on.
        let ends = self.factory.tok_env().tok_trie().eos_tokens();
        let tokens: Vec<u32> = first.into_iter().filter(|id| !ends.contains(id)).collect();
        for token in tokens.iter().step_by(tokens.len().div_ceil(TRIALS).max(1)) {
            let mut trial = matcher.deep_clone();
            let step = trial.consume_token(*token);
            step.and_then(|()| trial.compute_mask_or_eos())
                .map_err(|e| format!("it is too complex: {}", one_line(&e.to_string())))?;
        }
        Ok(matcher)
    }

    fn running(&self) -> MutexGuard<'_, usize> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One of the threads, given back on drop.
struct Slot(Arc<Shared>);

impl Slot {
    fn take(
        shared: &Arc<Shared>,
        started: Instant,
        limits: &Limits,
    ) -> Result<Slot, StructuredError> {
        let mut running = shared.running();
        while *running >= THREADS {
            let left = limits.deadline.saturating_sub(started.elapsed());
            if left.is_zero() {
                return Err(StructuredError::Busy);
            }
            running = shared
                .ended
                .wait_timeout(running, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
        *running += 1;
        drop(running);
        Ok(Slot(shared.clone()))
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        *self.0.running() -= 1;
        self.0.ended.notify_one();
    }
}
