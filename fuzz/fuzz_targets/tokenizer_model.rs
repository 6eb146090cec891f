//! Any bytes as a `tokenizer.model`, and as the character map of a GGUF vocabulary: loaded and used, or refused.

#![no_main]

use libfuzzer_sys::fuzz_target;
use mettle_text::{GgufPieces, GgufVocab, SpecialTokens, Tokenizer};

const TEXT: &str = "The  quick ﬁ\u{301}ne\u{1} Ａ😀 <s>x</s> ▁a\t";

fuzz_target!(|file: &[u8]| {
    use_it(Tokenizer::from_sentencepiece(file, None).ok());
    let vocab = GgufVocab {
        model: "t5".to_owned(),
        tokens: ["<unk>", "▁", "a"].map(str::to_owned).to_vec(),
        token_types: vec![2, 1, 1],
        ..GgufVocab::default()
    };
    let pieces = GgufPieces {
        scores: vec![0.0, -1.0, -2.0],
        precompiled_charsmap: file.to_vec(),
        ..GgufPieces::default()
    };
    use_it(Tokenizer::from_gguf_pieces(vocab, pieces).ok());
});

fn use_it(tokenizer: Option<Tokenizer>) {
    if let Some(tokenizer) = tokenizer
        && let Ok(ids) = tokenizer.encode(TEXT, SpecialTokens::Parse, true)
    {
        tokenizer.decode(&ids, false);
    }
}
