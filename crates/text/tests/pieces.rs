//! Owns the proof that SentencePiece and WordPiece vocabularies, from every file format, work as the reference's do.

mod fixture;

use std::collections::HashMap;
use std::time::{Duration, Instant};

use fixture::{
    PIECE_KINDS, bytes, from_model, gguf_pieces, gguf_vocab, json, piece_formats, piece_json,
};
use mettle_text::{
    ChatTemplate, Message, RenderOptions, SpecialTokens, TemplateSpecials, Tokenizer, encode_chat,
};

#[derive(serde::Deserialize)]
struct Expected {
    parse: Vec<Vec<u32>>,
    /// By index, where it is not the same.
    plain: HashMap<String, Vec<u32>>,
    prefix: Vec<u32>,
    suffix: Vec<u32>,
    decoded: Vec<String>,
    without_specials: Vec<String>,
}

fn texts() -> Vec<String> {
    json("piece_texts.json")
}

fn every_format() -> impl Iterator<Item = (&'static str, &'static str, Tokenizer)> {
    PIECE_KINDS.into_iter().flat_map(|kind| {
        let formats = piece_formats(kind).into_iter();
        formats.map(move |(format, tokenizer)| (kind, format, tokenizer))
    })
}

#[test]
fn ids_are_those_of_the_reference() {
    let texts = texts();
    let mut formats = 0;
    for (kind, format, tokenizer) in every_format() {
        formats += 1;
        let expected: Expected = json(&format!("{kind}.ids.json"));
        assert_eq!(expected.parse.len(), texts.len());
        assert!(kind.starts_with("bert") || expected.plain.len() > 5);
        for (index, text) in texts.iter().enumerate() {
            let encode = |specials, ends| tokenizer.encode(text, specials, ends).unwrap();
            let context = format!("{kind} from {format}: {text:?}");
            let parse = &expected.parse[index];
            assert_eq!(&encode(SpecialTokens::Parse, false), parse, "{context}");
            let plain = expected.plain.get(&index.to_string()).unwrap_or(parse);
            assert_eq!(
                &encode(SpecialTokens::Plain, false),
                plain,
                "plain {context}"
            );
            let ended = [&expected.prefix[..], parse, &expected.suffix].concat();
            assert_eq!(encode(SpecialTokens::Parse, true), ended, "ends {context}");
        }
    }
    assert_eq!(formats, 7 + 6 + 4);
}

#[test]
fn decoded_texts_are_those_of_the_reference() {
    for (kind, format, tokenizer) in every_format() {
        let expected: Expected = json(&format!("{kind}.ids.json"));
        for (index, ids) in expected.parse.iter().enumerate() {
            let context = format!("{kind} from {format}: {ids:?}");
            let decoded = tokenizer.decode(ids, false);
            assert_eq!(decoded, expected.decoded[index], "{context}");
            let without = tokenizer.decode(ids, true);
            assert_eq!(without, expected.without_specials[index], "{context}");
        }
    }
}

/// Families that change nothing on the way in, save that they read `▁` as a space.
#[test]
fn decoding_gives_the_text_back() {
    for kind in ["llama2", "gemma", "unigram-bytes"] {
        for (format, tokenizer) in piece_formats(kind) {
            // After an added token the text gets a space before it, as at its start; Unigram reads `<0x0A>` as a byte.
            let changed = ["▁", "tool_call>", "<0x"];
            let lossless = |text: &&String| !changed.iter().any(|part| text.contains(part));
            for text in texts().iter().filter(lossless) {
                let ids = tokenizer.encode(text, SpecialTokens::Plain, false).unwrap();
                assert_eq!(&tokenizer.decode(&ids, false), text, "{kind} from {format}");
            }
        }
    }
}

#[test]
fn plain_text_never_becomes_a_special_token() {
    for (kind, format, tokenizer) in every_format() {
        let specials: Vec<_> = tokenizer.special_tokens().collect();
        assert!(specials.len() > 2, "{kind} from {format}");
        for (_, special) in &specials {
            for text in [(*special).to_owned(), format!("a {special}b")] {
                let ids = tokenizer.encode(&text, SpecialTokens::Plain, false);
                let ids = ids.unwrap_or_else(|error| panic!("{kind} from {format}: {error}"));
                // An unknown character is the one reason to see a special token.
                let found = ids.iter().filter_map(|id| tokenizer.token_text(*id));
                let found = found.filter(|found| specials.iter().any(|(_, text)| text == found));
                for found in found {
                    assert!(["<unk>", "[UNK]"].contains(&found), "{kind}: {found}");
                }
            }
        }
    }
}

/// Files derived from SentencePiece may list merges that make a control token.
#[test]
fn merges_to_special_tokens_are_dropped() {
    let mut file: serde_json::Value = json("llama2.tokenizer.json");
    let next = file["model"]["vocab"].as_object().unwrap().len();
    file["model"]["vocab"]["s>"] = next.into();
    let merges = file["model"]["merges"].as_array_mut().unwrap();
    merges.insert(0, serde_json::json!(["s", ">"]));
    merges.insert(1, serde_json::json!(["<", "s>"]));
    let tokenizer = Tokenizer::from_json(file.to_string().as_bytes(), None).unwrap();
    let texts = |specials| -> Vec<String> {
        let ids = tokenizer.encode("a<s>", specials, false).unwrap();
        let texts = ids.iter().map(|id| tokenizer.token_text(*id).unwrap());
        texts.map(str::to_owned).collect()
    };
    assert_eq!(texts(SpecialTokens::Parse), ["▁a", "<s>"]);
    assert_eq!(texts(SpecialTokens::Plain), ["▁a", "<", "s>"]);
}

/// In a conversation, only the template's own special tokens count, whether users write others or not.
#[test]
fn a_chat_gets_the_spaces_of_its_family() {
    let source = "<s>{% for message in messages %}the {{ message.content }} end</s>{% endfor %}ok";
    let template = ChatTemplate::new(source, TemplateSpecials::default()).unwrap();
    let expected = [
        ("llama2", "▁the X end", "▁ok"),
        ("mistral", "the X end", "ok"),
    ];
    for (kind, turn, last) in expected {
        let tokenizer = piece_json(kind);
        let spelled = |content: &str| -> String {
            let messages = [
                Message::new("user", content),
                Message::new("user", "<s>hi</s>"),
            ];
            let ids = encode_chat(&tokenizer, &template, &messages, &RenderOptions::default());
            let ids = ids.unwrap();
            let texts = ids.iter().map(|id| tokenizer.token_text(*id).unwrap());
            texts.collect()
        };
        let turn = |content: &str| turn.replace(' ', "▁").replace('X', content);
        for content in ["hi", "</s>hi<s>"] {
            let whole = format!("<s>{}</s>{}</s>{last}", turn(content), turn("<s>hi</s>"));
            assert_eq!(spelled(content), whole, "{kind}");
        }
    }
}

#[test]
fn what_opens_a_text() {
    let decode = |kind: &str, tokens: &[&str], skip| {
        let tokenizer = piece_json(kind);
        let ids = tokens.iter().map(|token| tokenizer.id_of(token).unwrap());
        let ids: Vec<u32> = ids.collect();
        tokenizer.decode(&ids, skip)
    };
    // As the reference library says for each of these.
    assert_eq!(decode("llama2", &["<s>", "▁the", "▁the"], true), "the the");
    assert_eq!(
        decode("llama2", &["<s>", "▁the", "▁the"], false),
        "<s> the the"
    );
    assert_eq!(decode("llama2", &["▁", "▁the"], true), " the");
    assert_eq!(decode("gemma", &["▁the", "▁the"], true), " the the");
    assert_eq!(decode("t5", &["▁", "▁the", "</s>"], true), " the");
    assert_eq!(decode("bert", &["[CLS]", "the", "##s", "."], true), "thes.");
    assert_eq!(
        decode("bert", &["[CLS]", "the", "[SEP]"], false),
        "[CLS] the [SEP]"
    );
    assert_eq!(decode("bert", &["##s", "##s"], true), "##ss");
    assert_eq!(
        decode("llama2", &["<0xE2>", "<0x96>", "a"], true),
        "\u{fffd}a"
    );
}

/// Converters from `tokenizer.json` write its merges, and scores that mean nothing; Gemma 4's have a model of their own name.
#[test]
fn merges_of_a_gguf_file_count_more_than_its_scores() {
    for (kind, model) in [("llama2", "llama"), ("gemma", "gemma4")] {
        let (mut vocab, mut pieces) = (gguf_vocab(kind), gguf_pieces(kind));
        vocab.model = model.to_owned();
        vocab.add_space_prefix = None;
        pieces.scores.fill(-1000.0);
        let file: serde_json::Value = json(&format!("{kind}.tokenizer.json"));
        let merges: Vec<(String, String)> =
            serde_json::from_value(file["model"]["merges"].clone()).unwrap();
        let merges = merges.iter().map(|(left, right)| format!("{left} {right}"));
        vocab.merges = merges.collect();
        let tokenizer = Tokenizer::from_gguf_pieces(vocab, pieces).unwrap();
        let expected: Expected = json(&format!("{kind}.ids.json"));
        for (text, expected) in texts().iter().zip(expected.parse) {
            let ids = tokenizer.encode(text, SpecialTokens::Parse, false);
            assert_eq!(ids.unwrap(), expected, "{model}: {text:?}");
        }
    }
}

#[test]
fn a_config_adds_tokens_to_a_sentencepiece_file() {
    let model = bytes("llama2.tokenizer.model");
    let size = from_model("llama2").vocab_size();
    let load = |id: usize| {
        let config = format!(
            r#"{{"added_tokens_decoder": {{"{id}": {{"content": "<new>", "special": true}}}},
                "add_bos_token": false, "eos_token": "<new>", "add_eos_token": true}}"#
        );
        Tokenizer::from_sentencepiece(&model, Some(config.as_bytes()))
    };
    let tokenizer = load(size).unwrap();
    let ids = tokenizer.encode("<new>", SpecialTokens::Parse, true);
    assert_eq!(ids.unwrap(), [size as u32, size as u32]);
    assert_eq!(tokenizer.eos(), Some(size as u32));
    let error = load(size + 7).unwrap_err().to_string();
    assert!(error.contains("the next free one is"), "{error}");
}

/// A megabyte takes about half a second; quadratic time would be hours for it, and minutes for a quarter.
#[test]
fn long_texts_of_anything_are_tokenized_in_linear_time() {
    const LONGEST: usize = 1 << 20;
    let check = |kind: &str, format: &str, tokenizer: &Tokenizer, unit: &str, size: usize| {
        let text = unit.repeat(size / unit.len());
        let start = Instant::now();
        let ids = tokenizer.encode(&text, SpecialTokens::Plain, false);
        let decoded = tokenizer.decode(&ids.unwrap(), false);
        let took = start.elapsed();
        assert!(
            took < Duration::from_secs(60),
            "{kind} from {format}: {unit:?} took {took:?}"
        );
        assert!(decoded.len() <= 2 * size, "{kind} from {format}: {unit:?}");
    };
    for kind in PIECE_KINDS {
        let tokenizer = piece_json(kind);
        for unit in ["é", "\u{301}", "a ", "ab", "<s>", "!", "😀", "▁"] {
            check(kind, "tokenizer.json", &tokenizer, unit, LONGEST / 4);
        }
        // GGUF and `tokenizer.model` become the same parts; one of them will do.
        for (format, tokenizer) in piece_formats(kind).into_iter().take(2) {
            for unit in ["a", " "] {
                check(kind, format, &tokenizer, unit, LONGEST);
            }
        }
    }
}
