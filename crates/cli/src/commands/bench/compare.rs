//! Owns `mettle bench compare`: two records side by side.

use crate::args::BenchCompareArgs;
use anyhow::{Context, bail};
use mettle_bench::compare::{Comparison, compare};
use serde_json::Value;
use std::io::{self, Write};
use std::path::Path;

pub fn run(args: BenchCompareArgs) -> anyhow::Result<()> {
    let (a, b) = (read(&args.a)?, read(&args.b)?);
    let found = compare(&a, &b);
    if found.rows.is_empty() {
        bail!(
            "{} and {} have no number in common",
            args.a.display(),
            args.b.display()
        );
    }
    match args.json {
        true => print_json(&found)?,
        false => print(&found, &args.filter)?,
    }
    Ok(())
}

/// One JSON value, or several after one another, which become a list.
fn read(file: &Path) -> anyhow::Result<Value> {
    let text =
        std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    let values: Result<Vec<Value>, _> = serde_json::Deserializer::from_str(&text)
        .into_iter()
        .collect();
    let mut values = values.with_context(|| format!("{} is no record", file.display()))?;
    Ok(match values.len() {
        0 => bail!("{} is empty", file.display()),
        1 => values.swap_remove(0),
        _ => Value::Array(values),
    })
}

fn print(found: &Comparison, filter: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    for (name, a, b) in &found.differing {
        writeln!(out, "differs   {name}: {a} | {b}")?;
    }
    let rows = found.rows.iter().filter(|row| row.name.contains(filter));
    let rows: Vec<_> = rows.collect();
    let width = rows.iter().map(|row| row.name.chars().count()).max();
    let width = width.unwrap_or(0);
    writeln!(
        out,
        "{:<width$} {:>14} {:>14} {:>8}  spreads",
        "", "A", "B", "B/A"
    )?;
    for row in rows {
        let spreads = match row.overlaps {
            None => "",
            Some(true) => "overlap",
            Some(false) => "apart",
        };
        let ratio = row.ratio().map_or("-".to_owned(), |r| format!("{r:.3}"));
        let line = format!(
            "{:<width$} {:>14} {:>14} {ratio:>8}  {spreads}",
            row.name,
            number(row.a),
            number(row.b)
        );
        writeln!(out, "{}", line.trim_end())?;
    }
    if found.only_in_one > 0 {
        writeln!(out, "{} numbers are in one record only", found.only_in_one)?;
    }
    Ok(())
}

/// As many digits as say something.
fn number(value: f64) -> String {
    match value.abs() {
        v if v >= 1e5 || v == 0.0 => format!("{value:.0}"),
        v if v >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}

fn print_json(found: &Comparison) -> io::Result<()> {
    let rows: Vec<Value> = found
        .rows
        .iter()
        .map(|row| {
            serde_json::json!({
                "name": row.name, "a": row.a, "b": row.b, "ratio": row.ratio(), "overlaps": row.overlaps,
            })
        })
        .collect();
    let differing: Vec<Value> = found
        .differing
        .iter()
        .map(|(name, a, b)| serde_json::json!({ "name": name, "a": a, "b": b }))
        .collect();
    let record = serde_json::json!({
        "rows": rows, "differing": differing, "only_in_one": found.only_in_one,
    });
    writeln!(io::stdout(), "{record}")
}
