//! Owns turning a stream of tokens into text without ever splitting a character.

use std::sync::Arc;

use crate::Tokenizer;
use crate::vocabulary::Opening;

/// Releases text as soon as its characters are complete. What all calls return, put together, is
/// what [`Tokenizer::decode_continuation`] gives for all the ids at once: the ids continue a prompt,
/// so a space at their start separates them from it.
#[derive(Debug)]
pub struct Detokenizer {
    tokenizer: Arc<Tokenizer>,
    skip_special: bool,
    /// What the start of a whole text still loses.
    opening: Option<Opening>,
    /// The first bytes of a character whose rest has not come yet: at most three.
    pending: Vec<u8>,
    released: String,
}

impl Detokenizer {
    pub fn new(tokenizer: Arc<Tokenizer>, skip_special: bool) -> Self {
        Self {
            tokenizer,
            skip_special,
            opening: None,
            pending: Vec::new(),
            released: String::new(),
        }
    }

    /// For ids that continue nothing: all together give what [`Tokenizer::decode`] does.
    pub fn of_whole_text(tokenizer: Arc<Tokenizer>, skip_special: bool) -> Self {
        Self {
            opening: Some(tokenizer.opening()),
            ..Self::new(tokenizer, skip_special)
        }
    }

    /// The text that this token completes; often empty inside a character.
    pub fn push(&mut self, id: u32) -> &str {
        self.released.clear();
        self.take_bytes(id);
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

    fn take_bytes(&mut self, id: u32) {
        let bytes = self.tokenizer.shown_bytes(id, self.skip_special);
        let is_shown = self.tokenizer.shows(id, self.skip_special);
        match self.opening {
            Some(Opening::Spaces(most)) => {
                let spaces = bytes.iter().take_while(|byte| **byte == b' ').count();
                let dropped = spaces.min(most);
                self.pending.extend_from_slice(&bytes[dropped..]);
                let is_open = dropped == bytes.len() && dropped < most;
                self.opening = is_open.then_some(Opening::Spaces(most - dropped));
            }
            Some(Opening::FirstTokenWithoutSpaces) if is_shown => {
                let bytes = bytes.iter().filter(|byte| **byte != b' ');
                self.pending.extend(bytes);
                self.opening = None;
            }
            Some(Opening::FirstTokenAsWritten) if is_shown => {
                let text = self.tokenizer.token_text(id).unwrap_or_default();
                self.pending.extend_from_slice(text.as_bytes());
                self.opening = None;
            }
            _ => self.pending.extend_from_slice(bytes),
        }
    }

    /// The rest: a replacement character if the text ends inside a character, else nothing.
    pub fn finish(self) -> String {
        String::from_utf8_lossy(&self.pending).into_owned()
    }
}
