//! Owns the vocabulary as the grammar library wants it: the bytes of every token that text may be made of.

use crate::StructuredError;
use llguidance::toktrie::{ApproximateTokEnv, INVALID_TOKEN, TokEnv, TokRxInfo, TokTrie};
use mettle_text::Tokenizer;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Longer tokens (rules of dashes, runs of spaces) are never allowed under a grammar: the trie holds 1024 at most, and
/// shorter tokens spell the same text.
const LONGEST_TOKEN: usize = 512;

/// Special tokens and those that end a text have no bytes here, so that no grammar can spell them; a grammar may name
/// them by id.
pub(crate) fn build(tokenizer: &Tokenizer, eos: &[u32]) -> Result<TokEnv, StructuredError> {
    let size = u32::try_from(tokenizer.vocab_size())
        .ok()
        .filter(|size| *size < 1 << 24);
    let size = size.ok_or_else(|| {
        StructuredError::Vocabulary(format!("{} tokens are too many", tokenizer.vocab_size()))
    })?;
    let words: Vec<Vec<u8>> = (0..size)
        .map(|id| {
            let bytes = tokenizer.token_bytes(id).unwrap_or_default();
            let text =
                !tokenizer.is_special(id) && !eos.contains(&id) && bytes.len() <= LONGEST_TOKEN;
            if text { bytes.to_vec() } else { Vec::new() }
        })
        .collect();
    let eos: Vec<u32> = eos.iter().copied().filter(|id| *id < size).collect();
    let trie = catch_unwind(AssertUnwindSafe(|| {
        let trie = TokTrie::from(&TokRxInfo::new(size, INVALID_TOKEN), &words);
        match eos.is_empty() {
            true => trie,
            false => trie.with_eos_tokens(&eos),
        }
    }));
    // The trie asserts its own bounds (4 million nodes), which only a damaged vocabulary exceeds.
    let trie = trie.map_err(|_| StructuredError::Vocabulary("it is too large".to_owned()))?;
    Ok(Arc::new(ApproximateTokEnv::new(trie)))
}
