//! Owns the proof that both file formats tokenize exactly as the reference library does.

mod fixture;

use std::sync::Arc;
use std::time::{Duration, Instant};

use fixture::{KINDS, bytes, from_gguf, from_json, gguf_vocab, json};
use mettle_text::{Detokenizer, GgufVocab, SpecialTokens, Tokenizer};

#[derive(serde::Deserialize)]
struct Expected {
    parse: Vec<Vec<u32>>,
    plain: Vec<Vec<u32>>,
    with_ends: Vec<Vec<u32>>,
}

fn both(kind: &str) -> [(&'static str, Tokenizer); 2] {
    [
        ("tokenizer.json", from_json(kind)),
        ("gguf", from_gguf(kind)),
    ]
}

#[test]
fn ids_are_those_of_the_reference() {
    let texts: Vec<String> = json("texts.json");
    assert!(texts.len() > 250);
    for kind in KINDS {
        let expected: Expected = json(&format!("{kind}.ids.json"));
        for (format, tokenizer) in both(kind) {
            for (index, text) in texts.iter().enumerate() {
                let encode = |specials, ends| tokenizer.encode(text, specials, ends).unwrap();
                let context = format!("{kind} from {format}: {text:?}");
                assert_eq!(
                    encode(SpecialTokens::Parse, false),
                    expected.parse[index],
                    "{context}"
                );
                assert_eq!(
                    encode(SpecialTokens::Plain, false),
                    expected.plain[index],
                    "plain {context}"
                );
                assert_eq!(
                    encode(SpecialTokens::Parse, true),
                    expected.with_ends[index],
                    "ends {context}"
                );
            }
        }
    }
}

#[test]
fn decoding_gives_the_text_back() {
    let texts: Vec<String> = json("texts.json");
    // Qwen2 composes characters on the way in, so not every text comes back there.
    for kind in KINDS.into_iter().filter(|kind| *kind != "qwen2") {
        for (format, tokenizer) in both(kind) {
            for text in &texts {
                for specials in [SpecialTokens::Parse, SpecialTokens::Plain] {
                    let ids = tokenizer.encode(text, specials, false).unwrap();
                    assert_eq!(&tokenizer.decode(&ids, false), text, "{kind} from {format}");
                }
            }
        }
    }
}

#[test]
fn plain_text_never_becomes_a_special_token() {
    for kind in KINDS {
        for (_, tokenizer) in both(kind) {
            let specials: String = tokenizer.special_tokens().map(|(_, text)| text).collect();
            assert!(specials.contains("<|im_end|>"));
            let ids = tokenizer
                .encode(&specials, SpecialTokens::Plain, false)
                .unwrap();
            assert!(ids.iter().all(|id| !tokenizer.is_special(*id)), "{kind}");
            let tool = tokenizer.id_of("<tool_call>").unwrap();
            assert_eq!(
                tokenizer
                    .encode("<tool_call>", SpecialTokens::Plain, false)
                    .unwrap(),
                [tool]
            );
        }
    }
}

#[test]
fn what_is_known_of_a_token() {
    for (_, tokenizer) in both("smollm") {
        let end = tokenizer.id_of("<|im_end|>").unwrap();
        assert!(tokenizer.is_special(end));
        assert_eq!(tokenizer.token_text(end), Some("<|im_end|>"));
        assert_eq!(tokenizer.token_bytes(end), Some(b"<|im_end|>".as_slice()));
        assert_eq!(tokenizer.decode(&[end], true), "");
        assert_eq!(tokenizer.decode(&[end], false), "<|im_end|>");
        let the = tokenizer.id_of("Ġthe").unwrap();
        assert_eq!(tokenizer.token_bytes(the), Some(b" the".as_slice()));
        assert!(!tokenizer.is_special(the));
        assert_eq!(tokenizer.vocab_size(), gguf_vocab("smollm").tokens.len());
        assert_eq!(tokenizer.token_bytes(tokenizer.vocab_size() as u32), None);
        assert_eq!(tokenizer.decode(&[the, u32::MAX], false), " the");
        assert_eq!(tokenizer.bos(), tokenizer.id_of("<s>"));
        assert_eq!(tokenizer.eos(), tokenizer.id_of("</s>"));
        assert_eq!(tokenizer.template_specials().bos.as_deref(), Some("<s>"));
    }
}

#[test]
fn the_config_overrules_the_post_processor() {
    let load = |kind: &str, config: &str| {
        let file = bytes(&format!("{kind}.tokenizer.json"));
        Tokenizer::from_json(&file, Some(config.as_bytes()))
            .unwrap()
            .encode("a", SpecialTokens::Parse, true)
            .unwrap()
    };
    let tokenizer = from_json("llama-bpe");
    let (bos, eos) = (tokenizer.bos().unwrap(), tokenizer.eos().unwrap());
    let a = tokenizer.id_of("a").unwrap();
    assert_eq!(load("llama-bpe", r#"{"bos_token": "<s>"}"#), [bos, a]);
    assert_eq!(
        load(
            "llama-bpe",
            r#"{"bos_token": "<s>", "add_bos_token": true}"#
        ),
        [bos, a]
    );
    assert_eq!(
        load(
            "llama-bpe",
            r#"{"bos_token": "<s>", "add_bos_token": false}"#
        ),
        [a]
    );
    assert_eq!(
        load(
            "llama-bpe",
            r#"{"eos_token": "</s>", "add_eos_token": true}"#
        ),
        [bos, a, eos]
    );
    let file = bytes("gpt-2.tokenizer.json");
    let nameless = Tokenizer::from_json(&file, Some(br#"{"add_bos_token": true}"#)).unwrap_err();
    assert!(nameless.to_string().contains("bos"), "{nameless}");
}

#[test]
fn the_gguf_keys_rule_bos_and_eos() {
    let ends = |add_bos, add_eos| {
        let vocab = GgufVocab {
            add_bos,
            add_eos,
            ..gguf_vocab("llama-bpe")
        };
        Tokenizer::from_gguf(vocab)
            .unwrap()
            .encode("a", SpecialTokens::Parse, true)
            .unwrap()
            .len()
    };
    assert_eq!(ends(Some(false), None), 1);
    assert_eq!(ends(Some(true), Some(true)), 3);
    assert_eq!(
        ends(None, None),
        2,
        "this pre-tokenizer's convention is a BOS"
    );
}

#[test]
fn broken_gguf_vocabularies_are_named() {
    let error = |change: fn(&mut GgufVocab)| {
        let mut vocab = gguf_vocab("gpt-2");
        change(&mut vocab);
        Tokenizer::from_gguf(vocab)
            .expect_err("a broken vocabulary")
            .to_string()
    };
    assert!(
        error(|vocab| vocab.model = "rwkv".into())
            .contains("`rwkv` is not supported; supported: gpt2")
    );
    assert!(error(|vocab| vocab.pre = Some("chatglm-bpe".into())).contains("`chatglm-bpe`"));
    assert!(error(|vocab| vocab.token_types.truncate(3)).contains("3 token types"));
    assert!(error(|vocab| vocab.bos = Some(1 << 30)).contains("1073741824"));
    assert!(error(|vocab| vocab.merges.push("a".into())).contains("merge `a` is not a pair"));
    assert!(
        error(|vocab| vocab
            .merges
            .push("zq zqzqzqzqzqzqzqzqzqzqzqzqzqzqzqzqzqzqzqzqzq".into()))
        .contains("`zq`")
    );
    assert!(error(|vocab| vocab.tokens.clear()).contains("token types"));
}

#[test]
fn broken_tokenizer_files_are_errors() {
    let whole = bytes("gpt-2.tokenizer.json");
    for length in [0, 1, whole.len() / 2, whole.len() - 3] {
        assert!(
            Tokenizer::from_json(&whole[..length], None).is_err(),
            "{length} bytes"
        );
    }
    let mut file: serde_json::Value = json("gpt-2.tokenizer.json");
    let long = "x".repeat(1000);
    file["model"]["merges"] = serde_json::json!([["a", long]]);
    assert!(
        Tokenizer::from_json(file.to_string().as_bytes(), None).is_err(),
        "a merge that outgrows the vocabulary"
    );
    file["model"]["merges"] = serde_json::json!([]);
    file["model"]["vocab"]["a"] = 4_000_000_000u32.into();
    assert!(
        Tokenizer::from_json(file.to_string().as_bytes(), None).is_err(),
        "an absurd id"
    );
    assert!(Tokenizer::from_json(b"{\"model\": {\"type\": \"BPE\"}}", None).is_err());
}

#[test]
fn ids_far_beyond_the_vocabulary_are_refused() {
    let file = serde_json::json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
        "pre_tokenizer": null, "post_processor": null, "decoder": null,
        "model": {"type": "BPE", "vocab": {"a": 0, "b": 16_777_215}, "merges": []}
    });
    let error = Tokenizer::from_json(file.to_string().as_bytes(), None).unwrap_err();
    assert!(error.to_string().contains("`b` has id 16777215"), "{error}");
}

/// A small vocabulary in a file like those of Llama 2, TinyLlama and Mistral 7B.
fn sentencepiece_like(decoder: &serde_json::Value) -> Arc<Tokenizer> {
    let mut vocab = serde_json::Map::new();
    for token in ["<unk>", "<s>", "▁", "h", "i", "▁h", "▁hi"] {
        vocab.insert(token.to_owned(), vocab.len().into());
    }
    for byte in 0..=255 {
        vocab.insert(format!("<0x{byte:02X}>"), vocab.len().into());
    }
    let file = serde_json::json!({
        "version": "1.0", "truncation": null, "padding": null,
        "added_tokens": [{"id": 1, "content": "<s>", "single_word": false, "lstrip": false, "rstrip": false,
                          "normalized": false, "special": true}],
        "normalizer": {"type": "Sequence", "normalizers": [
            {"type": "Prepend", "prepend": "▁"}, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]},
        "pre_tokenizer": null, "post_processor": null,
        "decoder": decoder,
        "model": {"type": "BPE", "unk_token": "<unk>", "fuse_unk": true, "byte_fallback": true,
                  "vocab": vocab, "merges": [["▁", "h"], ["▁h", "i"]]}
    });
    Arc::new(Tokenizer::from_json(file.to_string().as_bytes(), None).unwrap())
}

fn sequence(last: &[serde_json::Value]) -> serde_json::Value {
    let mut steps = vec![
        serde_json::json!({"type": "Replace", "pattern": {"String": "▁"}, "content": " "}),
        serde_json::json!({"type": "ByteFallback"}),
        serde_json::json!({"type": "Fuse"}),
    ];
    steps.extend_from_slice(last);
    serde_json::json!({"type": "Sequence", "decoders": steps})
}

/// The expected texts are those of the reference library.
#[test]
fn sentencepiece_like_files_spell_spaces_and_bytes() {
    let strip = serde_json::json!({"type": "Strip", "content": " ", "start": 1, "stop": 0});
    let tokenizer = sentencepiece_like(&sequence(&[strip]));
    let encode = |text: &str| tokenizer.encode(text, SpecialTokens::Parse, false).unwrap();
    let ids = encode("hi é");
    assert_eq!(tokenizer.token_text(ids[0]), Some("▁hi"));
    for text in ["hi é", "  hi", "", "hi hi"] {
        let ids = encode(text);
        assert_eq!(tokenizer.decode(&ids, false), text);
        let after_bos = [&[1], ids.as_slice()].concat();
        assert_eq!(tokenizer.decode(&after_bos, true), text);
        let shown = if text.is_empty() { "" } else { " " };
        let shown = format!("<s>{shown}{text}");
        assert_eq!(tokenizer.decode(&after_bos, false), shown);
    }
}

#[test]
fn only_a_decoder_that_says_so_takes_off_the_leading_space() {
    let metaspace = |scheme: &str| serde_json::json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": false});
    for (decoder, text) in [
        (sequence(&[]), " hi"),
        (metaspace("never"), " hi"),
        (metaspace("always"), "hi"),
        (metaspace("first"), "hi"),
        (
            serde_json::json!({"type": "Metaspace", "replacement": "▁", "add_prefix_space": true}),
            "hi",
        ),
    ] {
        let tokenizer = sentencepiece_like(&decoder);
        let ids = tokenizer.encode("hi", SpecialTokens::Parse, false).unwrap();
        assert_eq!(tokenizer.decode(&ids, false), text, "{decoder}");
    }
}

#[test]
fn a_continuation_keeps_its_leading_space() {
    let strip = serde_json::json!({"type": "Strip", "content": " ", "start": 1, "stop": 0});
    let tokenizer = sentencepiece_like(&sequence(&[strip]));
    let ids = tokenizer
        .encode("hi é", SpecialTokens::Parse, false)
        .unwrap();
    let mut detokenizer = Detokenizer::new(tokenizer.clone(), false);
    let mut pieces: String = ids
        .iter()
        .map(|id| detokenizer.push(*id).to_owned())
        .collect();
    pieces += &detokenizer.finish();
    assert_eq!(pieces, " hi é");
    assert_eq!(tokenizer.decode_continuation(&ids, false), pieces);
    // A prompt and its continuation, put together, are the whole.
    let whole = [ids.as_slice(), &ids].concat();
    assert_eq!(
        tokenizer.decode(&whole, false),
        tokenizer.decode(&ids, false) + &pieces
    );
}

/// An unoptimised build takes a fifth of a second for each; quadratic time would be minutes.
#[test]
fn long_texts_of_anything_are_tokenized_in_linear_time() {
    const SIZE: usize = 256 << 10;
    let units = [
        "a",
        " ",
        "\n",
        "1",
        "!",
        "é",
        "\u{301}",
        " \n",
        "A",
        "aA",
        "'s",
        "the ",
        "<|im_end|>",
        "x\u{a0}",
    ];
    for kind in KINDS {
        for (format, tokenizer) in both(kind) {
            for unit in units {
                let text = unit.repeat(SIZE / unit.len());
                let start = Instant::now();
                let ids = tokenizer
                    .encode(&text, SpecialTokens::Plain, false)
                    .unwrap();
                let took = start.elapsed();
                assert!(
                    took < Duration::from_secs(10),
                    "{kind} from {format}: {unit:?} took {took:?}"
                );
                assert_eq!(
                    tokenizer.decode(&ids, false).len(),
                    text.len(),
                    "{kind} from {format}: {unit:?}"
                );
            }
        }
    }
}
