//! Owns a compiled grammar and its state along one choice of a request.

use crate::error::one_line;
use llguidance::Matcher;
use mettle_engine::{ConstraintError, TokenConstraint, TokenMask};
use std::fmt;
use std::sync::Arc;

/// Compiled and proven to allow a first token. Cheap to clone.
#[derive(Clone)]
pub struct Grammar {
    start: Arc<Matcher>,
    vocabulary: usize,
}

impl Grammar {
    pub(crate) fn new(start: Matcher, vocabulary: usize) -> Grammar {
        Grammar {
            start: Arc::new(start),
            vocabulary,
        }
    }

    /// The constraint of one request, at its start; choices of that request fork it. Copies the lexer's tables, so that
    /// what one request adds to them neither slows nor fails another.
    pub fn constraint(&self) -> Box<dyn TokenConstraint> {
        Box::new(GrammarConstraint {
            matcher: self.start.deep_clone(),
            vocabulary: self.vocabulary,
        })
    }
}

impl fmt::Debug for Grammar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Grammar").finish_non_exhaustive()
    }
}

struct GrammarConstraint {
    matcher: Matcher,
    vocabulary: usize,
}

impl TokenConstraint for GrammarConstraint {
    fn mask(&mut self, out: &mut TokenMask) -> Result<(), ConstraintError> {
        let allowed = self.matcher.compute_mask_or_eos().map_err(failed)?;
        // A model may have more logits than its tokenizer has tokens, or fewer.
        let words = out.words_mut();
        for (word, allowed) in words.iter_mut().zip(allowed.as_slice()) {
            *word = *allowed;
        }
        let (whole, rest) = (self.vocabulary / 32, self.vocabulary % 32);
        if let Some(last) = words.get_mut(whole) {
            *last &= (1 << rest) - 1;
        }
        if let Some(behind) = words.get_mut(whole + 1..) {
            behind.fill(0);
        }
        Ok(())
    }

    fn accept(&mut self, token: u32) -> Result<(), ConstraintError> {
        self.matcher.consume_token(token).map_err(failed)
    }

    fn is_finished(&self) -> bool {
        self.matcher.is_stopped() && !self.matcher.is_error()
    }

    fn fork(&self) -> Box<dyn TokenConstraint> {
        Box::new(GrammarConstraint {
            matcher: self.matcher.clone(),
            vocabulary: self.vocabulary,
        })
    }
}

impl fmt::Debug for GrammarConstraint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GrammarConstraint").finish_non_exhaustive()
    }
}

fn failed(error: impl fmt::Display) -> ConstraintError {
    let reason = one_line(&error.to_string());
    ConstraintError(format!("the grammar cannot be followed: {reason}"))
}
