//! Owns everything between text and token ids: tokenizers, incremental detokenizing, stop strings,
//! chat templates and a model's own sampling defaults. Knows no model and no request.

mod byte_alphabet;
mod charsmap;
mod chat;
mod detokenizer;
mod ends;
mod error;
mod generation;
mod gguf_pieces;
mod gguf_vocab;
mod piece_merges;
mod pipeline;
mod pretokenizer;
mod protobuf;
mod python_json;
mod sentence_pieces;
mod sentencepiece_model;
mod spaces;
mod special_finder;
mod splitter;
mod stop;
mod template;
mod template_library;
mod template_source;
mod template_threads;
mod tokenizer;
mod tokenizer_config;
mod tokenizer_json;
mod vocabulary;
mod word_pieces;

pub use chat::{Message, encode_chat};
pub use detokenizer::Detokenizer;
pub use error::TextError;
pub use generation::GenerationDefaults;
pub use gguf_pieces::GgufPieces;
pub use gguf_vocab::GgufVocab;
pub use stop::{StopMatcher, StopOutcome, StopStrings};
pub use template::{ChatTemplate, RenderOptions, TemplateSpecials};
pub use tokenizer::{SpecialTokens, Tokenizer};
pub use tokenizer_config::{AddedToken, TokenizerConfig};
