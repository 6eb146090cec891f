//! The web page's files, where there are any.

use crate::client::{receive, send};
use crate::server::{Server, Setup, options};
use mettle_server::{AppOptions, Asset};

fn file(path: &str) -> Option<Asset> {
    (path == "/").then_some(Asset {
        bytes: b"<!doctype html>",
        content_type: "text/html; charset=utf-8",
        etag: "\"1\"",
        content_security_policy: "default-src 'self'",
    })
}

#[test]
fn files_are_served_with_what_browsers_need() {
    let server = Server::with(Setup {
        options: AppOptions {
            page: Some(file),
            api_keys: vec!["key".into()],
            ..options()
        },
        ..Setup::default()
    });
    // The page itself is for everybody: it asks for the key.
    let response = server.get("/");
    assert_eq!(
        (response.status, response.body.as_str()),
        (200, "<!doctype html>")
    );
    for header in [
        "content-type: text/html; charset=utf-8",
        "etag: \"1\"",
        "content-security-policy: default-src 'self'",
        "x-content-type-options: nosniff",
    ] {
        assert!(response.head.contains(header), "{header}: {response:?}");
    }
    let again = receive(send(
        server.address,
        "GET",
        "/",
        "If-None-Match: \"0\", \"1\"\r\n",
        b"",
    ));
    assert_eq!((again.status, again.body.as_str()), (304, ""));
    assert_eq!(server.post("/", "{}").status, 405);
    assert_eq!(server.get("/other.js").status, 404);
}

#[test]
fn without_a_page_there_is_nothing() {
    assert_eq!(
        Server::start().get("/").error(),
        "404 NotFoundError -: there is no route /"
    );
}
