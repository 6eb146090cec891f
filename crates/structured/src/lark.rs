//! Owns writing of grammars in the grammar library's Lark dialect.

use serde_json::Value;

/// `text` as a literal.
pub(crate) fn literal(text: &str) -> String {
    Value::from(text).to_string()
}

/// A place where JSON of this schema stands.
pub(crate) fn json(schema: &Value) -> String {
    format!("%json {schema}")
}

/// One token, by its id: the only way to a special token.
pub(crate) fn token(id: u32) -> String {
    format!("<[{id}]>")
}
