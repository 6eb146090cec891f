//! Owns the proof that text which arrives in pieces is the same text.

mod fixture;

use std::sync::{Arc, LazyLock};

use mettle_text::{
    Detokenizer, SpecialTokens, StopMatcher, StopOutcome, StopStrings, TextError, Tokenizer,
};
use proptest::prelude::*;

static TOKENIZER: LazyLock<Arc<Tokenizer>> =
    LazyLock::new(|| Arc::new(fixture::from_gguf("smollm")));

fn stream(ids: &[u32], skip_special: bool) -> Vec<String> {
    let mut detokenizer = Detokenizer::new(TOKENIZER.clone(), skip_special);
    let mut pieces: Vec<String> = ids
        .iter()
        .map(|id| detokenizer.push(*id).to_owned())
        .collect();
    pieces.push(detokenizer.finish());
    pieces
}

#[test]
fn requests_on_many_threads_share_one() {
    fn shared<T: Send + Sync>() {}
    shared::<Tokenizer>();
    shared::<mettle_text::ChatTemplate>();
    shared::<StopStrings>();
    let threads: Vec<_> = (0..4)
        .map(|_| {
            std::thread::spawn(|| {
                TOKENIZER
                    .encode("The quick brown fox", SpecialTokens::Parse, false)
                    .unwrap()
            })
        })
        .collect();
    let ids: Vec<_> = threads
        .into_iter()
        .map(|thread| thread.join().unwrap())
        .collect();
    assert!(ids.windows(2).all(|pair| pair[0] == pair[1]));
}

#[test]
fn characters_come_whole() {
    let ids: Vec<u32> = "ð Ł ĺ Ģ"
        .split(' ')
        .map(|token| TOKENIZER.id_of(token).unwrap())
        .collect();
    assert_eq!(stream(&ids, false), ["", "", "", "😀", ""]);
    assert_eq!(stream(&ids[..3], false), ["", "", "", "\u{fffd}"]);
    let a = TOKENIZER.id_of("a").unwrap();
    assert_eq!(
        stream(&[ids[0], ids[1], a], false),
        ["", "", "\u{fffd}a", ""]
    );
    assert_eq!(
        stream(&[ids[1], ids[0], ids[0]], false),
        ["\u{fffd}", "", "\u{fffd}", "\u{fffd}"]
    );
}

#[test]
fn special_tokens_are_shown_or_skipped() {
    let ids = TOKENIZER
        .encode("a<|im_end|>b", SpecialTokens::Parse, false)
        .unwrap();
    assert_eq!(stream(&ids, true).concat(), "ab");
    assert_eq!(stream(&ids, false).concat(), "a<|im_end|>b");
    assert_eq!(stream(&[u32::MAX], false).concat(), "");
}

#[test]
fn ordinary_text_is_never_held_back() {
    let ids = TOKENIZER
        .encode("The quick brown fox", SpecialTokens::Parse, false)
        .unwrap();
    let (rest, pieces) = stream(&ids, false)
        .split_last()
        .map(|(rest, pieces)| (rest.clone(), pieces.to_vec()))
        .unwrap();
    assert_eq!(rest, "");
    assert!(pieces.iter().all(|piece| !piece.is_empty()), "{pieces:?}");
}

/// Everything shown, and the stop string found.
fn run<'p>(
    stops: &Arc<StopStrings>,
    include: bool,
    pieces: impl Iterator<Item = &'p str>,
) -> (String, Option<usize>) {
    let mut matcher = StopMatcher::new(stops.clone(), include);
    let mut shown = String::new();
    for piece in pieces {
        match matcher.push(piece) {
            StopOutcome::Text(text) => shown += &text,
            StopOutcome::Stopped { text, stop } => {
                assert_eq!(matcher.push("more"), StopOutcome::Text(String::new()));
                return (shown + &text, Some(stop));
            }
        }
    }
    (shown + &matcher.finish(), None)
}

/// The same by looking at the whole text: the stop string that is complete first.
fn by_hand(stops: &[String], include: bool, text: &str) -> (String, Option<usize>) {
    for end in (0..=text.len()).filter(|end| text.is_char_boundary(*end)) {
        let complete = stops
            .iter()
            .enumerate()
            .filter(|(_, stop)| text[..end].ends_with(stop.as_str()));
        if let Some((index, stop)) =
            complete.max_by_key(|(index, stop)| (stop.len(), std::cmp::Reverse(*index)))
        {
            let shown = if include { end } else { end - stop.len() };
            return (text[..shown].to_owned(), Some(index));
        }
    }
    (text.to_owned(), None)
}

#[test]
fn stop_strings_across_pieces() {
    let stops = Arc::new(StopStrings::new(["\n\nUser:", "END"]).unwrap());
    let found = |pieces: &[&str]| run(&stops, false, pieces.iter().copied());
    assert_eq!(
        found(&["Hello", "\n", "\nUs", "er", ": x"]),
        ("Hello".into(), Some(0))
    );
    assert_eq!(
        found(&["Hello\n\nUse", "less EN", "D"]),
        ("Hello\n\nUseless ".into(), Some(1))
    );
    assert_eq!(found(&["Hello\n\nUser"]), ("Hello\n\nUser".into(), None));
    assert_eq!(
        run(&stops, true, ["aE", "N", "Db"].into_iter()),
        ("aEND".into(), Some(1))
    );
    assert_eq!(stops.get(1), Some("END"));
}

#[test]
fn only_a_possible_start_is_held_back() {
    let stops = Arc::new(StopStrings::new(["abcd"]).unwrap());
    let mut matcher = StopMatcher::new(stops, false);
    assert_eq!(matcher.push("xxab"), StopOutcome::Text("xx".into()));
    assert_eq!(matcher.push("ab"), StopOutcome::Text("ab".into()));
    assert_eq!(matcher.push("é"), StopOutcome::Text("abé".into()));
}

#[test]
fn an_empty_stop_string_is_an_error() {
    assert!(matches!(
        StopStrings::new(["a", ""]),
        Err(TextError::EmptyStop)
    ));
    assert!(StopStrings::new(Vec::<String>::new()).unwrap().is_empty());
}

#[test]
fn long_stop_strings_stay_cheap() {
    let stops = Arc::new(StopStrings::new(["a".repeat(50_000) + "b"]).unwrap());
    let start = std::time::Instant::now();
    let mut shown = 0;
    let mut matcher = StopMatcher::new(stops, false);
    for _ in 0..200_000 {
        if let StopOutcome::Text(text) = matcher.push("a") {
            shown += text.len();
        }
    }
    assert_eq!(shown, 150_000);
    assert!(start.elapsed().as_secs() < 10, "{:?}", start.elapsed());
}

static PIECES: LazyLock<Vec<Arc<Tokenizer>>> = LazyLock::new(|| {
    let kinds = fixture::PIECE_KINDS.iter();
    kinds
        .map(|kind| Arc::new(fixture::piece_json(kind)))
        .collect()
});

/// Those that change nothing in a text but `▁` and what is an added token.
static LOSSLESS: LazyLock<Vec<Tokenizer>> = LazyLock::new(|| {
    let kinds = ["llama2", "gemma", "unigram-bytes"].into_iter();
    kinds
        .flat_map(fixture::piece_formats)
        .map(|(_, tokenizer)| tokenizer)
        .collect()
});

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2000) })]

    #[test]
    fn pieces_of_every_family_make_the_whole(
        ids in prop::collection::vec(prop_oneof![0..1200u32, 0..300u32], 0..40),
        skip_special: bool,
    ) {
        for tokenizer in PIECES.iter() {
            let mut detokenizer = Detokenizer::new(tokenizer.clone(), skip_special);
            let mut streamed: String = ids.iter().map(|id| detokenizer.push(*id).to_owned()).collect();
            streamed += &detokenizer.finish();
            prop_assert_eq!(&streamed, &tokenizer.decode_continuation(&ids, skip_special));
            // A whole text differs from it in its opening only.
            let whole = tokenizer.decode(&ids, skip_special);
            let rest = whole.trim_start_matches([' ', '#']);
            prop_assert!(streamed.replace(' ', "").ends_with(&rest.replace(' ', "")), "{} {}", streamed, whole);
        }
    }

    #[test]
    fn lossless_families_give_any_text_back(text in "([ a-zé\n\t]|\\PC|[\u{0}-\u{ffff}]){0,30}") {
        let text = text.replace('▁', "").replace("<0x", "");
        for tokenizer in LOSSLESS.iter() {
            let ids = tokenizer.encode(&text, SpecialTokens::Plain, false).unwrap();
            prop_assert_eq!(&tokenizer.decode(&ids, false), &text);
        }
    }

    #[test]
    fn any_text_can_be_encoded(text in "([ a-zA-Z▁<>\n]|\\PC|[\u{0}-\u{ffff}]|[\u{300}-\u{36f}]){0,30}") {
        for tokenizer in PIECES.iter() {
            let parsed = tokenizer.encode(&text, SpecialTokens::Parse, true).unwrap();
            prop_assert!(parsed.iter().all(|id| tokenizer.token_text(*id).is_some()));
            tokenizer.encode(&text, SpecialTokens::Plain, false).unwrap();
        }
    }

    #[test]
    fn pieces_make_the_whole(ids in prop::collection::vec(0..950u32, 0..40), skip_special: bool) {
        prop_assert_eq!(stream(&ids, skip_special).concat(), TOKENIZER.decode_continuation(&ids, skip_special));
    }

    #[test]
    fn byte_soup_makes_the_whole(soup in prop::collection::vec(prop::sample::select(
        vec!["a", "Ã", "©", "ð", "Ł", "ĺ", "Ģ", "â", "ł", "í", "À", "ÿ", "ô", "<|im_end|>"]), 0..30)) {
        let ids: Vec<u32> = soup.iter().map(|token| TOKENIZER.id_of(token).unwrap()).collect();
        prop_assert_eq!(stream(&ids, false).concat(), TOKENIZER.decode_continuation(&ids, false));
    }

    #[test]
    fn any_cut_of_the_text_stops_alike(
        text in "[abcé]{0,24}",
        stops in prop::collection::vec("[abcé]{1,4}", 0..4),
        cuts in prop::collection::vec(1..5usize, 0..24),
        include: bool,
    ) {
        let prepared = Arc::new(StopStrings::new(stops.clone()).unwrap());
        let mut characters = text.chars().peekable();
        let mut pieces = Vec::new();
        let mut cuts = cuts.into_iter();
        while characters.peek().is_some() {
            let length = cuts.next().unwrap_or(usize::MAX);
            pieces.push(characters.by_ref().take(length).collect::<String>());
        }
        let streamed = run(&prepared, include, pieces.iter().map(String::as_str));
        prop_assert_eq!(&streamed, &by_hand(&stops, include, &text));
    }
}

/// Every kind of tokenizer has its own idea of what the start of a text loses.
#[test]
fn a_whole_text_in_pieces_is_what_decoding_gives() {
    let texts = [
        "hello there",
        " two  spaces ",
        "",
        "   ",
        "x",
        "über\u{2581}all",
    ];
    for kind in fixture::PIECE_KINDS {
        for (format, tokenizer) in fixture::piece_formats(kind) {
            let tokenizer = Arc::new(tokenizer);
            for text in texts {
                for (special, skip) in [(false, false), (true, true), (true, false)] {
                    let ids = tokenizer
                        .encode(text, SpecialTokens::Parse, special)
                        .unwrap();
                    let mut whole = Detokenizer::of_whole_text(tokenizer.clone(), skip);
                    let mut found = String::new();
                    for id in &ids {
                        found.push_str(whole.push(*id));
                    }
                    found.push_str(&whole.finish());
                    let expected = tokenizer.decode(&ids, skip);
                    assert_eq!(found, expected, "{kind} {format} {text:?} {ids:?}");
                }
            }
        }
    }
}
