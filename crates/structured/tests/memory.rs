//! What hostile requests cost in memory. One test, so that nothing else runs in its process.
#![cfg(target_os = "linux")]

mod common;

use mettle_engine::TokenMask;
use mettle_structured::Spec;
use serde_json::json;

/// The most that was ever resident, in MB.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux tells");
    let line = status.lines().find(|line| line.starts_with("VmHWM:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
    kilobytes.expect("a number") / 1024
}

/// 200 MB is what the worst known grammar takes before it is refused; three in a row must not take three times that.
const MOST: u64 = 300;

#[test]
fn hostile_requests_take_bounded_memory() {
    let vocabulary = common::real();
    let before = peak();
    for _ in 0..3 {
        for spec in [
            Spec::Grammar(format!("start: A\nA: {}", "\"a\"? ".repeat(5_000))),
            Spec::Grammar(format!("start: {}", "\"a\"* ".repeat(5_000))),
            Spec::Regex("a?".repeat(2_000)),
            Spec::Regex("(a{1000}){1000}".to_owned()),
            Spec::Regex("(?:.*a.{20}|.*b.{25}|.*c.{30})*".to_owned()),
            Spec::Regex("\\p{L}{500}\\p{N}{500}".to_owned()),
            Spec::JsonSchema(json!({"type": "string", "pattern": "a?".repeat(100_000)})),
            Spec::JsonSchema(json!({"type": "array", "minItems": 1_000_000_000})),
            Spec::Choice((0..9_000).map(|i| format!("choice number {i}")).collect()),
        ] {
            let Ok(grammar) = vocabulary.compile(spec) else {
                continue;
            };
            let mut constraint = grammar.constraint();
            let mut mask = TokenMask::new(vocabulary.tokenizer.vocab_size());
            for _ in 0..5 {
                mask.clear();
                let masked = constraint.mask(&mut mask);
                let token = (0..40_000).find(|id| mask.is_allowed(*id) && *id != vocabulary.eos);
                match (masked, token) {
                    (Ok(()), Some(token)) => constraint.accept(token).unwrap(),
                    _ => break,
                }
            }
        }
    }
    let grown = peak() - before;
    println!("{before} MB before, {grown} MB more at the peak");
    assert!(grown < MOST, "{grown} MB more than {before} MB");
}
