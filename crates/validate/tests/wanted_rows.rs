//! Rows whose output nobody wants are left out of the end of a step, and nothing else changes: what comes out is what a step
//! gives that computes all of them.

mod common;

use common::{open, reference, tiny};
use mettle_cpu::CpuBackend;
use mettle_models::Model;
use mettle_plan::{
    Backend, BlockId, ContextLen, InputToken, KvElement, OutputKind, PageLayout, PrepareOptions,
    StepInput, TokenRow, passes,
};
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
        let longest = tokens.len().max(encoded.map_or(0, <[u32]>::len));
        let mut options = RunnerOptions::new(longest);
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

/// Tiles of many queries are cut, over several partitions of the context.
#[test]
fn long_prompts_give_them_too() {
    for name in ["llama31", "gemma3", "gptoss"] {
        let tokens = reference(name).tokens;
        let tokens: Vec<u32> = tokens.iter().cycle().take(640).copied().collect();
        check(name, &tiny(name, ""), None, &tokens);
    }
}

/// Sequences share a step, and of some of them nothing is wanted.
#[test]
fn so_do_sequences_together() {
    // How long each is, and its wanted rows.
    const SEQUENCES: [(usize, &[u32]); 4] = [(40, &[39, 0]), (1, &[]), (70, &[69]), (19, &[])];
    let model = tiny("llama31", "");
    let tokens = reference("llama31").tokens;
    let text = |i: usize| &tokens[i..i + SEQUENCES[i].0];
    let mut plan = model.plan();
    passes::apply(&mut plan, &[]).unwrap();
    let page_layout = PageLayout::new(&plan.kv_groups, 32);
    let pages = page_layout.sequence_pages(TOKENS);
    let mut step = StepInput::new(plan.kv_groups.len());
    step.output = OutputKind::Logits;
    for (i, (length, wanted)) in SEQUENCES.iter().enumerate() {
        let start = step.tokens.len() as u32;
        step.push_sequence(text(i).iter().map(|t| InputToken::Host(*t)), 0);
        let own: Vec<BlockId> = (i * pages..(i + 1) * pages)
            .map(|p| BlockId(p as u32))
            .collect();
        for table in &mut step.tables {
            table.push(0, ContextLen(*length as u32), &own);
        }
        step.logit_rows
            .extend(wanted.iter().map(|row| TokenRow(start + row)));
    }
    let options = PrepareOptions {
        bounds: plan.bounds(step.tokens.len(), SEQUENCES.len()),
        kv_pages: SEQUENCES.len() * pages,
        page_layout,
        taps: Vec::new(),
    };
    let backend = CpuBackend::new(2);
    let mut together = backend.prepare(&[plan], &*model.tensors, options).unwrap();
    let ticket = together.submit(&step).unwrap();
    let output = together.wait(ticket).unwrap();
    let mut found = (0..step.logit_rows.len()).map(|row| bits(output.logits_row(row)));
    for (i, (_, wanted)) in SEQUENCES.into_iter().enumerate() {
        let mut options = RunnerOptions::new(TOKENS);
        options.disabled_passes = vec!["gather-early".to_owned()];
        let mut alone = Runner::new(&model, &CpuBackend::new(1), options).unwrap();
        let all = alone.step(text(i), 0).unwrap();
        let width = all.len() / text(i).len();
        for row in wanted {
            let expected = bits(&all[*row as usize * width..][..width]);
            assert!(found.next() == Some(expected), "sequence {i}, row {row}");
        }
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
