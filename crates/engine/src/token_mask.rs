//! Owns a set of token ids as bits: what a constraint or a list of allowed tokens lets through.

/// One bit for each token of the vocabulary; the bit of token `i` is bit `i % 32` of word `i / 32`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenMask {
    words: Vec<u32>,
    vocabulary: usize,
}

impl TokenMask {
    /// Allows nothing yet.
    pub fn new(vocabulary: usize) -> TokenMask {
        TokenMask {
            words: vec![0; vocabulary.div_ceil(32)],
            vocabulary,
        }
    }

    pub fn vocabulary(&self) -> usize {
        self.vocabulary
    }

    /// Allows nothing.
    pub fn clear(&mut self) {
        self.words.fill(0);
    }

    /// Allows everything.
    pub fn allow_all(&mut self) {
        self.words.fill(u32::MAX);
    }

    /// Allows one more token; ids outside the vocabulary are no tokens and change nothing.
    pub fn allow(&mut self, id: u32) {
        if (id as usize) < self.vocabulary {
            self.words[id as usize / 32] |= 1 << (id % 32);
        }
    }

    pub fn is_allowed(&self, id: u32) -> bool {
        (id as usize) < self.vocabulary && self.words[id as usize / 32] >> (id % 32) & 1 == 1
    }

    /// The bits, for constraints that compute whole words. Bits behind the vocabulary are ignored.
    pub fn words_mut(&mut self) -> &mut [u32] {
        &mut self.words
    }

    /// Makes every token that is not allowed impossible.
    pub(crate) fn apply(&self, logits: &mut [f32]) {
        for (word, logits) in self.words.iter().zip(logits.chunks_mut(32)) {
            if *word == u32::MAX {
                continue;
            }
            for (bit, logit) in logits.iter_mut().enumerate() {
                if word >> bit & 1 == 0 {
                    *logit = f32::NEG_INFINITY;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_allowed_becomes_impossible() {
        for vocabulary in [1, 31, 32, 33, 64, 100] {
            let mut mask = TokenMask::new(vocabulary);
            let allowed = |id: usize| id.is_multiple_of(3) || id + 1 == vocabulary;
            (0..vocabulary + 40)
                .filter(|id| allowed(*id))
                .for_each(|id| mask.allow(id as u32));
            let mut logits = vec![1.0; vocabulary];
            mask.apply(&mut logits);
            for (id, logit) in logits.iter().enumerate() {
                assert_eq!(*logit == 1.0, allowed(id), "{id} of {vocabulary}");
                assert_eq!(mask.is_allowed(id as u32), allowed(id));
            }
            assert!(!mask.is_allowed(vocabulary as u32));
            mask.allow_all();
            let mut logits = vec![1.0; vocabulary];
            mask.apply(&mut logits);
            assert_eq!(logits, vec![1.0; vocabulary]);
            mask.clear();
            mask.apply(&mut logits);
            assert_eq!(logits, vec![f32::NEG_INFINITY; vocabulary]);
        }
    }
}
