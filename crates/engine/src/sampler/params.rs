//! Owns the sampling parameters of a request and their ranges.

use crate::error::EngineError;
use crate::token_mask::TokenMask;

/// The most sequences in `bad_words`, and ids in a request's `stop_ids`: each token made is compared with all of them.
pub const MAX_LISTED: usize = 1024;

/// How the next token is drawn. The default takes the most likely token of the untouched distribution.
///
/// Steps, in order: what is forbidden (`min_tokens`, `bad_words`, `allowed_token_ids`, the request's constraint),
/// `logit_bias`, penalties (repetition, frequency, presence), temperature, min-p, top-k, top-p, typical, draw.
#[derive(Clone, Debug, PartialEq)]
pub struct SamplingParams {
    /// 0 is greedy: the largest logit, ties to the lower id.
    pub temperature: f32,
    /// Keeps the `k` most likely tokens, ties to the lower id; 0 keeps all.
    pub top_k: usize,
    /// Keeps the fewest most likely tokens that together reach this probability; 1 keeps all.
    pub top_p: f32,
    /// Keeps tokens at least this share as likely as the most likely one; 0 keeps all.
    pub min_p: f32,
    /// Keeps the fewest tokens whose surprise is closest to the expected one (the entropy of what the other filters
    /// left) that together reach this probability, ties to the lower id; 1 keeps all.
    pub typical_p: f32,
    /// Divides positive and multiplies negative logits of every token in prompt or output; 1 is off.
    pub repetition_penalty: f32,
    /// Subtracted from the logit of every token in the output.
    pub presence_penalty: f32,
    /// Subtracted from a token's logit once for each time it is in the output.
    pub frequency_penalty: f32,
    /// Added to the logits of these tokens.
    pub logit_bias: Vec<(u32, f32)>,
    /// Token sequences that the output never holds: the last token of one is impossible after the others. At most
    /// [`MAX_LISTED`].
    pub bad_words: Vec<Vec<u32>>,
    /// No other token is possible.
    pub allowed_token_ids: Option<Vec<u32>>,
    /// The same seed, prompt and parameters give the same tokens; without one the engine picks one.
    pub seed: Option<u64>,
}

impl Default for SamplingParams {
    fn default() -> SamplingParams {
        SamplingParams {
            temperature: 0.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            typical_p: 1.0,
            repetition_penalty: 1.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            logit_bias: Vec::new(),
            bad_words: Vec::new(),
            allowed_token_ids: None,
            seed: None,
        }
    }
}

impl SamplingParams {
    pub(crate) fn has_penalties(&self) -> bool {
        self.repetition_penalty != 1.0
            || self.presence_penalty != 0.0
            || self.frequency_penalty != 0.0
    }

    /// True where the largest logit of the model is the token, whatever came before.
    pub(crate) fn is_plain_greedy(&self) -> bool {
        self.temperature == 0.0
            && !self.has_penalties()
            && self.logit_bias.is_empty()
            && self.bad_words.is_empty()
            && self.allowed_token_ids.is_none()
    }

    /// `allowed_token_ids` as bits.
    pub(crate) fn allowed(&self, vocabulary: usize) -> Option<TokenMask> {
        let ids = self.allowed_token_ids.as_ref()?;
        let mut mask = TokenMask::new(vocabulary);
        ids.iter().for_each(|id| mask.allow(*id));
        Some(mask)
    }

    pub(crate) fn validate(&self, vocabulary: usize) -> Result<(), EngineError> {
        // Comparisons with NaN are false, so a range check refuses it too.
        let check = |name, value: f32, fits: bool, range| match fits {
            true => Ok(()),
            false => Err(EngineError::OutOfRange {
                name,
                value: value.to_string(),
                range,
            }),
        };
        let t = self.temperature;
        check(
            "temperature",
            t,
            (0.0..=2.0).contains(&t),
            "between 0 and 2",
        )?;
        let p = self.top_p;
        check("top_p", p, p > 0.0 && p <= 1.0, "above 0 and not above 1")?;
        let p = self.min_p;
        check("min_p", p, (0.0..=1.0).contains(&p), "between 0 and 1")?;
        let p = self.typical_p;
        check(
            "typical_p",
            p,
            p > 0.0 && p <= 1.0,
            "above 0 and not above 1",
        )?;
        let r = self.repetition_penalty;
        check(
            "repetition_penalty",
            r,
            r > 0.0 && r.is_finite(),
            "a finite number above 0",
        )?;
        for (name, value) in [
            ("presence_penalty", self.presence_penalty),
            ("frequency_penalty", self.frequency_penalty),
        ] {
            check(
                name,
                value,
                (-2.0..=2.0).contains(&value),
                "between -2 and 2",
            )?;
        }
        for &(id, bias) in &self.logit_bias {
            check_ids("logit_bias", &[id], vocabulary)?;
            check("logit_bias", bias, bias.is_finite(), "a finite number")?;
        }
        check_count("bad_words", self.bad_words.len())?;
        for word in &self.bad_words {
            check_ids("bad_words", word, vocabulary)?;
            if word.is_empty() {
                return Err(EngineError::EmptyList { name: "bad_words" });
            }
        }
        if let Some(ids) = &self.allowed_token_ids {
            check_ids("allowed_token_ids", ids, vocabulary)?;
            if ids.is_empty() {
                let name = "allowed_token_ids";
                return Err(EngineError::EmptyList { name });
            }
        }
        Ok(())
    }
}

pub(crate) fn check_ids(
    what: &'static str,
    ids: &[u32],
    vocabulary: usize,
) -> Result<(), EngineError> {
    match ids.iter().find(|id| **id as usize >= vocabulary) {
        None => Ok(()),
        Some(&id) => Err(EngineError::OutOfVocabulary {
            what,
            id,
            last: vocabulary - 1,
        }),
    }
}

pub(crate) fn check_count(name: &'static str, count: usize) -> Result<(), EngineError> {
    match count <= MAX_LISTED {
        true => Ok(()),
        false => Err(EngineError::OutOfRange {
            name,
            value: format!("a list of {count}"),
            range: "at most 1024 long",
        }),
    }
}
