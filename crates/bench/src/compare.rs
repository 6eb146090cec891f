//! Owns the comparison of two records: the numbers that both have, how they relate, and whether their spreads overlap.

use serde_json::{Map, Value};

/// A number that both records have.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The way to it, as `points.concurrency 4.mean_ttft_ms`.
    pub name: String,
    pub a: f64,
    pub b: f64,
    /// For repeated measurements: whether some of one lie between some of the other.
    pub overlaps: Option<bool>,
}

impl Row {
    /// How many times the first the second is; `None` of nothing.
    pub fn ratio(&self) -> Option<f64> {
        (self.a != 0.0).then(|| self.b / self.a)
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Comparison {
    /// In the order of the first record. Numbers that are settings and the same in both are left out.
    pub rows: Vec<Row>,
    /// Texts, settings and machines that differ: name, first, second.
    pub differing: Vec<(String, String, String)>,
    /// Numbers of only one record.
    pub only_in_one: usize,
}

/// Numbers that say what was measured, not how it came out.
const SETTINGS: [&str; 19] = [
    "batch",
    "input_len",
    "output_len",
    "repeats",
    "threads",
    "num_prompts",
    "max_num_seqs",
    "request_rate",
    "max_concurrency",
    "seed",
    "warmup",
    "temperature",
    "weight_bytes",
    "m",
    "n",
    "k",
    "parts",
    "rows",
    "context",
];

/// Texts that differ between any two records.
const INCIDENTAL: [&str; 5] = ["date", "command", "base_url", "name", "failure_messages"];

pub fn compare(a: &Value, b: &Value) -> Comparison {
    let (mut first, mut second) = (Vec::new(), Vec::new());
    flatten("", a, &mut first);
    flatten("", b, &mut second);
    let mut comparison = Comparison::default();
    for (name, value) in &first {
        let Some((_, other)) = second.iter().find(|(n, _)| n == name) else {
            comparison.only_in_one += usize::from(value.number().is_some());
            continue;
        };
        let last = name.rsplit('.').next().unwrap_or(name);
        let is_setting = SETTINGS.contains(&last);
        match (value.number(), other.number()) {
            (Some(a), Some(b)) if !is_setting => comparison.rows.push(Row {
                name: name.clone(),
                a,
                b,
                overlaps: value.overlaps(other),
            }),
            _ if INCIDENTAL
                .iter()
                .any(|i| name.split('.').any(|part| part == *i)) => {}
            _ if value.text() != other.text() => {
                let (a, b) = (value.text(), other.text());
                comparison.differing.push((name.clone(), a, b));
            }
            _ => {}
        }
    }
    let is_new = |(name, value): &&(String, Leaf)| {
        value.number().is_some() && !first.iter().any(|(n, _)| n == name)
    };
    comparison.only_in_one += second.iter().filter(is_new).count();
    comparison
}

/// A value that a record ends in.
#[derive(Clone, Debug)]
enum Leaf {
    Number(f64),
    /// Best, median, worst.
    Spread([f64; 3]),
    Text(String),
}

impl Leaf {
    fn number(&self) -> Option<f64> {
        match self {
            Leaf::Number(number) => Some(*number),
            Leaf::Spread([_, median, _]) => Some(*median),
            Leaf::Text(_) => None,
        }
    }

    fn text(&self) -> String {
        match self {
            Leaf::Number(number) => number.to_string(),
            Leaf::Spread([_, median, _]) => median.to_string(),
            Leaf::Text(text) => text.clone(),
        }
    }

    fn overlaps(&self, other: &Leaf) -> Option<bool> {
        let (Leaf::Spread(a), Leaf::Spread(b)) = (self, other) else {
            return None;
        };
        let ends = |s: &[f64; 3]| (s[0].min(s[2]), s[0].max(s[2]));
        let ((a_low, a_high), (b_low, b_high)) = (ends(a), ends(b));
        // Single measurements have no spread, and nothing says how far apart is far.
        let is_spread = a_low < a_high || b_low < b_high;
        is_spread.then_some(a_low <= b_high && b_low <= a_high)
    }
}

fn flatten(name: &str, value: &Value, leaves: &mut Vec<(String, Leaf)>) {
    let below = |part: &str| match name.is_empty() {
        true => part.to_owned(),
        false => format!("{name}.{part}"),
    };
    match value {
        Value::Object(fields) => match spread(fields) {
            Some(spread) => leaves.push((name.to_owned(), Leaf::Spread(spread))),
            None => {
                for (field, value) in fields {
                    flatten(&below(field), value, leaves);
                }
            }
        },
        // Measurements of single requests are no figures to compare; the parts of a record are, by their names.
        Value::Array(items) => {
            for (number, item) in items.iter().enumerate().filter(|(_, i)| i.is_object()) {
                if name.ends_with("errors") || name.ends_with("server_samples") {
                    break;
                }
                flatten(&below(&item_name(item, number)), item, leaves);
            }
        }
        Value::Number(number) => {
            let number = number.as_f64().unwrap_or(f64::NAN);
            leaves.push((name.to_owned(), Leaf::Number(number)));
        }
        Value::String(text) => leaves.push((name.to_owned(), Leaf::Text(text.clone()))),
        Value::Bool(flag) => leaves.push((name.to_owned(), Leaf::Text(flag.to_string()))),
        Value::Null => {}
    }
}

/// What a part of a list is known by: its name, or else its kernel and shape, or else its place.
fn item_name(item: &Value, number: usize) -> String {
    let text = |field: &str| item.get(field).and_then(Value::as_str);
    if let Some(name) = text("name") {
        return match item.get("rows") {
            Some(rows) => format!("{name} x{rows}"),
            None => name.to_owned(),
        };
    }
    match text("kernel") {
        Some(kernel) => {
            let sizes = ["m", "n", "k"].map(|f| item.get(f).map(Value::to_string));
            let sizes: Vec<String> = sizes.into_iter().flatten().collect();
            format!("{kernel} {}", sizes.join("x")).trim().to_owned()
        }
        None => number.to_string(),
    }
}

fn spread(fields: &Map<String, Value>) -> Option<[f64; 3]> {
    let number = |name: &str| fields.get(name)?.as_f64();
    let spread = [number("best")?, number("median")?, number("worst")?];
    (fields.len() == 3).then_some(spread)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn spread_of(best: f64, median: f64, worst: f64) -> Value {
        json!({ "best": best, "median": median, "worst": worst })
    }

    #[test]
    fn common_numbers_are_compared_and_settings_are_not() {
        let a = json!({
            "bench": "latency", "model": "x", "batch": 1, "threads": 2, "date": "then",
            "decode": spread_of(110.0, 100.0, 90.0), "prefill": spread_of(50.0, 40.0, 30.0),
            "once": spread_of(1.0, 1.0, 1.0), "load_seconds": 0.5, "preemptions": 0, "gone": 1.0,
        });
        let b = json!({
            "bench": "latency", "model": "y", "batch": 1, "threads": 4, "date": "now",
            "decode": spread_of(210.0, 200.0, 111.0), "prefill": spread_of(60.0, 44.0, 42.0),
            "once": spread_of(3.0, 3.0, 3.0), "load_seconds": 0.25, "preemptions": 2, "new": 2.0,
        });
        let found = compare(&a, &b);
        let rows: Vec<_> = found
            .rows
            .iter()
            .map(|row| (row.name.as_str(), row.ratio(), row.overlaps))
            .collect();
        assert_eq!(
            rows,
            [
                ("decode", Some(2.0), Some(false)),
                ("prefill", Some(1.1), Some(true)),
                ("once", Some(3.0), None),
                ("load_seconds", Some(0.5), None),
                ("preemptions", None, None),
            ]
        );
        let differing: Vec<&str> = found.differing.iter().map(|d| d.0.as_str()).collect();
        assert_eq!(differing, ["model", "threads"]);
        assert_eq!(found.only_in_one, 2);
    }

    #[test]
    fn ops_are_found_by_their_names_and_rows() {
        let op =
            |rows: usize, seconds: f64| json!({ "name": "gemm", "rows": rows, "seconds": seconds });
        let a = json!([op(8, 1.0), op(16, 2.0)]);
        let found = compare(&a, &json!([op(16, 6.0), op(8, 4.0)]));
        let rows: Vec<_> = found
            .rows
            .iter()
            .map(|r| (r.name.as_str(), r.ratio()))
            .collect();
        assert_eq!(
            rows,
            [
                ("gemm x8.seconds", Some(4.0)),
                ("gemm x16.seconds", Some(3.0))
            ]
        );
    }

    #[test]
    fn points_are_found_by_their_names_and_lists_of_requests_are_left_out() {
        let record = |speed: f64| {
            json!({ "points": [
                { "name": "concurrency 1", "output_throughput": 1.0, "ttfts": [0.1, 0.2], "errors": [{ "kind": "x" }] },
                { "name": "concurrency 2", "output_throughput": speed, "ttfts": [0.1] },
            ]})
        };
        let mut other = record(6.0);
        other["points"].as_array_mut().unwrap().remove(0);
        let found = compare(&record(3.0), &other);
        assert_eq!(found.rows.len(), 1);
        assert_eq!(found.rows[0].name, "points.concurrency 2.output_throughput");
        assert_eq!(found.rows[0].ratio(), Some(2.0));
        assert_eq!(found.only_in_one, 1);
    }
}
