//! Models that think before they answer: what is told apart, counted, and bound to a form.

use crate::script::Script;
use crate::server::{Server, Setup, TEMPLATE, options};
use mettle_server::{AppOptions, ReasoningFormat, ToolFormat};
use mettle_text::{ChatTemplate, SpecialTokens, TemplateSpecials, Tokenizer};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;

const CHAT: &str = "/v1/chat/completions";

fn ids(text: &str) -> Vec<u32> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/models/llama");
    let json = std::fs::read(folder.join("tokenizer.json")).unwrap();
    let tokenizer = Tokenizer::from_json(&json, None).unwrap();
    tokenizer.encode(text, SpecialTokens::Plain, false).unwrap()
}

/// A server whose model wants to say `text`, after a prompt that ends in `prompt_end`.
fn server(text: &str, prompt_end: &str, reasoning: Option<ReasoningFormat>) -> Server {
    let template = format!("{TEMPLATE}{prompt_end}");
    let template = ChatTemplate::new(&template, TemplateSpecials::default()).unwrap();
    Server::with(Setup {
        executable: Some(Box::new(Script::new(ids(text)))),
        options: AppOptions {
            template: Some(Arc::new(template)),
            reasoning_format: reasoning,
            tool_format: Some(ToolFormat::Hermes),
            ..options()
        },
        ..Setup::default()
    })
}

fn body(fields: Value) -> Value {
    let mut body = json!({
        "messages": [{"role": "user", "content": "hi"}], "temperature": 0,
        "max_tokens": 60,
    });
    let fields = fields.as_object().unwrap().clone();
    body.as_object_mut().unwrap().extend(fields);
    body
}

fn yes_or_no() -> Value {
    json!({"structured_outputs": {"choice": ["yes", "no"]}})
}

const QWEN3: Option<ReasoningFormat> = Some(ReasoningFormat::Qwen3);
const R1: Option<ReasoningFormat> = Some(ReasoningFormat::DeepseekR1);

/// The model thinks freely; only then its answer is bound.
#[test]
fn a_form_binds_the_answer_and_not_the_thoughts() {
    let cases = [
        // The model opens its reasoning itself, the prompt has, or it always reasons first.
        ("<think>hm</think>no way", "", QWEN3, "hm", "no"),
        ("hm</think>no way", "<think>", QWEN3, "hm", "no"),
        ("hm</think>no way", "", R1, "hm", "no"),
        // It need not reason at all.
        ("no way", "", QWEN3, "", "no"),
        // The prompt has closed the reasoning, or nobody knows of any: the form binds from the first token on.
        ("no way", "<think></think>", QWEN3, "", "no"),
        ("no way", "<think></think>", R1, "", "no"),
        ("no way", "<think>", None, "", "no"),
    ];
    for (text, prompt_end, format, reasoning, content) in cases {
        let case = format!("{text:?} after {prompt_end:?}, {format:?}");
        let answer = server(text, prompt_end, format).ask(CHAT, body(yes_or_no()));
        let choice = &answer["choices"][0];
        assert_eq!(choice["message"]["content"], content, "{case}: {answer}");
        let found = choice["message"]["reasoning"].as_str().unwrap_or("");
        assert_eq!(found, reasoning, "{case}");
        assert_eq!(choice["finish_reason"], "stop", "{case}");
    }
    // A model that wants to think is not let where the prompt says that it has.
    for (prompt_end, format) in [
        ("<think></think>", QWEN3),
        ("<think></think>", R1),
        ("", None),
    ] {
        let server = server("<think>hm</think>no", prompt_end, format);
        let answer = server.ask(CHAT, body(yes_or_no()));
        let content = answer["choices"][0]["message"]["content"].as_str().unwrap();
        assert!(["yes", "no"].contains(&content), "{answer}");
    }
}

/// An answer that never comes to its end has no content that could break the form.
#[test]
fn thoughts_without_an_end_are_no_answer() {
    let mut request = body(json!({"response_format": {"type": "json_object"}}));
    request["max_tokens"] = 5.into();
    let answer = server("and so on and on", "<think>", QWEN3).ask(CHAT, request);
    let choice = &answer["choices"][0];
    assert_eq!(choice["finish_reason"], "length");
    assert_eq!(choice["message"]["content"], "");
    assert!(choice["message"]["reasoning"].is_string());
}

#[test]
fn forced_calls_come_after_the_thoughts() {
    let tools = json!({
        "tools": [{"type": "function", "function": {"name": "f", "parameters": {
            "type": "object", "properties": {"a": {"enum": [1]}}, "required": ["a"],
            "additionalProperties": false,
        }}}],
        "tool_choice": "required", "max_tokens": 120,
    });
    let answer = server("hm</think>no way", "<think>", QWEN3).ask(CHAT, body(tools));
    let choice = &answer["choices"][0];
    assert_eq!(choice["message"]["reasoning"], "hm", "{answer}");
    let function = &choice["message"]["tool_calls"][0]["function"];
    assert_eq!(function["name"], "f", "{answer}");
    let arguments = function["arguments"].as_str().unwrap();
    assert_eq!(
        serde_json::from_str::<Value>(arguments).unwrap(),
        json!({"a": 1})
    );
}

/// With a form, `auto` leaves no room for calls: the answer has the form, and is not read as a call.
#[test]
fn a_form_wins_over_tools_that_may_be_called() {
    let text = "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>";
    let tools = json!({
        "tools": [{"type": "function", "function": {"name": "f"}}], "tool_choice": "auto",
    });
    let called = server(text, "", None).ask(CHAT, body(tools.clone()));
    let call = &called["choices"][0]["message"]["tool_calls"][0];
    assert_eq!(call["function"]["name"], "f", "{called}");
    let mut bound = body(tools);
    bound["response_format"] = json!({"type": "json_schema", "json_schema": {"name": "s", "schema": {
        "type": "object", "properties": {"name": {"enum": ["f"]}, "arguments": {"enum": [{}]}},
        "required": ["name", "arguments"], "additionalProperties": false,
    }}});
    let answer = server(text, "", None).ask(CHAT, bound);
    let choice = &answer["choices"][0];
    assert_eq!(choice["finish_reason"], "stop", "{answer}");
    assert_eq!(choice["message"]["tool_calls"], Value::Null);
    let content = choice["message"]["content"].as_str().unwrap();
    let content: Value = serde_json::from_str(content).unwrap();
    assert_eq!(content, json!({"name": "f", "arguments": {}}));
}

/// Tokens between the tags, in every API, streamed and not.
#[test]
fn thoughts_are_counted() {
    let text = "<think>well now</think>good day";
    let thoughts = ids("well now").len() as u64;
    let whole = ids(text).len();
    let request = body(json!({"max_tokens": whole}));
    let answer = server(text, "", QWEN3).ask(CHAT, request.clone());
    let count = |usage: &Value| usage["completion_tokens_details"]["reasoning_tokens"].as_u64();
    let found = count(&answer["usage"]).unwrap();
    // The fixture writes `</think>` in letters, of which the first ones may still have been thoughts.
    let tag = ids("</think>").len() as u64;
    assert!((thoughts..thoughts + tag).contains(&found), "{found}");
    assert_eq!(answer["choices"][0]["message"]["reasoning"], "well now");

    let mut streamed = request.clone();
    streamed["stream_options"] = json!({"include_usage": true});
    let chunks = server(text, "", QWEN3).chunks(CHAT, streamed);
    assert_eq!(count(&chunks.last().unwrap()["usage"]), Some(found));

    let input = json!({"input": "hi", "max_output_tokens": whole, "temperature": 0});
    let response = server(text, "", QWEN3).ask("/v1/responses", input);
    let details = &response["usage"]["output_tokens_details"];
    assert_eq!(details["reasoning_tokens"], found);

    // Where nothing is told apart, nothing is said.
    let answer = server(text, "", None).ask(CHAT, request);
    assert_eq!(answer["usage"]["completion_tokens_details"], Value::Null);
}
