//! Owns the proof that broken SentencePiece and WordPiece files are errors, and that whatever loads can be used.

mod fixture;

use fixture::{bytes, gguf_pieces, gguf_vocab, json};
use mettle_text::{GgufPieces, GgufVocab, SpecialTokens, TextError, Tokenizer};
use proptest::prelude::*;

/// Either outcome will do, for loading as for encoding; what counts is that there is one.
fn use_it(loaded: Result<Tokenizer, TextError>) {
    let Ok(tokenizer) = loaded else {
        return;
    };
    let text = "The quick\u{1} ﬁ\u{301}ne  Ａ字😀 <s>x</s> ▁a\tnaïve [CLS]";
    for specials in [SpecialTokens::Parse, SpecialTokens::Plain] {
        if let Ok(ids) = tokenizer.encode(text, specials, true) {
            tokenizer.decode(&ids, false);
        }
    }
}

fn gguf_error(kind: &str, change: fn(&mut GgufVocab, &mut GgufPieces)) -> String {
    let (mut vocab, mut pieces) = (gguf_vocab(kind), gguf_pieces(kind));
    change(&mut vocab, &mut pieces);
    Tokenizer::from_gguf_pieces(vocab, pieces)
        .expect_err("a broken vocabulary")
        .to_string()
}

#[test]
fn broken_gguf_vocabularies_are_named() {
    let error = gguf_error("llama2", |_, pieces| pieces.scores.clear());
    assert!(error.contains("1000 tokens but 0 scores"), "{error}");
    let error = gguf_error("llama2", |vocab, _| vocab.token_types[7] = 9);
    assert!(error.contains("token 7 has type 9"), "{error}");
    let error = gguf_error("llama2", |vocab, _| vocab.unknown = Some(4000));
    assert!(error.contains("unknown token is 4000"), "{error}");
    let error = gguf_error("llama2", |vocab, _| vocab.merges.push("q zz".into()));
    assert!(error.contains("merge `q zz` needs"), "{error}");
    let error = gguf_error("t5", |_, pieces| pieces.precompiled_charsmap.truncate(9));
    assert!(error.contains("character map of 9 bytes"), "{error}");
    let error = gguf_error("t5", |vocab, _| {
        vocab.unknown = None;
        vocab.token_types.fill(1);
    });
    assert!(error.contains("neither an unknown token"), "{error}");
    let error = gguf_error("bert", |_, pieces| pieces.separator = Some(5000));
    assert!(error.contains("separator token is 5000"), "{error}");
    let error = gguf_error("bert", |vocab, _| {
        vocab.unknown = None;
        vocab.tokens[1] = "x".into();
    });
    assert!(error.contains("none for unknown words"), "{error}");
    let mut vocab = gguf_vocab("llama2");
    vocab.bos = None;
    let error = Tokenizer::from_gguf_pieces(vocab, gguf_pieces("llama2")).unwrap_err();
    assert!(error.to_string().contains("bos token but names none"));
}

/// Every key that a file may lack has a meaning.
#[test]
fn silent_gguf_files_follow_their_families_conventions() {
    let ends = |kind: &str| {
        let (mut vocab, mut pieces) = (gguf_vocab(kind), gguf_pieces(kind));
        (vocab.add_bos, vocab.add_eos, vocab.add_space_prefix) = (None, None, None);
        (vocab.unknown, pieces.remove_extra_whitespaces) = (None, None);
        let tokenizer = Tokenizer::from_gguf_pieces(vocab, pieces).unwrap();
        let ids = tokenizer.encode("the  the", SpecialTokens::Parse, true);
        let ids = ids.unwrap();
        let texts = ids.iter().map(|id| tokenizer.token_text(*id).unwrap());
        texts.collect::<Vec<_>>().join(" ")
    };
    assert_eq!(ends("llama2"), "<s> ▁the ▁▁ th e");
    assert_eq!(ends("t5"), "▁the ▁the </s>");
    assert_eq!(ends("bert"), "[CLS] the the [SEP]");
}

/// Writes one number field of a nested message behind the file, where it overrules what came before.
fn overruled(message: u8, field: u8, value: u8) -> Vec<u8> {
    let mut model = bytes("llama2.tokenizer.model");
    let key = u16::from(field) << 3;
    let inner = [(key & 0x7f) as u8 | 0x80, (key >> 7) as u8, value];
    model.extend([message << 3 | 2, inner.len() as u8]);
    model.extend(inner);
    model
}

#[test]
fn broken_sentencepiece_files_are_named() {
    let error = |model: &[u8]| {
        let loaded = Tokenizer::from_sentencepiece(model, None);
        loaded.expect_err("a broken file").to_string()
    };
    assert!(error(b"").contains("the bos token is 1, the vocabulary has 0 tokens"));
    assert!(
        error(b"not a model").contains("tokenizer.model cannot be used: a message of 11 bytes")
    );
    assert!(error(&overruled(2, 3, 4)).contains("`SentencePiece characters` is not supported"));
    assert!(error(&overruled(2, 24, 1)).contains("spaces after words"));
    assert!(error(&overruled(3, 5, 0)).contains("spaces after words"));
    assert!(Tokenizer::from_sentencepiece(&overruled(3, 5, 1), None).is_ok());
    let piece = b"\x0a\x03\x0a\x01\xff";
    assert!(error(piece).contains("piece 0 is not UTF-8"));
    let whole = bytes("t5.tokenizer.model");
    for length in 1..whole.len() {
        if length % 61 == 0 {
            use_it(Tokenizer::from_sentencepiece(&whole[..length], None));
        }
    }
}

#[test]
fn a_damaged_character_map_in_a_json_file_is_an_error() {
    let mut file: serde_json::Value = json("t5.tokenizer.json");
    let map = file["normalizer"]["precompiled_charsmap"].as_str().unwrap();
    let damaged = map.replace('A', "v");
    file["normalizer"]["precompiled_charsmap"] = damaged.into();
    let error = Tokenizer::from_json(file.to_string().as_bytes(), None).unwrap_err();
    assert!(
        error.to_string().contains("the character map of"),
        "{error}"
    );
    file["normalizer"]["precompiled_charsmap"] = "not base64!".into();
    let error = Tokenizer::from_json(file.to_string().as_bytes(), None).unwrap_err();
    assert!(error.to_string().contains("is not base64"), "{error}");
}

/// Bytes of a file exchanged for others.
fn damaged(mut file: Vec<u8>, changes: &[(prop::sample::Index, u8)]) -> Vec<u8> {
    for (place, byte) in changes {
        let place = place.index(file.len());
        file[place] = *byte;
    }
    file
}

fn changes() -> impl Strategy<Value = Vec<(prop::sample::Index, u8)>> {
    prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    #[test]
    fn damaged_sentencepiece_files(changes in changes(), kind in prop::sample::select(vec!["llama2", "t5", "unigram-bytes"])) {
        let model = damaged(bytes(&format!("{kind}.tokenizer.model")), &changes);
        use_it(Tokenizer::from_sentencepiece(&model, None));
    }

    #[test]
    fn damaged_json_files(changes in changes(), kind in prop::sample::select(vec!["llama2", "mistral", "gemma", "t5", "bert"])) {
        let file = damaged(bytes(&format!("{kind}.tokenizer.json")), &changes);
        use_it(Tokenizer::from_json(&file, None));
    }

    #[test]
    fn damaged_character_maps(changes in changes()) {
        let mut pieces = gguf_pieces("t5");
        pieces.precompiled_charsmap = damaged(pieces.precompiled_charsmap, &changes);
        use_it(Tokenizer::from_gguf_pieces(gguf_vocab("t5"), pieces));
    }

    #[test]
    fn damaged_gguf_vocabularies(
        kind in prop::sample::select(vec!["llama2", "gemma", "t5", "bert"]),
        types in prop::collection::vec((any::<prop::sample::Index>(), 0..7i32), 0..20),
        texts in prop::collection::vec((any::<prop::sample::Index>(), ".{0,3}"), 0..20),
        scores in prop::collection::vec((any::<prop::sample::Index>(), any::<f32>()), 0..20),
        (bos, unknown) in (prop::option::of(0..1200u32), prop::option::of(0..1200u32)),
    ) {
        let (mut vocab, mut pieces) = (gguf_vocab(kind), gguf_pieces(kind));
        let size = vocab.tokens.len();
        types.into_iter().for_each(|(at, number)| vocab.token_types[at.index(size)] = number);
        texts.into_iter().for_each(|(at, text)| vocab.tokens[at.index(size)] = text);
        if !pieces.scores.is_empty() {
            scores.into_iter().for_each(|(at, score)| pieces.scores[at.index(size)] = score);
        }
        (vocab.bos, vocab.unknown) = (bos, unknown);
        use_it(Tokenizer::from_gguf_pieces(vocab, pieces));
    }
}
