//! The description of the API: complete, consistent, and true.

use crate::server::Server;
use serde_json::{Value, json};

fn document(server: &Server) -> Value {
    server.get("/openapi.json").json()
}

/// The types that names of an object are said to have.
fn name_types(value: &Value, found: &mut Vec<Value>) {
    match value {
        Value::Object(object) => {
            found.extend(
                object
                    .get("propertyNames")
                    .map(|names| names["type"].clone()),
            );
            object.values().for_each(|value| name_types(value, found));
        }
        Value::Array(items) => items.iter().for_each(|item| name_types(item, found)),
        _ => {}
    }
}

#[test]
fn names_in_objects_are_strings() {
    let mut found = Vec::new();
    name_types(&document(&Server::start()), &mut found);
    assert!(found.len() >= 2, "of prompt_logprobs: {found:?}");
    assert!(found.iter().all(|name| name == "string"), "{found:?}");
}

fn references(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(object) => {
            for (key, value) in object {
                match value.as_str().filter(|_| key == "$ref") {
                    Some(target) => found.push(target.to_owned()),
                    None => references(value, found),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| references(item, found)),
        _ => {}
    }
}

#[test]
fn every_reference_leads_somewhere_and_every_route_is_described() {
    let document = document(&Server::start());
    assert!(document["openapi"].as_str().unwrap().starts_with("3."));
    assert!(document["info"]["title"].is_string() && document["info"]["version"].is_string());
    let mut found = Vec::new();
    references(&document, &mut found);
    assert!(found.len() > 40);
    for target in found {
        let pointer = target.strip_prefix('#').expect("inside the document");
        assert!(document.pointer(pointer).is_some(), "{target}");
    }
    let mut ids = Vec::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            assert!(
                ["get", "post"].contains(&method.as_str()),
                "{path} {method}"
            );
            assert!(
                operation["responses"]["200"]["description"].is_string(),
                "{path}"
            );
            // A schema would be taken for that of each event.
            let answers = &operation["responses"]["200"]["content"];
            let events = answers.get("text/event-stream");
            assert_eq!(events.cloned().unwrap_or(json!({})), json!({}), "{path}");
            ids.push(operation["operationId"].as_str().unwrap().to_owned());
        }
    }
    ids.sort_unstable();
    let count = ids.len();
    ids.dedup();
    assert_eq!(ids.len(), count, "every operation has an id of its own");
}

#[test]
fn every_described_route_is_there() {
    let server = Server::start();
    for (path, methods) in document(&server)["paths"].as_object().unwrap() {
        let path = path.replace("{id}", crate::server::NAME);
        for method in methods.as_object().unwrap().keys() {
            let status = match method.as_str() {
                "get" => server.get(&path).status,
                _ => server.post(&path, "{}").status,
            };
            let expected: &[u16] = match method.as_str() {
                "get" => &[200],
                _ => &[200, 400],
            };
            assert!(expected.contains(&status), "{method} {path}: {status}");
        }
    }
}

/// All properties of a type, those of its parts included.
fn properties(document: &Value, schema: &Value) -> Vec<String> {
    if let Some(target) = schema["$ref"].as_str() {
        return properties(
            document,
            &document[target.trim_start_matches("#/components/schemas/")],
        );
    }
    let mut names: Vec<String> = schema["properties"]
        .as_object()
        .map(|p| p.keys().cloned().collect())
        .unwrap_or_default();
    for part in schema["allOf"].as_array().into_iter().flatten() {
        names.extend(properties(document, part));
    }
    names
}

/// A value of a type that no field has is refused by every field's own name: none is described and not read.
#[test]
fn every_described_field_is_read() {
    let server = Server::start();
    let document = document(&server);
    let schemas = &document["components"]["schemas"];
    for (path, schema, valid) in [
        (
            "/v1/completions",
            "CompletionRequest",
            json!({"prompt": "a"}),
        ),
        (
            "/v1/chat/completions",
            "ChatRequest",
            json!({"messages": [{"role": "user", "content": "a"}]}),
        ),
        (
            "/v1/messages",
            "MessagesRequest",
            json!({"messages": [{"role": "user", "content": "a"}], "max_tokens": 1}),
        ),
        ("/v1/responses", "ResponsesRequest", json!({"input": "a"})),
        ("/v1/embeddings", "EmbeddingRequest", json!({"input": "a"})),
        ("/detokenize", "DetokenizeRequest", json!({"tokens": [1]})),
    ] {
        let names = properties(schemas, &schemas[schema]);
        assert!(names.len() >= 2, "{schema}");
        for name in names {
            let mut body = valid.clone();
            body[&name] = json!([[[true]]]);
            let response = server.post(path, &body.to_string());
            assert_eq!(response.status, 400, "{path} {name}: {response:?}");
            assert_eq!(response.json()["error"]["param"], name.as_str(), "{path}");
        }
    }
}
