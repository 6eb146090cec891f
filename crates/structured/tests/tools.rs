//! Tool calls in every format: forced by grammar, found in text, whatever the pieces.

mod common;

use common::schema::fits;
use common::{real, tiny, walk};
use mettle_structured::{ParserEvent, Spec, Tool, ToolCalls, ToolChoice, ToolFormat, ToolParser};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::fmt::Write;

fn tools() -> Vec<Tool> {
    let tools = json!([
        {"type": "function", "function": {"name": "weather", "description": "ignored", "parameters": {"type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
            "required": ["city", "days"], "additionalProperties": false}}},
        {"type": "function", "function": {"name": "now"}},
    ]);
    Tool::list_from_json(tools.as_array().unwrap()).unwrap()
}

fn names() -> Vec<String> {
    tools().into_iter().map(|tool| tool.name).collect()
}

/// Adjacent text and adjacent fragments joined.
fn joined(events: impl IntoIterator<Item = ParserEvent>) -> Vec<ParserEvent> {
    let mut all: Vec<ParserEvent> = Vec::new();
    for event in events {
        match (all.last_mut(), event) {
            (Some(ParserEvent::Text(text)), ParserEvent::Text(more)) => text.push_str(&more),
            (
                Some(ParserEvent::CallArguments { index, fragment }),
                ParserEvent::CallArguments {
                    index: same,
                    fragment: more,
                },
            ) if *index == same => fragment.push_str(&more),
            (_, event) => all.push(event),
        }
    }
    all
}

fn parse<'a>(format: ToolFormat, pieces: impl IntoIterator<Item = &'a str>) -> Vec<ParserEvent> {
    let mut parser = ToolParser::new(format, names());
    let mut events: Vec<ParserEvent> = pieces
        .into_iter()
        .flat_map(|piece| parser.push(piece))
        .collect();
    events.extend(parser.finish());
    joined(events)
}

/// Text as it is, calls as `«name arguments»`.
fn written(events: &[ParserEvent]) -> String {
    let mut out = String::new();
    for event in events {
        match event {
            ParserEvent::Text(text) => out.push_str(text),
            ParserEvent::CallStart { name, .. } => write!(out, "«{name} ").unwrap(),
            ParserEvent::CallArguments { fragment, .. } => out.push_str(fragment),
            ParserEvent::CallEnd { .. } => out.push('»'),
        }
    }
    out
}

#[test]
fn each_format_is_read() {
    use ToolFormat::*;
    let same = |format, text: &str| (format, text.to_owned(), text.to_owned());
    let reads = |format, text: &str, as_: &str| (format, text.to_owned(), as_.to_owned());
    let call = r#"{"name": "now", "arguments": {"a": "}\"{", "b": [1, {}]}}"#;
    let read = r#"«now {"a": "}\"{", "b": [1, {}]}»"#;
    for (format, text, expected) in [
        reads(
            Hermes,
            &format!("Hi.\n<tool_call>\n{call}\n</tool_call>"),
            &format!("Hi.\n{read}"),
        ),
        reads(
            Hermes,
            &format!("<tool_call>{call}</tool_call>\n<tool_call>{call}</tool_call>\n"),
            &format!("{read}{read}"),
        ),
        reads(
            Hermes,
            &format!("<tool_call>{call}</tool_call> and\n"),
            &format!("{read} and\n"),
        ),
        reads(
            Hermes,
            &format!("<tool_call>{call} no end"),
            &format!("{read} no end"),
        ),
        reads(
            Hermes,
            r#"<tool_call>{"arguments": {"x": 1}, "id": [2, "}"], "name": "f"}</tool_call>"#,
            r#"«f {"x": 1}»"#,
        ),
        reads(
            Hermes,
            r#"<tool_call>{"name": "f", "arguments": "{\"x\": 1}"}</tool_call>"#,
            r#"«f {"x": 1}»"#,
        ),
        reads(Hermes, r#"<tool_call>{"name": "f"}</tool_call>"#, "«f {}»"),
        reads(
            Hermes,
            r#"<tool_call>{"name": "f", "arguments": {"x": "cut o"#,
            r#"«f {"x": "cut o»"#,
        ),
        reads(
            Hermes,
            r#"<tool_call>{"name": "f", "arguments": {}, oops}</tool_call>"#,
            "«f {}»oops}</tool_call>",
        ),
        reads(
            Hermes,
            &format!("<<tool_call>{call}</tool_call><"),
            &format!("<{read}<"),
        ),
        reads(
            Hermes,
            &format!("<tool_call><tool_call>{call}</tool_call>"),
            &format!("<tool_call>{read}"),
        ),
        reads(
            Hermes,
            &format!("<tool_call>{{\"name\": <tool_call>{call}"),
            &format!("<tool_call>{{\"name\": {read}"),
        ),
        same(Hermes, "a < b <tool <tool_call> not JSON </tool_call>"),
        same(Hermes, r#"<tool_call>{"no": "name"}</tool_call>"#),
        same(
            Hermes,
            r#"<tool_call>{"name": "f", "arguments": 5}</tool_call>"#,
        ),
        same(Hermes, r#"<tool_call>{"name": "f", "argum"#),
        same(Hermes, call),
        reads(
            Llama3Json,
            r#"{"name": "now", "parameters": {}}"#,
            "«now {}»",
        ),
        reads(
            Llama3Json,
            r#" <|python_tag|>{"name": "now", "parameters": {}}"#,
            " «now {}»",
        ),
        reads(
            Llama3Json,
            r#"{"name": "now", "parameters": {}}; {"name": "weather", "parameters": {"a": 1}}"#,
            r#"«now {}»«weather {"a": 1}»"#,
        ),
        same(Llama3Json, r#"{"name": "Bob", "parameters": {}}"#),
        same(Llama3Json, r#"{"name": "now"}"#),
        same(Llama3Json, r#"Say {"name": "now", "parameters": {}}"#),
        reads(
            Mistral,
            &format!("[TOOL_CALLS] [{call}, {call}]"),
            &format!("{read}{read}"),
        ),
        reads(
            Mistral,
            &format!("ok[TOOL_CALLS][{call}] bye"),
            &format!("ok{read} bye"),
        ),
        reads(
            Mistral,
            r#"[TOOL_CALLS]now{"a": 1}[TOOL_CALLS]weather[ARGS]{}"#,
            r#"«now {"a": 1}»«weather {}»"#,
        ),
        reads(
            Mistral,
            r#"[TOOL_CALLS]now[CALL_ID]x1[ARGS]{"a": "}"}"#,
            r#"«now {"a": "}"}»"#,
        ),
        reads(
            Mistral,
            &format!("[TOOL_CALLS][{call}, [TOOL_CALLS]now{{}}"),
            &format!("{read}«now {{}}»"),
        ),
        reads(
            Hermes,
            r#"<tool_call>{"name": "f", "arguments": {"a": "\"", "b": "\\"}} <"#,
            r#"«f {"a": "\"", "b": "\\"}» <"#,
        ),
        same(Mistral, "[TOOL_CALLS] []"),
        same(Mistral, "[TOOL_CALLS] what?"),
        same(Mistral, "[1, 2, [TOOL]"),
        reads(GenericJson, call, read),
        reads(
            GenericJson,
            &format!("\n[{call},\n{call}]\n"),
            &format!("{read}{read}"),
        ),
        reads(
            GenericJson,
            &format!("[{call}, {{\"x\": 1}}]"),
            &format!("{read}, {{\"x\": 1}}]"),
        ),
        same(GenericJson, r#"{"answer": [1, 2, {"name": "now"}]}"#),
        same(GenericJson, "[1, 2, 3]"),
        same(GenericJson, "  plain text {"),
        same(GenericJson, r#"{"name": "unknown", "arguments": {}}"#),
    ] {
        assert_eq!(
            written(&parse(format, [text.as_str()])),
            expected,
            "{format:?} {text}"
        );
    }
}

#[test]
fn text_comes_as_soon_as_it_is_sure_and_arguments_as_they_are_written() {
    let mut parser = ToolParser::new(ToolFormat::Hermes, vec![]);
    let text = |text: &str| vec![ParserEvent::Text(text.to_owned())];
    assert_eq!(parser.push("Hello <to"), text("Hello "));
    assert_eq!(parser.push("p"), text("<top"));
    assert_eq!(parser.push("<tool_call>{\"name\": \"f\","), []);
    let events = parser.push("\"arguments\": {\"a\"");
    assert_eq!(
        events[0],
        ParserEvent::CallStart {
            index: 0,
            name: "f".to_owned()
        }
    );
    assert_eq!(written(&events), "«f {\"a\"");
    assert_eq!(written(&parser.push(": 1")), ": 1");
    assert_eq!(parser.calls(), 1);
}

#[test]
fn a_long_text_of_almost_calls_takes_linear_time() {
    for format in ToolFormat::ALL {
        for unit in [
            "<tool_call>{\"a\": \"",
            "[TOOL_CALLS][",
            "{\"name\": \"now\", ",
            "[TOOL_CALLS]a",
            "  ",
        ] {
            let text = unit.repeat(300_000 / unit.len());
            let started = std::time::Instant::now();
            assert_eq!(written(&parse(format, [text.as_str()])), text);
            assert!(
                started.elapsed().as_secs() < 5,
                "{format:?} {unit}: {:?}",
                started.elapsed()
            );
        }
    }
}

#[test]
fn formats_are_known_by_name_and_by_template() {
    for format in ToolFormat::ALL {
        assert_eq!(ToolFormat::from_name(format.name()), Some(format));
    }
    assert_eq!(ToolFormat::from_name("unknown"), None);
    for (template, format) in [
        (
            "{% if tools %}<tool_call>\n{\"name\": ...}",
            Some(ToolFormat::Hermes),
        ),
        ("<tool_call><function=x>", None),
        (
            "[AVAILABLE_TOOLS] {{ tools }} [TOOL_CALLS]",
            Some(ToolFormat::Mistral),
        ),
        (
            "<|start_header_id|>{% if tools %}",
            Some(ToolFormat::Llama3Json),
        ),
        ("<|im_start|>{{ tools }}", Some(ToolFormat::GenericJson)),
        ("<|im_start|>{{ message }}", None),
    ] {
        assert_eq!(ToolFormat::detect(template), format, "{template}");
    }
}

/// What a forced call wrote, read back: names and arguments.
fn calls(format: ToolFormat, text: &str) -> Vec<(String, Value)> {
    let mut calls: Vec<(String, String)> = Vec::new();
    for event in parse(format, [text]) {
        match event {
            ParserEvent::Text(other) => panic!("{other:?} beside calls in {text:?}"),
            ParserEvent::CallStart { name, .. } => calls.push((name, String::new())),
            ParserEvent::CallArguments { index, fragment } => calls[index].1.push_str(&fragment),
            ParserEvent::CallEnd { index } => assert_eq!(index + 1, calls.len()),
        }
    }
    let parse = |text: &str| serde_json::from_str(text).unwrap_or_else(|e| panic!("{text}: {e}"));
    calls
        .into_iter()
        .map(|(name, arguments)| (name, parse(&arguments)))
        .collect()
}

#[test]
fn forced_calls_are_calls_of_known_tools_with_arguments_that_fit() {
    let tools = tools();
    for (vocabulary, seeds) in [(tiny(), 10), (real(), 4)] {
        for format in ToolFormat::ALL {
            for (choice, parallel) in [
                (ToolChoice::Required, true),
                (ToolChoice::Required, false),
                (ToolChoice::Named("weather".to_owned()), true),
            ] {
                let forced = ToolCalls::forced(format, &tools, &choice, parallel).unwrap();
                let grammar = vocabulary.compile(Spec::ToolCalls(forced)).unwrap();
                for seed in 0..seeds {
                    let text = walk(vocabulary, &grammar, seed, 60, &mut |_, _| {});
                    let calls = calls(format, &text);
                    assert!(
                        calls.len() == 1
                            || (parallel && choice == ToolChoice::Required && calls.len() > 1),
                        "{text}"
                    );
                    for (name, arguments) in calls {
                        let tool = tools.iter().find(|tool| tool.name == name).unwrap();
                        assert!(
                            fits(&arguments, &tool.parameters, &tool.parameters),
                            "{text}"
                        );
                        assert!(
                            choice == ToolChoice::Required || name == "weather",
                            "{text}"
                        );
                    }
                }
            }
        }
    }
    assert!(ToolCalls::forced(ToolFormat::Hermes, &tools, &ToolChoice::Auto, true).is_none());
    assert!(ToolCalls::forced(ToolFormat::Hermes, &tools, &ToolChoice::None, true).is_none());
}

#[test]
fn markers_that_are_tokens_of_their_own_are_used() {
    let vocabulary = common::tiny_with(&[
        ("[TOOL_CALLS]", true),
        ("<tool_call>", false),
        ("</tool_call>", true),
    ]);
    let start = |format, token: u32| {
        let calls = ToolCalls::forced(format, &tools(), &ToolChoice::Required, true).unwrap();
        let grammar = vocabulary.compile(Spec::ToolCalls(calls)).unwrap();
        let mut constraint = grammar.constraint();
        let first = common::allowed_in(&vocabulary, constraint.as_mut());
        constraint.accept(token).unwrap();
        (first, common::allowed_in(&vocabulary, constraint.as_mut()))
    };
    let id = |text: &str| vocabulary.tokenizer.id_of(text).unwrap();
    let (first, second) = start(ToolFormat::Mistral, 300);
    assert_eq!(first, [300]);
    assert!(
        second.contains(&id("[")) && second.contains(&id("Ġ")),
        "{second:?}"
    );
    let (first, second) = start(ToolFormat::Hermes, 301);
    assert!(
        first.contains(&301) && first.contains(&id("<")) && !first.contains(&302),
        "{first:?}"
    );
    assert_eq!(second, [id("Ċ")]);
}

#[test]
fn several_calls_only_where_they_may_be() {
    let [one, two] =
        ["arguments", "parameters"].map(|key| format!("{{\"name\": \"now\", \"{key}\": {{}}}}"));
    for (format, text) in [
        (
            ToolFormat::Hermes,
            format!("<tool_call>\n{one}\n</tool_call>\n<tool_call>\n{one}\n</tool_call>"),
        ),
        (ToolFormat::Llama3Json, format!("{two}; {two}")),
        (ToolFormat::Mistral, format!("[TOOL_CALLS] [{one}, {one}]")),
        (ToolFormat::GenericJson, format!("[{one}, {one}]")),
    ] {
        assert_eq!(calls(format, &text).len(), 2);
        for (choice, parallel, allowed) in [
            (ToolChoice::Required, true, Some(true)),
            (ToolChoice::Required, false, None),
            (ToolChoice::Named("now".to_owned()), true, None),
        ] {
            let forced = ToolCalls::forced(format, &tools(), &choice, parallel).unwrap();
            let grammar = tiny().compile(Spec::ToolCalls(forced)).unwrap();
            assert_eq!(common::follow(tiny(), &grammar, &text), allowed, "{text}");
        }
    }
}

/// Texts made of what calls are made of.
fn almost_calls() -> impl Strategy<Value = String> {
    let parts = prop::sample::select(vec![
        "<tool_call>",
        "</tool_call>",
        "<|python_tag|>",
        "[TOOL_CALLS]",
        "{\"name\": \"now\", ",
        "\"arguments\": {",
        "\"parameters\": {\"a\": \"",
        "\"}",
        "}",
        "}}",
        "[",
        "]",
        ",",
        ";",
        "\n",
        " ",
        "\"",
        "\\",
        "now",
        "é",
        "<",
        "{",
        "{\"name\": \"now\", \"arguments\": {}}",
        "{\"name\": \"now\", \"parameters\": {\"x\": [1]}}",
        "[ARGS]",
        "text",
        "\"name\": \"weather\"",
        "\"arguments\": \"{}\"",
        ":",
    ]);
    prop::collection::vec(parts, 0..14).prop_map(|parts| parts.concat())
}

fn pieces(text: &str, cuts: &[prop::sample::Index]) -> Vec<String> {
    let chars: Vec<char> = text.chars().collect();
    let mut at: Vec<usize> = cuts.iter().map(|cut| cut.index(chars.len() + 1)).collect();
    at.extend([0, chars.len()]);
    at.sort_unstable();
    at.windows(2)
        .map(|pair| chars[pair[0]..pair[1]].iter().collect())
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn any_split_gives_the_same_events(text in almost_calls(), cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8)) {
        for format in ToolFormat::ALL {
            let whole = parse(format, [text.as_str()]);
            let split = pieces(&text, &cuts);
            prop_assert_eq!(&parse(format, split.iter().map(String::as_str)), &whole);
            let characters: Vec<String> = text.chars().map(String::from).collect();
            prop_assert_eq!(&parse(format, characters.iter().map(String::as_str)), &whole);
            // Every call has one start, then arguments, then one end, and calls are numbered.
            let mut open = None;
            let mut next = 0;
            for event in &whole {
                match event {
                    ParserEvent::Text(text) => prop_assert!(open.is_none() && !text.is_empty()),
                    ParserEvent::CallStart { index, name } => {
                        prop_assert!(open.is_none() && *index == next && !name.is_empty());
                        open = Some(*index);
                        next += 1;
                    }
                    ParserEvent::CallArguments { index, .. } => prop_assert_eq!(open, Some(*index)),
                    ParserEvent::CallEnd { index } => prop_assert_eq!(open.take(), Some(*index)),
                }
            }
            prop_assert!(open.is_none());
            if next == 0 {
                prop_assert_eq!(written(&whole), text.clone());
            }
            // Nothing is invented or doubled: texts stand in the text in their order, and so does what calls hold.
            let mut rest = text.chars();
            for event in joined(whole) {
                match event {
                    ParserEvent::Text(given) => {
                        for c in given.chars() {
                            prop_assert!(rest.any(|other| other == c), "{:?} of {:?}", given, text);
                        }
                    }
                    ParserEvent::CallArguments { fragment, .. } => {
                        prop_assert!(fragment == "{}" || text.contains(&fragment), "{:?}", fragment);
                    }
                    ParserEvent::CallStart { name, .. } => prop_assert!(text.contains(&name)),
                    ParserEvent::CallEnd { .. } => {}
                }
            }
        }
    }
}
