//! Owns turning a stream of tokens into text without ever splitting a character.

use std::sync::Arc;

use crate::Tokenizer;

/// Releases text as soon as its characters are complete. What all calls return, put together, is
/// what [`Tokenizer::decode_continuation`] gives for all the ids at once: the ids continue a prompt,
/// so a space at their start separates them from it.
#[derive(Debug)]
pub struct Detokenizer {
    tokenizer: Arc<Tokenizer>,
    skip_special: bool,
    /// The first bytes of a character whose rest has not come yet: at most three.
    pending: Vec<u8>,
    released: String,
}

impl Detokenizer {
    pub fn new(tokenizer: Arc<Tokenizer>, skip_special: bool) -> Self {
        Self {
            tokenizer,
            skip_special,
            pending: Vec::new(),
            released: String::new(),
        }
    }

    /// The text that this token completes; often empty inside a character.
    pub fn push(&mut self, id: u32) -> &str {
        self.released.clear();
        self.pending
            .extend_from_slice(self.tokenizer.shown_bytes(id, self.skip_special));
        let mut open = 0;
        for chunk in self.pending.utf8_chunks() {
            self.released.push_str(chunk.valid());
            open = chunk.invalid().len();
            if open > 0 {
                self.released.push(char::REPLACEMENT_CHARACTER);
            }
        }
        // The last chunk may be invalid only because the bytes end too early.
        let kept = self.pending.len() - open;
        let unfinished = open > 0
            && std::str::from_utf8(&self.pending[kept..])
                .is_err_and(|error| error.error_len().is_none());
        if unfinished {
            self.released.pop();
            self.pending.drain(..kept);
        } else {
            self.pending.clear();
        }
        &self.released
    }

    /// The rest: a replacement character if the text ends inside a character, else nothing.
    pub fn finish(self) -> String {
        String::from_utf8_lossy(&self.pending).into_owned()
    }
}
