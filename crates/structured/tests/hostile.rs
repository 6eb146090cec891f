//! Hostile requests get an error or an answer, within their limits, and the next request is served.

mod common;

use common::{Random, Vocabulary, allowed_in, tiny};
use mettle_engine::TokenMask;
use mettle_structured::{Limits, Spec, StructuredError, Tool, ToolCalls, ToolChoice, ToolFormat};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Compiles, and follows what compiled for a while: neither may panic nor take long.
fn survives(spec: Spec) -> Result<(), StructuredError> {
    let vocabulary = tiny();
    let started = Instant::now();
    let grammar = vocabulary.compile(spec);
    let took = started.elapsed();
    assert!(
        took < Limits::default().deadline + Duration::from_secs(1),
        "{took:?}"
    );
    let grammar = grammar.inspect_err(|error| {
        let message = error.to_string();
        assert!(
            message.lines().count() == 1 && message.len() < 1500,
            "{message}"
        );
        assert!(error.is_callers_fault(), "{message}");
    })?;
    let mut constraint = grammar.constraint();
    let mut mask = TokenMask::new(vocabulary.tokenizer.vocab_size());
    let mut random = Random(7);
    for _ in 0..50 {
        mask.clear();
        let started = Instant::now();
        let masked = constraint.mask(&mut mask);
        assert!(
            started.elapsed() < Duration::from_secs(1),
            "{:?}",
            started.elapsed()
        );
        if masked.is_err() {
            break;
        }
        let size = vocabulary.tokenizer.vocab_size() as u32;
        let allowed: Vec<u32> = (0..size)
            .filter(|id| mask.is_allowed(*id) && *id != vocabulary.eos)
            .collect();
        if allowed.is_empty()
            || constraint
                .accept(allowed[random.below(allowed.len())])
                .is_err()
        {
            break;
        }
    }
    Ok(())
}

fn chain(length: usize, rule: impl Fn(usize) -> String) -> String {
    (0..length).map(rule).collect()
}

#[test]
fn schemas() {
    let mut deep = json!({"type": "integer"});
    for _ in 0..60 {
        deep = json!({"type": "array", "items": deep});
    }
    survives(Spec::JsonSchema(deep.clone())).unwrap();
    for _ in 0..60 {
        deep = json!({"type": "array", "items": {"anyOf": [deep]}});
    }
    assert!(matches!(
        survives(Spec::JsonSchema(deep)),
        Err(StructuredError::TooDeep { .. })
    ));

    let wide: serde_json::Map<String, Value> = (0..3000)
        .map(|i| (format!("property_{i}"), json!({"type": "string"})))
        .collect();
    let _ = survives(Spec::JsonSchema(
        json!({"type": "object", "properties": wide.clone()}),
    ));
    let required: Vec<&String> = wide.keys().collect();
    let _ = survives(Spec::JsonSchema(
        json!({"type": "object", "properties": wide, "required": required}),
    ));
    let huge: serde_json::Map<String, Value> = (0..30_000)
        .map(|i| (format!("property_{i}"), json!({"type": "string"})))
        .collect();
    let huge = survives(Spec::JsonSchema(
        json!({"type": "object", "properties": huge}),
    ));
    assert!(
        matches!(huge, Err(StructuredError::TooLarge { .. })),
        "{huge:?}"
    );

    let links: serde_json::Map<String, Value> = (0..5000)
        .map(|i| {
            (
                format!("d{i}"),
                json!({"$ref": format!("#/$defs/d{}", i + 1)}),
            )
        })
        .chain([("d5000".to_owned(), json!({"type": "null"}))])
        .collect();
    let _ = survives(Spec::JsonSchema(
        json!({"$defs": links, "$ref": "#/$defs/d0"}),
    ));
    let _ = survives(Spec::JsonSchema(json!({"$ref": "#"})));
    let _ = survives(Spec::JsonSchema(
        json!({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}},
        "$ref": "#/$defs/a"}),
    ));
    let _ = survives(Spec::JsonSchema(
        json!({"allOf": [{"$ref": "#"}, {"type": "object"}]}),
    ));
    let _ = survives(Spec::JsonSchema(
        json!({"oneOf": [{"$ref": "#"}, {"$ref": "#"}]}),
    ));
    survives(Spec::JsonSchema(
        json!({"type": "array", "items": {"$ref": "#"}}),
    ))
    .unwrap();

    let options: Vec<Value> = (0..60)
        .map(|i| json!({"type": "object", "properties": {format!("p{i}"): {"const": i}}}))
        .collect();
    let many = json!({"anyOf": options});
    let _ = survives(Spec::JsonSchema(
        json!({"allOf": [many.clone(), many.clone(), many.clone(), many]}),
    ));
    for hostile in [
        json!({"type": "string", "minLength": 1_000_000_000, "maxLength": 2_000_000_000_u64}),
        json!({"type": "string", "maxLength": u64::MAX}),
        json!({"type": "array", "minItems": 1_000_000_000}),
        json!({"type": "array", "items": {"type": "string"}, "minItems": 20_000, "maxItems": 30_000}),
        json!({"type": "object", "minProperties": 1_000_000}),
        json!({"type": "string", "pattern": "(a{1000}){1000}"}),
        json!({"type": "string", "pattern": "(?:.*a.{20}|.*b.{25}|.*c.{30})*"}),
        json!({"type": "integer", "multipleOf": 999_999_999_999_u64}),
        json!({"type": "number", "minimum": -1e300, "maximum": 1e300, "multipleOf": 1e-300}),
        json!({"type": "object", "patternProperties": {"^(a|b)*$": {}, "^(b|a)*c?$": {"type": "null"}}}),
    ] {
        let _ = survives(Spec::JsonSchema(hostile));
    }
    assert!(survives(Spec::JsonSchema(json!({"type": "boolean"}))).is_ok());
}

#[test]
fn what_cannot_be_enforced_is_an_error_that_names_it() {
    for (schema, named) in [
        (json!({"type": "array", "uniqueItems": true}), "uniqueItems"),
        (json!({"not": {"type": "null"}}), "not"),
        (json!({"if": {"type": "null"}, "then": {}}), "if"),
        (json!({"type": "nonsense"}), "nonsense"),
        (json!({"type": 7}), "type"),
        (json!({"type": "string", "pattern": 5}), "pattern"),
        (json!({"type": "string", "pattern": "(unclosed"}), "regex"),
        (json!({"$ref": "#/$defs/missing"}), "missing"),
        (json!({"$ref": "https://example.com/schema"}), "example.com"),
        (
            json!({"oneOf": [{"type": "integer"}, {"type": "number"}]}),
            "oneOf",
        ),
        (json!({"x-guidance": {"lenient": true}, "not": {}}), "not"),
        (
            json!({"allOf": [{"type": "string"}, {"type": "null"}]}),
            "nsatisfiable",
        ),
        (json!(false), "object"),
        (json!("text"), "object"),
    ] {
        let error = survives(Spec::JsonSchema(schema.clone())).expect_err(&schema.to_string());
        assert!(error.to_string().contains(named), "{schema}: {error}");
    }
}

#[test]
fn regular_expressions() {
    for hostile in [
        "(a{1000}){1000}",
        "((a{100}){100}){100}",
        "(a|aa)+$b",
        "(x+x+)+y",
        "(.*a){50}",
        "[a-z]{65535}",
        "(?:.*a.{20}|.*b.{25}|.*c.{30})*",
        "\\p{L}{500}\\p{N}{500}",
    ] {
        let _ = survives(Spec::Regex(hostile.to_owned()));
    }
    for invalid in [
        "(",
        "a{2,1}",
        "[z-a]",
        "a**b(",
        "\\",
        "(?=a)b",
        "\\1",
        "[^\\s\\S]",
        "a\\b",
    ] {
        let error = survives(Spec::Regex(invalid.to_owned())).expect_err(invalid);
        assert!(
            error.to_string().starts_with("the regular expression"),
            "{error}"
        );
    }
    let nested = "(".repeat(60_000) + &")".repeat(60_000);
    assert!(matches!(
        survives(Spec::Regex(nested)),
        Err(StructuredError::TooLarge { .. })
    ));
    let nested = "(".repeat(1_000) + "a" + &")".repeat(1_000);
    assert!(matches!(
        survives(Spec::Regex(nested)),
        Err(StructuredError::TooDeep { .. })
    ));
    let optional = survives(Spec::Regex("a?".repeat(2_000))).unwrap_err();
    assert!(optional.to_string().contains("too complex"), "{optional}");
    let _ = survives(Spec::Regex("a|".repeat(2_000) + "b"));
    let _ = survives(Spec::Regex("a".to_owned() + &"*".repeat(4_000)));
    survives(Spec::Regex("[a-z]+".to_owned())).unwrap();
}

#[test]
fn grammars() {
    for invalid in [
        "",
        "start: missing",
        "start: \"a",
        "nothing here",
        "start: start",
        "start: /(/",
    ] {
        survives(Spec::Grammar(invalid.to_owned())).expect_err(invalid);
    }
    let rules = chain(2_000, |i| format!("r{i}: r{}\n", i + 1));
    let _ = survives(Spec::Grammar(format!("start: r0\n{rules}r2000: \"a\"\n")));
    let tokens = chain(2_000, |i| format!("T{i}: T{}\n", i + 1));
    let _ = survives(Spec::Grammar(format!("start: T0\n{tokens}T2000: \"a\"\n")));
    let _ = survives(Spec::Grammar(format!(
        "start: A\nA: {}\"a\"",
        "~".repeat(32_000)
    )));
    let _ = survives(Spec::Grammar(format!(
        "start: {}\"a\"{}",
        "(".repeat(190),
        ")".repeat(190)
    )));
    for optional in [
        format!("start: A\nA: {}", "\"a\"? ".repeat(5_000)),
        format!("start: {}", "\"a\"? ".repeat(5_000)),
        format!("start: {}", "\"a\"* ".repeat(5_000)),
    ] {
        let error = survives(Spec::Grammar(optional)).unwrap_err();
        assert!(error.to_string().contains("too complex"), "{error}");
    }
    for invalid in [
        "root ::= missing",
        "other ::= \"a\"",
        "root ::= \"a",
        "root ::= [a",
        "root ::= a : b",
        "root ::= \"\\q\"",
        "root ::= \"a\"{x}",
        "root ::= \"a\"\nroot ::= \"b\"",
        "root ::= (\"a\"",
        "root ::= root",
        "root ::= [z-a]",
        "root ::= \"\\uD800\"",
    ] {
        survives(Spec::Grammar(invalid.to_owned())).expect_err(invalid);
    }
    let rules = chain(1_500, |i| format!("r{i} ::= r{}\n", i + 1));
    let _ = survives(Spec::Grammar(format!(
        "root ::= r0\n{rules}r1500 ::= \"a\"\n"
    )));
    for (define, name) in [(":", "T"), (" ::=", "t")] {
        let start = if name == "T" {
            "start: T0"
        } else {
            "root ::= t0"
        };
        let doubled = chain(40, |i| {
            format!("{name}{i}{define} {name}{0} {name}{0}\n", i + 1)
        });
        let _ = survives(Spec::Grammar(format!(
            "{start}\n{doubled}{name}40{define} \"a\"\n"
        )));
    }
    let doubled = chain(40, |i| format!("r{i}: r{0} r{0}\n", i + 1));
    let _ = survives(Spec::Grammar(format!("start: r0\n{doubled}r40: \"a\"\n")));
    let _ = survives(Spec::Grammar(
        "start: a*\na: b*\nb: \"x\"* | start".to_owned(),
    ));
    let _ = survives(Spec::Grammar("start: \"a\"{1000000000}".to_owned()));
    let _ = survives(Spec::Grammar(
        "start: x{100000}\nx: \"a\" | \"b\" x".to_owned(),
    ));
    assert!(matches!(
        survives(Spec::Grammar("a".repeat(1 << 20))),
        Err(StructuredError::TooLarge { .. })
    ));
    survives(Spec::Grammar("start: \"a\"".to_owned())).unwrap();
    // An empty rule is the empty answer.
    survives(Spec::Grammar("start:".to_owned())).unwrap();
}

#[test]
fn special_tokens_cannot_be_spelled() {
    let vocabulary = tiny();
    let bytes = "%llguidance {\"allow_invalid_utf8\": true}\nstart: /(?s-u:.)*/";
    for spec in [
        Spec::Grammar(bytes.to_owned()),
        Spec::Regex("(?s:.*)".to_owned()),
        Spec::Choice(vec!["<|begin|>".to_owned()]),
    ] {
        let Ok(grammar) = vocabulary.compile(spec) else {
            continue;
        };
        let allowed = allowed_in(vocabulary, grammar.constraint().as_mut());
        assert!(!allowed.is_empty());
        let special = |id: &&u32| vocabulary.tokenizer.is_special(**id) && **id != vocabulary.eos;
        assert_eq!(allowed.iter().find(special), None);
    }
}

#[test]
fn choices() {
    assert!(survives(Spec::Choice(vec![])).is_err());
    let many = |count: usize| (0..count).map(|i| format!("choice {i}")).collect();
    survives(Spec::Choice(many(10_000))).unwrap();
    survives(Spec::Choice(vec!["a".to_owned(), String::new()])).unwrap();
    assert!(matches!(
        survives(Spec::Choice(many(20_000))),
        Err(StructuredError::TooMany { .. })
    ));
    let long = survives(Spec::Choice(vec!["x".repeat(1 << 20)]));
    assert!(matches!(long, Err(StructuredError::TooLarge { .. })));
    survives(Spec::Choice(vec!["x".repeat(20_000)])).unwrap();
    survives(Spec::Choice(vec![String::new()])).unwrap();
}

#[test]
fn tools() {
    let wrong = [
        json!([]),
        json!([{"type": "function"}]),
        json!([{"type": "code", "function": {"name": "f"}}]),
        json!([{"type": "function", "function": {"name": ""}}]),
        json!([{"type": "function", "function": {"name": "a\"b"}}]),
        json!([{"type": "function", "function": {"name": "f", "parameters": 5}}]),
        json!([{"type": "function", "function": {"name": "f", "parameters": {"type": "string"}}}]),
        json!([{"type": "function", "function": {"name": "f"}}, {"type": "function", "function": {"name": "f"}}]),
    ];
    for tools in wrong {
        Tool::list_from_json(tools.as_array().unwrap()).expect_err(&tools.to_string());
    }
    let hostile = json!([{"type": "function", "function": {"name": "f", "parameters": {"properties":
        {"a": {"type": "string", "pattern": ["not", "text"]}}}}}]);
    let tools = Tool::list_from_json(hostile.as_array().unwrap()).unwrap();
    assert!(ToolChoice::from_json(&json!("sometimes"), &tools).is_err());
    assert!(
        ToolChoice::from_json(
            &json!({"type": "function", "function": {"name": "g"}}),
            &tools
        )
        .is_err()
    );
    for format in ToolFormat::ALL {
        let calls = ToolCalls::forced(format, &tools, &ToolChoice::Required, true).unwrap();
        survives(Spec::ToolCalls(calls)).unwrap_err();
    }
}

#[test]
fn a_deadline_that_is_over_is_an_error_and_the_next_request_is_served() {
    // Threads of its own: it keeps them all busy for a while.
    let vocabulary = Vocabulary::new(tiny().tokenizer.clone());
    let compile = |deadline: Duration, spec: &Spec| {
        let limits = Limits {
            deadline,
            ..Limits::default()
        };
        vocabulary.compiler.compile(spec, &limits)
    };
    let error = compile(Duration::ZERO, &Spec::JsonObject).unwrap_err();
    assert!(matches!(error, StructuredError::TooSlow { .. }), "{error}");
    let properties: serde_json::Map<String, Value> = (0..2_000)
        .map(|i| (format!("p{i}"), json!({"type": "string"})))
        .collect();
    let slow = Spec::JsonSchema(json!({"type": "object", "properties": properties}));
    // More than there are threads: the last ones find none free.
    let mut refused = Vec::new();
    for _ in 0..8 {
        refused.push(compile(Duration::from_millis(5), &slow).unwrap_err());
    }
    assert!(refused.iter().all(|error| {
        matches!(
            error,
            StructuredError::TooSlow { .. } | StructuredError::Busy
        )
    }));
    assert!(refused.contains(&StructuredError::Busy), "{refused:?}");
    vocabulary.compile(Spec::JsonObject).unwrap();
}

/// Mostly schema-like: keywords with values of any kind.
fn any_schema() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,8}".prop_map(Value::from),
        prop::sample::select(vec![
            "object",
            "array",
            "string",
            "integer",
            "number",
            "null",
            "#",
            "#/$defs/a",
            "^a+$"
        ])
        .prop_map(Value::from),
    ];
    let key = prop_oneof![
        9 => prop::sample::select(vec!["type", "properties", "items", "anyOf", "oneOf", "allOf", "enum", "const",
            "required", "additionalProperties", "pattern", "format", "minLength", "maxLength", "minItems", "maxItems",
            "minimum", "maximum", "multipleOf", "$ref", "$defs", "a", "patternProperties", "prefixItems", "x-guidance",
            "minProperties", "maxProperties"]).prop_map(str::to_owned),
        1 => ".{0,6}",
    ];
    leaf.prop_recursive(4, 40, 5, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((key.clone(), inner), 0..5)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn any_json_as_a_schema_is_an_error_or_a_grammar(schema in any_schema()) {
        let _ = survives(Spec::JsonSchema(schema));
    }

    #[test]
    fn any_text_as_a_regex_or_grammar_is_an_error_or_a_grammar(text in "[ -~]{0,30}", rest in "[a-z:|\"/()*+? ]{0,30}") {
        let _ = survives(Spec::Regex(text));
        let _ = survives(Spec::Grammar(format!("start: {rest}")));
    }
}
