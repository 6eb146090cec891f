//! Windows on the real backend with the real pager: a long sequence holds only its windows' pages, and what it computes
//! is what it would compute if all pages were kept.

mod common;

use common::{reference, tiny};
use mettle_cpu::CpuBackend;
use mettle_engine::pager::{ChainHash, Pager};
use mettle_models::Model;
use mettle_plan::{
    Backend, InputToken, OutputKind, PageLayout, PrepareOptions, Retention, Sizes, StepInput,
    TokenRow, passes,
};

const PAGE: usize = 32;

/// The logits of all tokens, and the most pages that the sequence held between two steps.
fn run(model: &Model, tokens: &[u32], chunk: usize, keep_all: bool) -> (Vec<u32>, usize) {
    let mut plan = model.plan();
    passes::apply(&mut plan, &[]).unwrap();
    if keep_all {
        for group in &mut plan.kv_groups {
            group.retention = Retention::Full;
        }
    }
    let page_layout = PageLayout::new(&plan.kv_groups, PAGE);
    let groups = plan.kv_groups.len();
    // Room for the windows and for a chunk on top, or for everything.
    let kv_pages = page_layout.sequence_pages(tokens.len()) + groups * (chunk.div_ceil(PAGE) + 1);
    let prepare = PrepareOptions {
        bounds: Sizes {
            logit_rows: chunk,
            ..Sizes::bounds(chunk, 1)
        },
        kv_pages,
        page_layout: page_layout.clone(),
        taps: Vec::new(),
    };
    let backend = CpuBackend::new(2);
    let mut executable = backend.prepare(&[plan], &*model.tensors, prepare).unwrap();
    let mut pager = Pager::new(page_layout, kv_pages, false);
    let id = pager.begin(tokens, ChainHash::root(None), false, tokens.len(), 0);
    let mut step = StepInput::new(groups);
    let (mut bits, mut most, mut copies) = (Vec::new(), 0, Vec::new());
    for first in (0..tokens.len()).step_by(chunk) {
        let end = (first + chunk).min(tokens.len());
        pager.grow(id, end, &mut copies).unwrap();
        step.clear();
        let inputs = tokens[first..end].iter().map(|t| InputToken::Host(*t));
        step.push_sequence(inputs, first as u32);
        pager.push_tables(id, end, &mut step.tables);
        step.logit_rows
            .extend((0..(end - first) as u32).map(TokenRow));
        step.output = OutputKind::Logits;
        let ticket = executable.submit(&step).unwrap();
        let output = executable.wait(ticket).unwrap();
        for row in 0..end - first {
            bits.extend(output.logits_row(row).iter().map(|l| l.to_bits()));
        }
        pager.commit(id, tokens, end);
        most = most.max(pager.held(id));
    }
    (bits, most)
}

#[test]
fn a_long_sequence_holds_only_its_windows() {
    // All layers have a window of 45 tokens: at most two pages, and a third while they slide.
    let model = tiny("mistral-window", "");
    let tokens = reference("mistral-window").tokens;
    let (_, held) = run(&model, &tokens, 7, false);
    assert!(held <= 45_usize.div_ceil(PAGE) + 1, "{held} pages");
    assert_eq!(run(&model, &tokens, 7, true).1, 300_usize.div_ceil(PAGE));
}

#[test]
fn what_was_given_back_is_not_missed() {
    for name in ["mistral-window", "gemma2", "gemma3", "gemma4", "phi3"] {
        let model = tiny(name, "");
        let tokens = reference(name).tokens;
        for chunk in [1, 33] {
            let (kept, all) = run(&model, &tokens, chunk, true);
            let (bits, held) = run(&model, &tokens, chunk, false);
            assert!(bits == kept, "{name} in chunks of {chunk}");
            assert!(held < all, "{name}: {held} pages of {all}");
        }
    }
}
