//! Owns a SentencePiece vocabulary, whichever file it came from, and turns it into the parts of a tokenizer.

use std::collections::{HashMap, HashSet};

use crate::piece_merges::{self, Mergeable};
use crate::pipeline::{AddedEntry, PieceModel, Pieces, Pipeline};
use crate::spaces::{Runs, Spaces};
use crate::vocabulary::{Kind, Opening, Spelling, Vocabulary};
use crate::{TextError, charsmap};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Algorithm {
    /// Merging pairs, the best score first (Llama 2, Mistral, Gemma).
    Merging,
    /// The most likely segmentation (T5).
    Unigram,
}

/// The types of pieces, under the numbers that `tokenizer.model` and GGUF share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PieceKind {
    Normal,
    Unknown,
    Control,
    UserDefined,
    Unused,
    Byte,
}

impl PieceKind {
    pub(crate) fn of(number: i64, index: usize) -> Result<Self, TextError> {
        Ok(match number {
            // GGUF's 0 is a type that nobody set.
            0 | 1 => Self::Normal,
            2 => Self::Unknown,
            3 => Self::Control,
            4 => Self::UserDefined,
            5 => Self::Unused,
            6 => Self::Byte,
            _ => {
                return Err(TextError::BrokenVocabulary(format!(
                    "token {index} has type {number}, the known ones are 0 to 6"
                )));
            }
        })
    }
}

pub(crate) struct Piece {
    pub(crate) text: String,
    pub(crate) score: f32,
    pub(crate) kind: PieceKind,
}

pub(crate) struct SentencePieces {
    pub(crate) algorithm: Algorithm,
    pub(crate) pieces: Vec<Piece>,
    /// Pairs with a space between them, where the file lists them; else they follow from the scores.
    pub(crate) merges: Vec<String>,
    pub(crate) unknown: Option<u32>,
    pub(crate) space_prefix: bool,
    pub(crate) remove_extra_spaces: bool,
    pub(crate) charsmap: Vec<u8>,
    /// Blanks behind a control or user-defined token are part of it, but for those that Phi-3 excepts.
    pub(crate) specials_take_blanks: bool,
}

/// What a tokenizer is made of.
pub(crate) struct Built {
    pub(crate) pipeline: Pipeline,
    pub(crate) vocabulary: Vocabulary,
    pub(crate) opening: Opening,
}

impl SentencePieces {
    /// The id of the unknown token: the one named, or the one whose type says so.
    pub(crate) fn unknown_id(&self) -> Option<u32> {
        let typed = || {
            let mut pieces = self.pieces.iter();
            pieces.position(|piece| piece.kind == PieceKind::Unknown)
        };
        self.unknown.or_else(|| typed().map(|index| index as u32))
    }

    pub(crate) fn build(self) -> Result<Built, TextError> {
        if !self.charsmap.is_empty() {
            charsmap::check(&self.charsmap)?;
        }
        let unknown = self.unknown_id();
        let byte_fallback = self.has_all_bytes();
        if unknown.is_none() && !byte_fallback {
            return Err(TextError::BrokenVocabulary(format!(
                "{} tokens, but neither an unknown token nor one for each byte",
                self.pieces.len()
            )));
        }
        let mut vocabulary = Vocabulary::new(self.pieces.len());
        let mut added = Vec::new();
        for (piece, id) in self.pieces.iter().zip(0..) {
            let kind = piece.vocabulary_kind();
            if kind != Kind::Normal {
                added.push(AddedEntry {
                    text: piece.text.clone(),
                    id,
                    special: kind == Kind::Special,
                    takes_blanks: self.specials_take_blanks
                        && !["<unk>", "<s>", "<|endoftext|>"].contains(&&*piece.text),
                });
            }
            vocabulary.insert(id, piece.text.clone(), kind, &Spelling::Metaspace)?;
        }
        let model = match self.algorithm {
            Algorithm::Merging => self.merging_model(unknown, byte_fallback)?,
            Algorithm::Unigram => self.unigram_model(unknown, byte_fallback),
        };
        let runs = match (self.remove_extra_spaces, self.algorithm) {
            (false, _) => Runs::Kept,
            (true, Algorithm::Merging) => Runs::Single,
            (true, Algorithm::Unigram) => Runs::Words,
        };
        let opening = match (self.space_prefix, runs) {
            (false, _) => Opening::Spaces(0),
            (true, Runs::Kept | Runs::Single) => Opening::Spaces(1),
            (true, Runs::Words) => Opening::FirstTokenWithoutSpaces,
        };
        let pipeline = Pipeline::from_pieces(Pieces {
            model,
            added,
            charsmap: self.charsmap,
            spaces: Spaces {
                prefix: self.space_prefix,
                runs,
            },
        })?;
        Ok(Built {
            pipeline,
            vocabulary,
            opening,
        })
    }

    fn has_all_bytes(&self) -> bool {
        let bytes = self.pieces.iter().filter(|p| p.kind == PieceKind::Byte);
        let found: HashSet<&str> = bytes.map(|piece| piece.text.as_str()).collect();
        (0..=255u8).all(|byte| found.contains(&*format!("<0x{byte:02X}>")))
    }

    fn merging_model(
        &self,
        unknown: Option<u32>,
        byte_fallback: bool,
    ) -> Result<PieceModel, TextError> {
        let numbered = || self.pieces.iter().zip(0u32..);
        let mergeable = numbered().filter(|(piece, _)| piece.can_be_merged());
        let merges = if self.merges.is_empty() {
            let mergeable = mergeable.map(|(piece, id)| Mergeable {
                text: &piece.text,
                id,
                score: piece.score,
                first: piece.kind == PieceKind::UserDefined,
            });
            piece_merges::merges(mergeable.collect())
        } else {
            let known = mergeable
                .map(|(piece, id)| (piece.text.clone(), id))
                .collect();
            let merges = self.merges.iter();
            merges
                .map(|merge| crate::gguf_vocab::checked_merge(merge, &known))
                .collect::<Result<_, _>>()?
        };
        // Beside what can be merged: the tokens that the model falls back on.
        let tokens = numbered().filter(|(piece, id)| {
            piece.can_be_merged() || piece.kind == PieceKind::Byte || Some(*id) == unknown
        });
        let tokens: HashMap<String, u32> =
            tokens.map(|(piece, id)| (piece.text.clone(), id)).collect();
        Ok(PieceModel::Merging {
            tokens,
            merges,
            unknown: unknown.map(|id| self.pieces[id as usize].text.clone()),
            byte_fallback,
        })
    }

    fn unigram_model(&self, unknown: Option<u32>, byte_fallback: bool) -> PieceModel {
        let entries = self.pieces.iter().map(|piece| {
            let reachable = matches!(
                piece.kind,
                PieceKind::Normal | PieceKind::UserDefined | PieceKind::Byte
            );
            (
                unless_reachable(&piece.text, reachable),
                f64::from(piece.score),
            )
        });
        PieceModel::Unigram {
            entries: entries.collect(),
            unknown: unknown.map(|id| id as usize),
            byte_fallback,
        }
    }
}

/// The spelling of an entry that holds its place in a list but must match no text: texts have lost their spaces.
pub(crate) fn unless_reachable(text: &str, reachable: bool) -> String {
    match reachable {
        true => text.to_owned(),
        false => format!(" {text}"),
    }
}

impl Piece {
    fn vocabulary_kind(&self) -> Kind {
        match self.kind {
            PieceKind::Control | PieceKind::Unknown => Kind::Special,
            PieceKind::UserDefined => Kind::Added,
            _ => Kind::Normal,
        }
    }

    /// Control tokens must stay out of reach of merging, or plain text could produce them.
    fn can_be_merged(&self) -> bool {
        matches!(self.kind, PieceKind::Normal | PieceKind::UserDefined) && !self.text.is_empty()
    }
}
