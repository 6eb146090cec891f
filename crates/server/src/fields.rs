//! Owns the fields of a request's JSON object, each parsed when it is asked for, so that an error names its field.
//! Fields that nobody asks for are never built in memory.

use crate::error::ApiError;
use serde::Deserialize;
use serde::de::{DeserializeOwned, MapAccess, Visitor};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::fmt;

pub struct Fields<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'a> Fields<'a> {
    pub fn parse(body: &'a [u8]) -> Result<Fields<'a>, ApiError> {
        serde_json::from_slice(body).map_err(|error| ApiError::BadRequest {
            message: format!("the body is not a JSON object: {error}"),
            param: None,
        })
    }

    /// A field's value; `null` counts as absent. `expected` ends the sentence "NAME must be ...".
    pub fn get<T: DeserializeOwned>(
        &self,
        name: &str,
        expected: &str,
    ) -> Result<Option<T>, ApiError> {
        let Some((_, raw)) = self.0.iter().find(|(known, _)| known == name) else {
            return Ok(None);
        };
        serde_json::from_str(raw.get()).map_err(|_| {
            ApiError::bad(
                name,
                format!("{name} must be {expected}, found {}", shown(raw)),
            )
        })
    }

    /// Whether a field says anything: clients send empty values for what they do not use.
    pub fn says_something(&self, name: &str) -> bool {
        const NOTHING: [&str; 5] = ["null", "false", "[]", "{}", "\"\""];
        let says = |raw: &RawValue| !NOTHING.contains(&raw.get());
        self.0.iter().any(|(known, raw)| known == name && says(raw))
    }

    pub fn flag(&self, name: &str, default: bool) -> Result<bool, ApiError> {
        Ok(self.get(name, "true or false")?.unwrap_or(default))
    }

    /// A number; one that is too large for an f32 becomes infinite, which every range refuses.
    pub fn number(&self, name: &str) -> Result<Option<f32>, ApiError> {
        Ok(self.get::<f64>(name, "a number")?.map(|n| n as f32))
    }

    /// An integer, also one written as `16.0`: some languages know no other numbers.
    pub fn integer(&self, name: &str) -> Result<Option<i64>, ApiError> {
        /// Up to here every integer is an f64.
        const EXACT: f64 = (1_u64 << 53) as f64;
        let integer = self.get(name, "an integer");
        match self.get::<f64>(name, "a number") {
            Ok(Some(n)) if integer.is_err() && n.fract() == 0.0 && n.abs() < EXACT => {
                Ok(Some(n as i64))
            }
            _ => integer,
        }
    }

    /// A string or a list of strings.
    pub fn texts(&self, name: &str) -> Result<Vec<String>, ApiError> {
        let expected = "a string or a list of strings";
        if let Ok(one) = self.get::<String>(name, expected) {
            return Ok(one.into_iter().collect());
        }
        Ok(self.get(name, expected)?.unwrap_or_default())
    }

    pub fn count(&self, name: &str) -> Result<Option<usize>, ApiError> {
        match self.integer(name)? {
            None => Ok(None),
            Some(count) => usize::try_from(count).map(Some).map_err(|_| {
                ApiError::bad(name, format!("{name} is {count}, it must not be negative"))
            }),
        }
    }
}

/// The beginning of a value: an error is no place for a page.
fn shown(raw: &RawValue) -> String {
    const LONGEST: usize = 40;
    let text = raw.get();
    match text.char_indices().nth(LONGEST) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}...", &text[..end]),
    }
}

impl<'de> Deserialize<'de> for Fields<'de> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct FieldsVisitor;
        impl<'de> Visitor<'de> for FieldsVisitor {
            type Value = Fields<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields<'de>, A::Error> {
                /// More fields than any request has; keeps the search for duplicates short.
                const MOST: usize = 256;
                let mut fields: Vec<(Cow<'de, str>, &'de RawValue)> = Vec::new();
                while let Some(Name(name)) = map.next_key()? {
                    if fields.iter().any(|(known, _)| *known == name) {
                        return Err(serde::de::Error::custom("a field is there twice"));
                    }
                    if fields.len() == MOST {
                        return Err(serde::de::Error::custom("there are more than 256 fields"));
                    }
                    fields.push((name, map.next_value()?));
                }
                Ok(Fields(fields))
            }
        }
        deserializer.deserialize_map(FieldsVisitor)
    }
}

/// A key, borrowed from the body where it has no escapes.
#[derive(Deserialize)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};

    fn check(body: &str, expected: Expect) {
        let fields = match Fields::parse(body.as_bytes()) {
            Ok(fields) => fields,
            Err(error) => return expected.assert_eq(&error.to_string()),
        };
        let all = (|| {
            Ok::<_, ApiError>(format!(
                "{:?} {:?} {:?} {}",
                fields.number("number")?,
                fields.integer("integer")?,
                fields.count("count")?,
                fields.flag("flag", true)?
            ))
        })();
        expected.assert_eq(&all.unwrap_or_else(|error| error.to_string()));
    }

    #[test]
    fn fields_are_read_by_name_and_errors_name_them() {
        check("{}", expect![[r#"None None None true"#]]);
        check(
            r#"{"number": 1, "integer": -2, "count": null, "fl\u0061g": false, "other": [[["#,
            expect!["the body is not a JSON object: EOF while parsing a list at line 1 column 76"],
        );
        check(
            r#"{"number": 1, "integer": -2, "count": null, "fl\u0061g": false, "other": [[[]]]}"#,
            expect![[r#"Some(1.0) Some(-2) None false"#]],
        );
        check(
            r#"{"integer": 16.0, "count": 2e3}"#,
            expect![[r#"None Some(16) Some(2000) true"#]],
        );
        check(
            r#"{"integer": 1.5}"#,
            expect![[r#"integer must be an integer, found 1.5"#]],
        );
        check(
            r#"{"number": "hot"}"#,
            expect![[r#"number must be a number, found "hot""#]],
        );
        check(
            r#"{"number": 1e300}"#,
            expect![[r#"Some(inf) None None true"#]],
        );
        check(
            r#"{"number": 1e400}"#,
            expect![[r#"number must be a number, found 1e400"#]],
        );
        check(
            r#"{"integer": 9223372036854775808}"#,
            expect![[r#"integer must be an integer, found 9223372036854775808"#]],
        );
        check(
            r#"{"count": -1}"#,
            expect![[r#"count is -1, it must not be negative"#]],
        );
        check(
            r#"{"flag": true, "flag": false}"#,
            expect![[
                r#"the body is not a JSON object: a field is there twice at line 1 column 21"#
            ]],
        );
        check(
            "[1]",
            expect![[
                r#"the body is not a JSON object: invalid type: sequence, expected an object at line 1 column 0"#
            ]],
        );
    }
}
