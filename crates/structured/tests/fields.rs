//! The request fields that ask for a form are read as OpenAI and vLLM mean them.

use mettle_structured::Spec;
use serde_json::{Value, json};

fn shown(spec: Option<Spec>) -> String {
    format!("{:?}", spec)
}

#[test]
fn response_formats() {
    let read = |value: Value| Spec::from_response_format(&value);
    assert!(read(json!({"type": "text"})).unwrap().is_none());
    let object = read(json!({"type": "json_object"})).unwrap();
    assert!(matches!(object, Some(Spec::JsonObject)));
    let schema = json!({"type": "json_schema", "json_schema": {"name": "n", "strict": true, "schema": {"type": "null"}}});
    let Some(Spec::JsonSchema(schema)) = read(schema).unwrap() else {
        panic!("no schema");
    };
    assert_eq!(schema, json!({"type": "null"}));
    let tag = json!({"type": "structural_tag", "triggers": ["<"], "structures": [{"begin": "<a>", "schema": {}, "end": ""}]});
    assert!(matches!(read(tag).unwrap(), Some(Spec::StructuralTag(_))));
    let newer = json!({"type": "structural_tag", "format": {"type": "triggered_tags", "triggers": ["<"], "tags": [
        {"begin": "<a>", "content": {"type": "json_schema", "json_schema": {}}, "end": ""}]}});
    assert!(matches!(read(newer).unwrap(), Some(Spec::StructuralTag(_))));
    for wrong in [
        json!({}),
        json!("json_object"),
        json!({"type": "yaml"}),
        json!({"type": "json_schema"}),
        json!({"type": "json_schema", "json_schema": {"name": "n"}}),
        json!({"type": "structural_tag"}),
        json!({"type": "structural_tag", "format": {"type": "sequence"}}),
    ] {
        read(wrong.clone()).expect_err(&wrong.to_string());
    }
}

#[test]
fn structured_outputs() {
    let read = |value: Value| Spec::from_structured_outputs(&value).map(shown);
    for (value, spec) in [
        (json!({}), "None"),
        (json!({"json": null, "json_object": false}), "None"),
        (
            json!({"json_object": true, "whitespace_pattern": null}),
            "JsonObject",
        ),
        (json!({"json": {"type": "null"}}), "JsonSchema"),
        (
            json!({"json": "{\"type\": \"null\"}"}),
            "{\"type\": String(\"null\")}",
        ),
        (json!({"regex": "a+"}), "Regex(\"a+\")"),
        (json!({"choice": ["a", "b"]}), "Choice([\"a\", \"b\"])"),
        (json!({"grammar": "root ::= \"a\""}), "Grammar"),
    ] {
        let found = read(value.clone()).unwrap();
        assert!(found.contains(spec), "{value}: {found}");
    }
    for wrong in [
        json!([]),
        json!({"json": "{"}),
        json!({"regex": 5}),
        json!({"choice": "a"}),
        json!({"choice": ["a", 5]}),
        json!({"grammar": {}}),
        json!({"regex": "a", "choice": ["a"]}),
        json!({"structural_tag": {}}),
    ] {
        read(wrong.clone()).expect_err(&wrong.to_string());
    }
}
