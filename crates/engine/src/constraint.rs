//! Owns the door for structured output: what says which tokens may come next.

use crate::token_mask::TokenMask;
use std::fmt;

/// Follows one choice of a request and says, after each token, which tokens may come next.
///
/// `accept` and `mask` run on the engine's constraint threads, never on the engine's own. A choice takes part in a step
/// that makes its next token only once its mask is there. Steps wait for a mask until it has been away for
/// [`MASK_PATIENCE`]; then they run without its choice until it comes. So that is the most by which a slow constraint
/// delays others, once for each of its tokens and not for each of their steps. One that takes longer than
/// [`EngineOptions::constraint_time`](crate::EngineOptions::constraint_time) ends its own choice with an error; its
/// thread is written off and replaced, [`MAX_CONSTRAINT_THREADS`] in all. So an implementation must bound its own work
/// (fuel, table sizes): nothing can stop a thread from outside.
///
/// End-of-sequence tokens are for the constraint to allow: where the text may end, its mask must hold them. They are
/// never passed to `accept`, nor are stop ids.
pub trait TokenConstraint: Send + Sync + fmt::Debug {
    /// Sets the bits of all tokens that may come next. `out` arrives empty.
    fn mask(&mut self, out: &mut TokenMask) -> Result<(), ConstraintError>;

    /// The token that was made: one of those last allowed.
    fn accept(&mut self, token: u32) -> Result<(), ConstraintError>;

    /// True where nothing can follow any more: the choice ends without waiting for an end-of-sequence token.
    fn is_finished(&self) -> bool;

    /// The same constraint in the same state for another choice. Called on the engine's thread: copy no more than the
    /// state.
    fn fork(&self) -> Box<dyn TokenConstraint>;
}

/// How long a mask may be away before steps run without its choice.
pub const MASK_PATIENCE: std::time::Duration = std::time::Duration::from_millis(2);

/// Threads for constraints, written off ones included.
pub const MAX_CONSTRAINT_THREADS: usize = 8;

/// Why a constraint cannot go on; ends its choice with this message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ConstraintError(pub String);

impl Clone for Box<dyn TokenConstraint> {
    fn clone(&self) -> Box<dyn TokenConstraint> {
        self.fork()
    }
}
