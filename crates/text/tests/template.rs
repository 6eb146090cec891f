//! Owns the proof that chat templates render as the reference implementation renders them.

mod fixture;

use std::collections::HashMap;
use std::time::{Duration, Instant};

use mettle_text::{ChatTemplate, Message, RenderOptions, TemplateSpecials, TextError};
use serde_json::{Map, Value, json};

#[derive(serde::Deserialize)]
struct Fixture {
    chats: HashMap<String, Vec<Message>>,
    cases: Vec<Case>,
}

#[derive(serde::Deserialize)]
struct Case {
    template: String,
    chat: String,
    options: Options,
    text: Option<String>,
    error: Option<String>,
}

#[derive(Debug, Default, serde::Deserialize)]
#[serde(default)]
struct Options {
    add_generation_prompt: bool,
    continue_final_message: bool,
    tools: Option<Value>,
    kwargs: Map<String, Value>,
}

fn specials() -> TemplateSpecials {
    TemplateSpecials {
        bos: Some("<s>".into()),
        eos: Some("</s>".into()),
        ..Default::default()
    }
}

fn render(source: &str, kwargs: Value) -> Result<String, TextError> {
    let Value::Object(kwargs) = kwargs else {
        panic!("kwargs are an object")
    };
    let options = RenderOptions {
        kwargs,
        ..Default::default()
    };
    ChatTemplate::new(source, specials())?.render(&[Message::new("user", "Hi")], &options)
}

#[test]
fn conversations_render_as_the_reference_renders_them() {
    let fixture: Fixture = fixture::json("templates.json");
    assert!(fixture.cases.len() > 200);
    let mut wrong = Vec::new();
    for case in fixture.cases {
        let source =
            String::from_utf8(fixture::bytes(&format!("templates/{}", case.template))).unwrap();
        let template = ChatTemplate::new(&source, specials()).unwrap();
        let context = format!("{} / {} / {:?}", case.template, case.chat, case.options);
        let options = RenderOptions {
            add_generation_prompt: case.options.add_generation_prompt,
            continue_final_message: case.options.continue_final_message,
            tools: case.options.tools,
            kwargs: case.options.kwargs,
        };
        let rendered = template.render(&fixture.chats[&case.chat], &options);
        let same = match (&rendered, &case.text) {
            (Ok(ours), Some(theirs)) => ours == theirs,
            (Err(_), None) => case.error.is_some(),
            _ => false,
        };
        if !same {
            wrong.push(format!(
                "{context}\n  ours:   {rendered:?}\n  theirs: {:?} {:?}",
                case.text, case.error
            ));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} cases differ:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

#[test]
fn a_template_can_refuse() {
    let error = render(
        "{{ raise_exception('Only user and assistant roles!') }}",
        json!({}),
    )
    .unwrap_err();
    assert_eq!(
        error.to_string(),
        "the chat template refused the messages: Only user and assistant roles!"
    );
    let nested = "{% macro m() %}{% for x in [1] %}{{ raise_exception('deep') }}{% endfor %}{% endmacro %}{{ m() }}";
    assert!(
        matches!(render(nested, json!({})), Err(TextError::TemplateRefused(message)) if message == "deep")
    );
}

/// Freeing a list in a list in a list ... takes a stack frame each.
#[test]
fn values_nested_as_deep_as_the_fuel_lasts_are_freed() {
    let nesting = "{% set ns = namespace(x=[]) %}{% for a in range(9999) %}{% for b in range(9999) %}\
                   {% set ns.x = [ns.x] %}{% endfor %}{% endfor %}";
    assert!(matches!(
        render(nesting, json!({})),
        Err(TextError::TemplateFuel { .. })
    ));
}

#[test]
fn endless_loops_end() {
    let nested = "{% for a in range(10000) %}{% for b in range(10000) %}{% for c in range(10000) %}\
                  {% set x = a + b + c %}{% endfor %}{% endfor %}{% endfor %}";
    let start = Instant::now();
    assert!(matches!(
        render(nested, json!({})),
        Err(TextError::TemplateFuel { limit: 2_000_000 })
    ));
    assert!(
        start.elapsed() < Duration::from_secs(20),
        "{:?}",
        start.elapsed()
    );
}

#[test]
fn output_and_recursion_are_bounded() {
    let flood = "{% set big = 'x' * 1000000 %}{% for i in range(1000) %}{{ big }}{% endfor %}";
    assert!(matches!(
        render(flood, json!({})),
        Err(TextError::TemplateOutput { .. })
    ));
    let recursion = "{% macro m(n) %}{{ m(n + 1) }}{% endmacro %}{{ m(0) }}";
    assert!(matches!(
        render(recursion, json!({})),
        Err(TextError::TemplateRender(_))
    ));
}

#[test]
fn arguments_cannot_replace_what_is_the_templates_own() {
    for name in [
        "messages",
        "tools",
        "add_generation_prompt",
        "bos_token",
        "raise_exception",
        "namespace",
        "range",
    ] {
        let error = render("{{ messages }}", json!({ name: 1 })).unwrap_err();
        assert!(
            matches!(&error, TextError::ReservedArgument(reserved) if reserved == name),
            "{error}"
        );
    }
    assert_eq!(
        render(
            "{{ documents }}{{ style }}",
            json!({"documents": [1], "style": "x"})
        )
        .unwrap(),
        "[1]x"
    );
}

#[test]
fn broken_templates_say_where() {
    let error = render("line\n{% if %}", json!({})).unwrap_err().to_string();
    assert!(
        error.starts_with("the chat template does not compile") && error.contains("line 2"),
        "{error}"
    );
    let error = render("a\nb\n{{ missing.attribute }}", json!({}))
        .unwrap_err()
        .to_string();
    assert!(error.contains("line 3"), "{error}");
    assert!(render("{% include 'etc/passwd' %}", json!({})).is_err());
    assert!(render("{{ strftime_now('%Q') }}", json!({})).is_err());
    assert_eq!(
        TextError::NoChatTemplate.to_string(),
        "the model has no chat template; use --raw to send the prompt as it is"
    );
}

#[test]
fn the_date_is_todays() {
    let rendered = render("{{ strftime_now('%Y') }}", json!({})).unwrap();
    assert!(rendered.parse::<i32>().unwrap() >= 2026, "{rendered}");
}

#[test]
fn continuing_excludes_a_new_answer_and_needs_text() {
    let template = ChatTemplate::new("{{ messages[-1].content }}<end>", specials()).unwrap();
    let mut options = RenderOptions {
        continue_final_message: true,
        ..Default::default()
    };
    let text = template
        .render(&[Message::new("assistant", "So far ")], &options)
        .unwrap();
    assert_eq!(text, "So far ");
    assert!(matches!(
        template.render(&[], &options),
        Err(TextError::CannotContinue(_))
    ));
    let mut empty = Message::new("assistant", "");
    empty.content = Value::Null;
    assert!(matches!(
        template.render(&[empty], &options),
        Err(TextError::CannotContinue(_))
    ));
    options.add_generation_prompt = true;
    let both = template.render(&[Message::new("user", "x")], &options);
    assert!(matches!(both, Err(TextError::GenerationPromptAndContinue)));
}
