//! The routes besides completions.

use crate::client::{receive, send};
use crate::server::{CONTEXT, NAME, Server, Setup};
use mettle_server::AppOptions;
use serde_json::json;

#[test]
fn health_and_version() {
    let server = Server::start();
    for path in ["/health", "/ping"] {
        let response = server.get(path);
        assert_eq!((response.status, response.body.as_str()), (200, ""));
    }
    assert_eq!(
        server.get("/version").json()["version"],
        env!("CARGO_PKG_VERSION")
    );
}

#[test]
fn models_are_listed_under_every_name() {
    let server = Server::with(Setup {
        options: AppOptions {
            model_names: vec![NAME.into(), "short".into()],
            ..AppOptions::new("")
        },
        ..Setup::default()
    });
    let list = server.get("/v1/models").json();
    assert_eq!(list["object"], "list");
    let ids: Vec<_> = list["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|m| &m["id"])
        .collect();
    assert_eq!(ids, [NAME, "short"]);
    assert_eq!(list["data"][1]["max_model_len"], CONTEXT);
    // The slash may come as it is or escaped.
    for path in ["/v1/models/owner/tiny", "/v1/models/owner%2Ftiny"] {
        assert_eq!(server.get(path).json()["id"], NAME);
    }
    assert_eq!(
        server.get("/v1/models/other").error(),
        "404 NotFoundError model: the model `other` does not exist here"
    );
    let named = json!({"model": "short", "prompt": "a", "max_tokens": 1});
    assert_eq!(server.complete(named)["model"], NAME);
}

#[test]
fn other_paths_and_methods_are_refused_in_the_same_form() {
    let server = Server::start();
    assert_eq!(
        server.get("/v2").error(),
        "404 NotFoundError -: there is no route /v2"
    );
    assert_eq!(
        server.get("/v1/completions").error(),
        "405 MethodNotAllowedError -: this route does not answer GET"
    );
}

#[test]
fn both_dialects_tokenize() {
    let server = Server::start();
    let answer = server.post(
        "/tokenize",
        r#"{"prompt": "hi ä", "return_token_strs": true}"#,
    );
    let answer = answer.json();
    let tokens: Vec<u32> = serde_json::from_value(answer["tokens"].clone()).unwrap();
    assert_eq!(server.tokenizer.decode(&tokens, false), "hi ä");
    assert_eq!(answer["count"], tokens.len());
    assert_eq!(answer["max_model_len"], CONTEXT);
    assert_eq!(answer["token_strs"].as_array().unwrap().len(), tokens.len());

    let content = server.post("/tokenize", r#"{"content": "hi ä"}"#).json();
    assert_eq!(content["tokens"], answer["tokens"]);
    let chat = json!({"messages": [{"role": "user", "content": "hi"}]});
    let chat = server.post("/tokenize", &chat.to_string()).json();
    let plain = server
        .post("/tokenize", r#"{"prompt": "user:hi;assistant:"}"#)
        .json();
    assert_eq!(chat["tokens"], plain["tokens"]);

    let text = server.post("/detokenize", &json!({ "tokens": tokens }).to_string());
    assert_eq!(text.json(), json!({"prompt": "hi ä", "content": "hi ä"}));
    assert_eq!(
        server.post("/detokenize", r#"{"tokens": [267]}"#).error(),
        "400 BadRequestError tokens: tokens holds token id 267, the vocabulary ends at 266"
    );
    assert_eq!(
        server.post("/tokenize", "{}").error(),
        "400 BadRequestError prompt: prompt, messages or content is missing"
    );
    let template = json!({"messages": [{}], "chat_template": "x"}).to_string();
    assert_eq!(
        server.post("/tokenize", &template).error(),
        "400 BadRequestError chat_template: chat_template: templates in requests are not accepted"
    );
}

#[test]
fn keys_open_v1_and_only_that() {
    let server = Server::with(Setup {
        options: AppOptions {
            api_keys: vec!["first".into(), "second".into()],
            ..AppOptions::new(NAME)
        },
        ..Setup::default()
    });
    let status = |method: &str, path: &str, headers: &str| {
        receive(send(server.address, method, path, headers, b"")).status
    };
    let models = |headers: &str| status("GET", "/v1/models", headers);
    for right in [
        "Authorization: Bearer first\r\n",
        "authorization: bearer second\r\n",
        "X-Api-Key: second\r\n",
    ] {
        assert_eq!(models(right), 200, "{right}");
    }
    for wrong in [
        "",
        "Authorization: Bearer firs\r\n",
        "Authorization: Bearer firstx\r\n",
        "Authorization: Bearer \r\n",
        "Authorization: Bearer\r\n",
        "Authorization: first\r\n",
        "Authorization: Basic first\r\n",
        "X-Api-Key: third\r\n",
    ] {
        assert_eq!(models(wrong), 401, "{wrong}");
    }
    assert_eq!(status("GET", "/health", ""), 200);
    assert_eq!(status("OPTIONS", "/v1/models", ""), 405);
    assert_eq!(status("GET", "/engine/state", ""), 401);
    assert_eq!(status("GET", "/metrics", ""), 200);
    let refused = server.get("/v1/models");
    assert!(refused.head.contains("www-authenticate: bearer"));
    assert_eq!(
        refused.error(),
        "401 AuthenticationError -: an API key is needed: Authorization: Bearer KEY"
    );
}
