//! Owns the reading of `tokenizer.model`, SentencePiece's own file, with `tokenizer_config.json` beside it.

use crate::ends::{Ends, Roles};
use crate::protobuf::{Fields, Value};
use crate::sentence_pieces::{Algorithm, Piece, PieceKind, SentencePieces};
use crate::tokenizer_config::TokenizerConfig;
use crate::{TextError, Tokenizer};

/// The file as it is; absent fields have the format's own defaults.
struct Model {
    pieces: Vec<Piece>,
    algorithm: i64,
    whitespace_as_suffix: bool,
    unknown: i64,
    bos: i64,
    eos: i64,
    padding: i64,
    charsmap: Vec<u8>,
    dummy_prefix: bool,
    remove_extra_whitespaces: bool,
    escape_whitespaces: bool,
}

impl Tokenizer {
    /// Loads `tokenizer.model` (or `spiece.model`). `tokenizer_config.json` may name the BOS and EOS tokens, say whether
    /// they are added, and add tokens. Where it is silent, a text gets the vocabulary's BOS or, as T5 has none, its EOS.
    pub fn from_sentencepiece(
        model: &[u8],
        tokenizer_config: Option<&[u8]>,
    ) -> Result<Self, TextError> {
        let config = tokenizer_config
            .map(TokenizerConfig::from_json)
            .transpose()?
            .unwrap_or_default();
        let mut model = Model::read(model)?;
        model.add_tokens(&config)?;
        let mut roles = model.roles()?;
        let pieces = model.into_pieces(roles.unknown)?;
        roles.unknown = pieces.unknown_id();
        let built = pieces.build()?;
        let named = |text: &Option<String>| {
            let text = text.as_deref()?;
            built.vocabulary.id_of(text)
        };
        let roles = Roles {
            bos: named(&config.bos_token).or(roles.bos),
            eos: named(&config.eos_token).or(roles.eos),
            unknown: roles.unknown,
            padding: named(&config.pad_token).or(roles.padding),
        };
        let (has_bos, has_eos) = (roles.bos.is_some(), roles.eos.is_some());
        let ends = Ends::new(has_bos, has_eos && !has_bos, &roles)?;
        let ends = ends.configured(&config, &roles)?;
        Self::assemble(built.pipeline, built.vocabulary, built.opening, roles, ends)
    }
}

impl Model {
    fn read(bytes: &[u8]) -> Result<Self, TextError> {
        let mut model = Self {
            pieces: Vec::new(),
            algorithm: 1,
            whitespace_as_suffix: false,
            unknown: 0,
            bos: 1,
            eos: 2,
            padding: -1,
            charsmap: Vec::new(),
            dummy_prefix: true,
            remove_extra_whitespaces: true,
            escape_whitespaces: true,
        };
        for field in Fields::of(bytes) {
            match field? {
                (1, Value::Bytes(piece)) => {
                    let piece = read_piece(piece, model.pieces.len())?;
                    model.pieces.push(piece);
                }
                (2, Value::Bytes(trainer)) => model.read_trainer(trainer)?,
                (3, Value::Bytes(normalizer)) => model.read_normalizer(normalizer)?,
                _ => {}
            }
        }
        Ok(model)
    }

    fn read_trainer(&mut self, bytes: &[u8]) -> Result<(), TextError> {
        for field in Fields::of(bytes) {
            match field? {
                (3, Value::Number(algorithm)) => self.algorithm = algorithm,
                (24, Value::Number(flag)) => self.whitespace_as_suffix = flag != 0,
                (40, Value::Number(id)) => self.unknown = id,
                (41, Value::Number(id)) => self.bos = id,
                (42, Value::Number(id)) => self.eos = id,
                (43, Value::Number(id)) => self.padding = id,
                _ => {}
            }
        }
        Ok(())
    }

    fn read_normalizer(&mut self, bytes: &[u8]) -> Result<(), TextError> {
        for field in Fields::of(bytes) {
            match field? {
                (2, Value::Bytes(charsmap)) => self.charsmap = charsmap.to_vec(),
                (3, Value::Number(flag)) => self.dummy_prefix = flag != 0,
                (4, Value::Number(flag)) => self.remove_extra_whitespaces = flag != 0,
                (5, Value::Number(flag)) => self.escape_whitespaces = flag != 0,
                _ => {}
            }
        }
        Ok(())
    }

    /// Tokens that the configuration adds behind the pieces: T5's sentinels, then those with an id of their own.
    fn add_tokens(&mut self, config: &TokenizerConfig) -> Result<(), TextError> {
        let has_sentinels = self.pieces.iter().any(|p| p.text == "<extra_id_0>");
        let named = config.added_tokens.iter();
        let mut named = named.filter(|added| added.id as usize >= self.pieces.len());
        if let Some(count) = config.extra_ids.filter(|_| !has_sentinels)
            && !named.any(|added| added.text == "<extra_id_0>")
        {
            let texts = (0..count).rev().map(|n| format!("<extra_id_{n}>"));
            self.pieces.extend(texts.map(|text| added(text, true)));
        }
        let mut tokens: Vec<_> = config.added_tokens.iter().collect();
        tokens.sort_by_key(|added| added.id);
        for token in tokens {
            let (index, next) = (token.id as usize, self.pieces.len());
            if index > next {
                return Err(TextError::BrokenVocabulary(format!(
                    "the added token `{}` has id {index}, the next free one is {next}",
                    token.text
                )));
            }
            if index == next {
                self.pieces.push(added(token.text.clone(), token.special));
                continue;
            }
            // A piece under another name, or with another role than SentencePiece gave it.
            let piece = &mut self.pieces[index];
            if !matches!(piece.kind, PieceKind::Unknown | PieceKind::Byte) {
                *piece = Piece {
                    score: piece.score,
                    ..added(token.text.clone(), token.special)
                };
            }
        }
        Ok(())
    }

    fn roles(&self) -> Result<Roles, TextError> {
        let pieces = self.pieces.len();
        let role = |name: &str, id: i64| match usize::try_from(id) {
            // The format writes -1 for a token that does not exist.
            Err(_) => Ok(None),
            Ok(index) if index < pieces => Ok(Some(index as u32)),
            Ok(index) => Err(TextError::BrokenVocabulary(format!(
                "the {name} token is {index}, the vocabulary has {pieces} tokens"
            ))),
        };
        Ok(Roles {
            bos: role("bos", self.bos)?,
            eos: role("eos", self.eos)?,
            unknown: role("unknown", self.unknown)?,
            padding: role("padding", self.padding)?,
        })
    }

    fn into_pieces(self, unknown: Option<u32>) -> Result<SentencePieces, TextError> {
        let unsupported = |model: String| TextError::UnsupportedModel {
            model,
            supported: "SentencePiece BPE and Unigram, spaces written before words",
        };
        let algorithm = match self.algorithm {
            1 => Algorithm::Unigram,
            2 => Algorithm::Merging,
            3 => return Err(unsupported("SentencePiece words".to_owned())),
            4 => return Err(unsupported("SentencePiece characters".to_owned())),
            other => return Err(unsupported(format!("SentencePiece model type {other}"))),
        };
        if self.whitespace_as_suffix || !self.escape_whitespaces {
            return Err(unsupported(
                "SentencePiece with spaces after words".to_owned(),
            ));
        }
        Ok(SentencePieces {
            algorithm,
            pieces: self.pieces,
            merges: Vec::new(),
            unknown,
            space_prefix: self.dummy_prefix,
            remove_extra_spaces: self.remove_extra_whitespaces,
            charsmap: self.charsmap,
            specials_take_blanks: false,
        })
    }
}

fn added(text: String, special: bool) -> Piece {
    Piece {
        text,
        score: 0.0,
        kind: match special {
            true => PieceKind::Control,
            false => PieceKind::UserDefined,
        },
    }
}

fn read_piece(bytes: &[u8], index: usize) -> Result<Piece, TextError> {
    let mut piece = Piece {
        text: String::new(),
        score: 0.0,
        kind: PieceKind::Normal,
    };
    for field in Fields::of(bytes) {
        match field? {
            (1, Value::Bytes(text)) => {
                let text = std::str::from_utf8(text).map_err(|error| {
                    TextError::TokenizerModel(format!("piece {index} is not UTF-8: {error}"))
                })?;
                piece.text = text.to_owned();
            }
            (2, Value::Fixed32(bits)) => piece.score = f32::from_bits(bits),
            (3, Value::Number(kind)) => piece.kind = PieceKind::of(kind, index)?,
            _ => {}
        }
    }
    Ok(piece)
}
