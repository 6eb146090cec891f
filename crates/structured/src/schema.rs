//! Owns making a request's JSON schema ready for the grammar library: its size, and what the library is told with it.

use crate::limits::SCHEMA_DEPTH;
use crate::spec::check_size;
use crate::{Limits, StructuredError};
use serde_json::{Value, json};

pub(crate) const WHAT: &str = "the JSON schema";

/// One space, or a line break and its indentation. Models under a grammar that allows any whitespace are known to
/// write it for ever.
const WHITESPACE: &str = "(?: |\\r?\\n[ \\t]{0,40})";

/// What the schemas of one request may still use.
pub(crate) struct Budget {
    used: usize,
    limit: usize,
}

impl Budget {
    pub fn new(limits: &Limits) -> Budget {
        Budget {
            used: 0,
            limit: limits.schema_bytes,
        }
    }

    pub fn prepare(&mut self, schema: &Value) -> Result<Value, StructuredError> {
        check_depth(schema)?;
        self.used += schema.to_string().len();
        check_size(WHAT, self.used, self.limit)?;
        let mut prepared = match schema {
            Value::Bool(true) => json!({}),
            Value::Object(_) => schema.clone(),
            _ => {
                let reason = "it has to be an object";
                return Err(StructuredError::invalid(WHAT, reason));
            }
        };
        inline_alternatives(&mut prepared, schema);
        // Replaces what the request itself may have written there: it could ask the library to be lenient.
        prepared["x-guidance"] = json!({"whitespace_pattern": WHITESPACE});
        // Inlining may have made it larger.
        check_size(WHAT, prepared.to_string().len(), 4 * self.limit)?;
        Ok(prepared)
    }
}

/// Without recursion, since it guards others against too much of it.
fn check_depth(schema: &Value) -> Result<(), StructuredError> {
    let mut left = vec![(schema, 1)];
    while let Some((value, depth)) = left.pop() {
        if depth > SCHEMA_DEPTH {
            return Err(StructuredError::TooDeep {
                what: WHAT,
                limit: SCHEMA_DEPTH,
            });
        }
        match value {
            Value::Array(values) => left.extend(values.iter().map(|value| (value, depth + 1))),
            Value::Object(values) => left.extend(values.values().map(|value| (value, depth + 1))),
            _ => {}
        }
    }
    Ok(())
}

/// Puts what `$ref`s in a `oneOf` stand for in their place. `oneOf` is accepted where its alternatives exclude each
/// other, which the library sees only in what is written out; generators of schemas refer to them by name.
fn inline_alternatives(value: &mut Value, root: &Value) {
    match value {
        Value::Array(values) => values
            .iter_mut()
            .for_each(|value| inline_alternatives(value, root)),
        Value::Object(values) => {
            for (key, value) in values.iter_mut() {
                inline_alternatives(value, root);
                if key == "oneOf"
                    && let Some(alternatives) = value.as_array_mut()
                {
                    for alternative in alternatives {
                        if let Some(target) = referred(alternative, root) {
                            *alternative = target.clone();
                        }
                    }
                }
            }
        }
        _ => {}
    }
}

fn referred<'a>(alternative: &Value, root: &'a Value) -> Option<&'a Value> {
    let fields = alternative.as_object().filter(|fields| fields.len() == 1)?;
    let pointer = fields.get("$ref")?.as_str()?.strip_prefix('#')?;
    root.pointer(pointer).filter(|target| target.is_object())
}
