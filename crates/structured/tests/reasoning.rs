//! Reasoning and answer are told apart, whatever the pieces.

use mettle_structured::{ReasoningEvent, ReasoningFormat, ReasoningSplitter};
use proptest::prelude::*;

fn split<'a>(
    format: ReasoningFormat,
    prompt: &str,
    pieces: impl IntoIterator<Item = &'a str>,
) -> (String, String) {
    let mut splitter = ReasoningSplitter::new(format, prompt);
    let mut events: Vec<ReasoningEvent> = pieces
        .into_iter()
        .flat_map(|piece| splitter.push(piece))
        .collect();
    events.extend(splitter.finish());
    let (mut reasoning, mut content) = (String::new(), String::new());
    for event in events {
        match event {
            ReasoningEvent::Reasoning(text) => {
                assert!(content.is_empty(), "reasoning after the answer");
                reasoning.push_str(&text);
            }
            ReasoningEvent::Content(text) => content.push_str(&text),
        }
    }
    (reasoning, content)
}

#[test]
fn the_two_parts_of_a_text() {
    use ReasoningFormat::*;
    for (format, prompt, text, reasoning, content) in [
        (
            Qwen3,
            "",
            "<think>\nwhy\n</think>\n\nso",
            "\nwhy\n",
            "\n\nso",
        ),
        (Qwen3, "", "\n <think>why</think>so", "why", "so"),
        (
            Qwen3,
            "",
            " plain <think>not</think>",
            "",
            " plain <think>not</think>",
        ),
        (Qwen3, "", "<thing> </think>", "", "<thing> </think>"),
        (Qwen3, "...<think>\n", "why</think>so", "why", "so"),
        (Qwen3, "...<think>\n", "<think>why</think>so", "why", "so"),
        (Qwen3, "<think>\n\n</think>\n\n", "so", "", "so"),
        (Qwen3, "", "<think>cut off </thi", "cut off </thi", ""),
        (Qwen3, "", "<thi", "", "<thi"),
        (Qwen3, "", "", "", ""),
        (Qwen3, "", "<think></think></think>", "", "</think>"),
        (DeepseekR1, "", "why</think>so <think>", "why", "so <think>"),
        (DeepseekR1, "", "<think>why</think>so", "why", "so"),
        (DeepseekR1, "", "</think>so", "", "so"),
        (DeepseekR1, "", " <</think>so", " <", "so"),
        (DeepseekR1, "", "never closed", "never closed", ""),
    ] {
        let found = split(format, prompt, [text]);
        assert_eq!(
            found,
            (reasoning.to_owned(), content.to_owned()),
            "{format:?} {text}"
        );
    }
}

#[test]
fn text_comes_as_soon_as_it_is_sure() {
    let mut splitter = ReasoningSplitter::new(ReasoningFormat::Qwen3, "");
    assert_eq!(
        splitter.push("<think>a</"),
        [ReasoningEvent::Reasoning("a".to_owned())]
    );
    assert!(splitter.is_reasoning());
    assert_eq!(
        splitter.push("think>b<"),
        [ReasoningEvent::Content("b<".to_owned())]
    );
    assert!(!splitter.is_reasoning());
}

#[test]
fn formats_are_known_by_name_and_by_template() {
    for format in [ReasoningFormat::DeepseekR1, ReasoningFormat::Qwen3] {
        assert_eq!(ReasoningFormat::from_name(format.name()), Some(format));
    }
    assert_eq!(ReasoningFormat::from_name("other"), None);
    assert_eq!(
        ReasoningFormat::detect("content.split('</think>')"),
        Some(ReasoningFormat::Qwen3)
    );
    assert_eq!(ReasoningFormat::detect("no such tag"), None);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn any_split_gives_the_same_parts(
        parts in prop::collection::vec(prop::sample::select(vec!["<think>", "</think>", "<", "</", "think", ">", " ", "a", "é\n"]), 0..10),
        opened in any::<bool>(),
    ) {
        let text = parts.concat();
        let prompt = if opened { "<think>" } else { "" };
        for format in [ReasoningFormat::DeepseekR1, ReasoningFormat::Qwen3] {
            let whole = split(format, prompt, [text.as_str()]);
            prop_assert_eq!(&split(format, prompt, parts.iter().copied()), &whole);
            let characters: Vec<String> = text.chars().map(String::from).collect();
            prop_assert_eq!(&split(format, prompt, characters.iter().map(String::as_str)), &whole);
            // Only tags and whitespace before the first are dropped.
            let kept = format!("{}{}", whole.0, whole.1);
            let bare = |text: &str| text.replace("<think>", "").replace("</think>", "").replace(char::is_whitespace, "");
            prop_assert!(text.len() <= kept.len() + 15 + text.len() - text.trim_start().len());
            if !text.contains("think") {
                prop_assert_eq!(bare(&kept), bare(&text));
            }
        }
    }
}
