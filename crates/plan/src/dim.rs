//! Owns the symbolic sizes of a step. A buffer's row count is one of these names; its bound is known at start.

use serde::Serialize;
use std::fmt;

/// What a buffer has one row per.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Dim {
    /// Tokens computed in this step, over all sequences.
    Tokens,
    /// Sequences taking part in this step.
    Sequences,
    /// Rows for which logits are wanted: logits exist for no others.
    LogitRows,
    /// (sequence, context partition) pairs of split attention.
    ContextPartitions,
    /// (token, expert) pairs of a mixture-of-experts layer.
    ExpertAssignments,
    /// Patches that a vision tower computes; several become one media row.
    MediaPatches,
    /// Rows of media embeddings that take the place of tokens' embeddings.
    MediaRows,
}

impl Dim {
    pub const ALL: [Dim; 7] = [
        Dim::Tokens,
        Dim::Sequences,
        Dim::LogitRows,
        Dim::ContextPartitions,
        Dim::ExpertAssignments,
        Dim::MediaPatches,
        Dim::MediaRows,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Dim::Tokens => "tokens",
            Dim::Sequences => "sequences",
            Dim::LogitRows => "logit_rows",
            Dim::ContextPartitions => "context_partitions",
            Dim::ExpertAssignments => "expert_assignments",
            Dim::MediaPatches => "media_patches",
            Dim::MediaRows => "media_rows",
        }
    }
}

impl fmt::Display for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One number per dimension: the bounds fixed at start, or the sizes of one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Sizes {
    pub tokens: usize,
    pub sequences: usize,
    pub logit_rows: usize,
    pub context_partitions: usize,
    pub expert_assignments: usize,
    pub media_patches: usize,
    pub media_rows: usize,
}

/// Logits are computed at most this many rows at a time, so that the log-probabilities of a long prompt
/// do not need a buffer of tokens x vocabulary.
pub const MAX_LOGIT_ROWS: usize = 256;

impl Sizes {
    /// The bounds of a text decoder that runs at most `tokens` tokens of `sequences` sequences a step.
    pub fn bounds(tokens: usize, sequences: usize) -> Sizes {
        Sizes {
            tokens,
            sequences,
            logit_rows: tokens.min(MAX_LOGIT_ROWS.max(sequences)),
            context_partitions: 0,
            expert_assignments: 0,
            media_patches: 0,
            media_rows: 0,
        }
    }

    pub fn get(&self, dim: Dim) -> usize {
        match dim {
            Dim::Tokens => self.tokens,
            Dim::Sequences => self.sequences,
            Dim::LogitRows => self.logit_rows,
            Dim::ContextPartitions => self.context_partitions,
            Dim::ExpertAssignments => self.expert_assignments,
            Dim::MediaPatches => self.media_patches,
            Dim::MediaRows => self.media_rows,
        }
    }

    /// The first dimension in which `self` exceeds `bounds`.
    pub fn exceeds(&self, bounds: &Sizes) -> Option<Dim> {
        Dim::ALL.into_iter().find(|d| self.get(*d) > bounds.get(*d))
    }
}
