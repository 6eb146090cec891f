//! Owns the GGUF keys that only SentencePiece and WordPiece vocabularies have, and what those make of a file.

use crate::ends::{Ends, Roles};
use crate::sentence_pieces::{Algorithm, Piece, PieceKind, SentencePieces};
use crate::spaces::SPACE;
use crate::vocabulary::Opening;
use crate::word_pieces::WordPieces;
use crate::{GgufVocab, TextError, Tokenizer};

/// The `tokenizer.ggml.*` keys of a GGUF file whose model is not byte-level BPE.
#[derive(Clone, Debug, Default, serde::Deserialize)]
#[serde(default)]
pub struct GgufPieces {
    /// `scores`: one for each token of a SentencePiece vocabulary.
    pub scores: Vec<f32>,
    pub precompiled_charsmap: Vec<u8>,
    pub remove_extra_whitespaces: Option<bool>,
    /// `cls_token_id`: newer files call it BOS.
    pub cls: Option<u32>,
    /// `seperator_token_id`, as the format spells it.
    pub separator: Option<u32>,
    /// `add_sep_token`
    pub add_separator: Option<bool>,
    /// `normalizer.lowercase`: case does not matter to a WordPiece vocabulary.
    pub lowercase: Option<bool>,
}

/// How many sentinels T5 has.
const SENTINELS: usize = 100;

impl GgufPieces {
    pub(crate) fn into_sentence_pieces(self, vocab: GgufVocab) -> Result<Tokenizer, TextError> {
        let unigram = vocab.model == "t5";
        let space_prefix = vocab.add_space_prefix.unwrap_or(vocab.model != "gemma4");
        if self.scores.len() != vocab.tokens.len() {
            return Err(TextError::BrokenVocabulary(format!(
                "{} tokens but {} scores",
                vocab.tokens.len(),
                self.scores.len()
            )));
        }
        let mut roles = vocab.roles();
        let mut pieces = Vec::with_capacity(vocab.tokens.len());
        for (index, (text, score)) in vocab.tokens.into_iter().zip(self.scores).enumerate() {
            let number = vocab.token_types.get(index).copied().unwrap_or(1);
            let kind = PieceKind::of(i64::from(number), index)?;
            let text = with_written_spaces(text);
            pieces.push(Piece { text, score, kind });
        }
        if unigram {
            name_sentinels(&mut pieces);
        }
        let pieces = SentencePieces {
            algorithm: match unigram {
                true => Algorithm::Unigram,
                false => Algorithm::Merging,
            },
            pieces,
            merges: vocab.merges,
            unknown: roles.unknown,
            space_prefix,
            remove_extra_spaces: self.remove_extra_whitespaces.unwrap_or(unigram),
            charsmap: self.precompiled_charsmap,
        };
        roles.unknown = pieces.unknown_id();
        let ends = Ends::new(
            vocab.add_bos.unwrap_or(!unigram && roles.bos.is_some()),
            vocab.add_eos.unwrap_or(unigram && roles.eos.is_some()),
            &roles,
        )?;
        let built = pieces.build()?;
        Tokenizer::assemble(built.pipeline, built.vocabulary, built.opening, roles, ends)
    }

    pub(crate) fn into_word_pieces(self, vocab: GgufVocab) -> Result<Tokenizer, TextError> {
        for (role, id) in [("cls", self.cls), ("separator", self.separator)] {
            vocab.check_role(role, id)?;
        }
        let roles = vocab.roles();
        // Newer files call the separator behind a text EOS, and speak by the other key of the one between two texts.
        let add_end = match (self.add_separator, vocab.add_eos) {
            (None, None) => None,
            (separator, eos) => Some(separator == Some(true) || eos == Some(true)),
        };
        let add_bos = vocab.add_bos;
        let mut words = WordPieces::from_gguf(vocab.tokens, &vocab.token_types, roles.unknown)?;
        words.lowercase = self.lowercase.unwrap_or(words.lowercase);
        let roles = Roles {
            bos: self.cls.or(roles.bos).or(words.id_of("[CLS]")),
            eos: self.separator.or(roles.eos).or(words.id_of("[SEP]")),
            unknown: Some(words.unknown),
            ..roles
        };
        let ends = Ends::new(
            add_bos.unwrap_or(roles.bos.is_some()),
            add_end.unwrap_or(roles.eos.is_some()),
            &roles,
        )?;
        let (pipeline, vocabulary) = words.build()?;
        let opening = Opening::FirstTokenAsWritten;
        Tokenizer::assemble(pipeline, vocabulary, opening, roles, ends)
    }
}

/// Converters write Gemma's tokens of several spaces as spaces; merging knows them as SentencePiece wrote them.
fn with_written_spaces(text: String) -> String {
    match !text.is_empty() && text.bytes().all(|byte| byte == b' ') {
        true => text.replace(' ', &SPACE.to_string()),
        false => text,
    }
}

/// T5's `<extra_id_99>` to `<extra_id_0>` are not in its SentencePiece file, so converters call them `[PAD32000]` and up.
fn name_sentinels(pieces: &mut [Piece]) {
    if pieces.iter().any(|piece| piece.text == "<extra_id_0>") {
        return;
    }
    let placeholders = pieces.iter_mut().filter(|piece| {
        let inside = piece.text.strip_prefix("[PAD");
        let number = inside.and_then(|inside| inside.strip_suffix(']'));
        number.is_some_and(|number| {
            !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
        })
    });
    for (piece, number) in placeholders.zip((0..SENTINELS).rev()) {
        piece.text = format!("<extra_id_{number}>");
        piece.kind = PieceKind::Control;
    }
}
