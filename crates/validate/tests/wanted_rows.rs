//! Rows whose output nobody wants are left out of the end of a step, and nothing else changes: what comes out is what a step
//! gives that computes all of them.

mod common;

use common::{open, reference, tiny};
use mettle_cpu::CpuBackend;
use mettle_models::Model;
use mettle_plan::KvElement;
use mettle_validate::{Runner, RunnerOptions};

const TOKENS: usize = 100;

/// Rows of a step of so many tokens.
fn choices(tokens: u32) -> [Vec<u32>; 5] {
    [
        vec![],
        vec![0],
        vec![tokens - 1],
        // Within a tile of queries, across tiles, in no order.
        vec![9, 5, tokens / 2],
        (0..tokens).step_by(3).collect(),
    ]
}

fn bits(logits: &[f32]) -> Vec<u32> {
    logits.iter().map(|l| l.to_bits()).collect()
}

fn check(name: &str, model: &Model, encoded: Option<&[u32]>, tokens: &[u32]) {
    let runner = |threads, disabled: &[&str]| {
        let mut options = RunnerOptions::new(TOKENS.max(encoded.map_or(0, <[u32]>::len)));
        options.disabled_passes = disabled.iter().map(|pass| pass.to_string()).collect();
        let mut runner = Runner::new(model, &CpuBackend::new(threads), options).unwrap();
        if let Some(encoded) = encoded {
            runner.encode(encoded).unwrap();
        }
        runner
    };
    let all = runner(1, &["gather-early"]).step(tokens, 0).unwrap();
    assert!(all.iter().all(|l| l.is_finite()));
    let width = all.len() / tokens.len();
    let first = tokens.len() / 2;
    for (threads, disabled) in [(1, vec![]), (2, vec![]), (2, vec!["gather-early"])] {
        for wanted in choices(first as u32) {
            let mut runner = runner(threads, &disabled);
            let of = |row: u32, first: usize| {
                let at = (first + row as usize) * width;
                bits(&all[at..at + width])
            };
            let expected = |first| wanted.iter().flat_map(move |row| of(*row, first));
            // What the first step leaves out is not missed by the second.
            for first in [0, first] {
                let tokens = &tokens[first..first + tokens.len() / 2];
                let found = runner.step_wanting(tokens, first, &wanted).unwrap();
                let expected: Vec<u32> = expected(first).collect();
                assert!(
                    bits(&found) == expected,
                    "{name}: rows {wanted:?} from {first} on, {threads} threads, without {disabled:?}"
                );
            }
        }
    }
}

#[test]
fn decoders_give_the_wanted_rows_of_a_whole_step() {
    for name in [
        "llama31",
        "qwen2",
        "qwen3",
        "gemma2",
        "gemma3",
        "gemma4",
        "phi3",
        "mistral-window",
        "mixtral",
        "qwen2moe",
        "qwen3moe",
        "gptoss",
    ] {
        let tokens = reference(name).tokens;
        check(name, &tiny(name, ""), None, &tokens[..TOKENS]);
    }
}

#[test]
fn a_decoder_behind_an_encoder_does_so_too() {
    let tokens: Vec<u32> = (0..TOKENS as u32).map(|i| 3 + i * 7 % 90).collect();
    check("t5", &tiny("t5", ""), Some(&tokens[..65]), &tokens);
}

/// Nothing of the last layer but its keys and values is computed where no row is wanted, and its feed-forward for one row only
/// where one is.
#[test]
fn what_is_left_out_does_not_run() {
    let path = common::fixtures().join("models/llama31-q8_0/model.gguf");
    let model = open(&path, KvElement::F16);
    let layers = model.spec.layers() as u64;
    let tokens = reference("llama31-q8_0").tokens;
    for threads in [1, 2] {
        let options = RunnerOptions::new(TOKENS);
        let mut runner = Runner::new(&model, &CpuBackend::new(threads), options).unwrap();
        runner.step_wanting(&tokens[..50], 0, &[]).unwrap();
        let ran = runner.executable().dispatches();
        assert_eq!(ran["attention"], layers - 1, "{threads} threads");
        // All keys and values are in the cache.
        assert_eq!(ran["rope_kv_write"], layers, "{threads} threads");
        assert_eq!(ran["silu_mul"], layers - 1, "{threads} threads");
        runner.step_wanting(&tokens[50..TOKENS], 50, &[49]).unwrap();
        let ran = runner.executable().dispatches();
        assert_eq!(ran["attention"], 2 * layers - 1, "{threads} threads");
        assert_eq!(ran["silu_mul"], 2 * layers - 1, "{threads} threads");
    }
}
