//! Models whose prompts an encoder reads: steps of its own before the decoder's, and nothing else is different.

use crate::setup::{Setup, VOCABULARY, ask, group, layout, prompt, read_all};
use expect_test::{Expect, expect};
use mettle_engine::mock::{MockExecutable, MockStep};
use mettle_engine::{Pooling, Request, SamplingParams};
use mettle_plan::{PageLayout, Retention};
use std::sync::mpsc::channel;

const START: u32 = 7;

fn encoder_decoder() -> PageLayout {
    layout(&[group(Retention::Full, 16), group(Retention::Encoder, 32)])
}

fn setup() -> Setup {
    let mut setup = Setup::new(encoder_decoder());
    setup.options.decoder_start = Some(START);
    setup
}

/// The greedy answer by the mock's own definition.
fn greedy(input: &[u32], count: usize) -> Vec<u32> {
    let mut tokens = vec![START];
    for _ in 0..count {
        let logits = MockExecutable::logits_of(VOCABULARY, &encoder_decoder(), input, &tokens);
        let best = (0..VOCABULARY).max_by(|a, b| logits[*a].total_cmp(&logits[*b]).then(b.cmp(a)));
        tokens.push(best.unwrap() as u32);
    }
    tokens.split_off(1)
}

#[test]
fn an_answer_follows_the_start_and_the_encoders_input() {
    let engine = setup().start();
    for length in [1, 31, 32, 33, 400] {
        let input = prompt(length, 5);
        let outcome = ask(&engine, Request::new(input.clone(), 30));
        assert_eq!(outcome.tokens, greedy(&input, 30), "{length}");
        let usage = outcome.end.usage;
        assert_eq!(
            (usage.prompt, usage.completion, usage.cached),
            (length, 30, 0)
        );
    }
    // The same input again: there is nothing to find.
    assert_eq!(engine.stats().prefix_queries, 0);
    engine.shutdown();
    assert_eq!(engine.stats().blocks_used, 0);
}

#[test]
fn company_and_preemption_change_no_token() {
    for (pages, chunk, is_preempted) in [(200, 512, false), (14, 512, true), (14, 70, true)] {
        let (engine, gate) = setup().pages(pages).chunk(chunk).sequences(8).start_held();
        let inputs: Vec<Vec<u32>> = (0..12).map(|i| prompt(5 + 5 * i as usize, i)).collect();
        let streams: Vec<_> = inputs
            .iter()
            .map(|input| engine.submit(Request::new(input.clone(), 60)).unwrap())
            .collect();
        drop(gate);
        for (stream, input) in streams.into_iter().zip(&inputs) {
            assert_eq!(read_all(stream)[0].tokens, greedy(input, 60));
        }
        assert_eq!(engine.stats().preemptions > 0, is_preempted);
        engine.shutdown();
        assert_eq!(engine.stats().blocks_used, 0);
    }
}

#[test]
fn choices_share_the_encoders_pages() {
    let (seen, steps) = channel();
    let engine = setup().sequences(4).start_with(move |step| {
        seen.send(step).unwrap();
        MockStep::Run
    });
    let input = prompt(60, 3);
    let drawn = SamplingParams {
        temperature: 1.0,
        seed: Some(4),
        ..SamplingParams::default()
    };
    let request = Request {
        n: 3,
        sampling: drawn,
        ..Request::new(input, 6)
    };
    let first = read_all(engine.submit(request.clone()).unwrap());
    // One step of the encoder, then six of the decoder for all three.
    assert_eq!(steps.try_iter().count(), 7);
    let mut answers: Vec<_> = first.iter().map(|outcome| &outcome.tokens).collect();
    answers.sort();
    answers.dedup();
    assert_eq!(answers.len(), 3, "choices draw with seeds of their own");
    let alone = ask(&engine, Request { n: 1, ..request });
    assert_eq!(alone.tokens, first[0].tokens);
    engine.shutdown();
}

fn refused(change: impl FnOnce(&mut Request), message: Expect) {
    let engine = setup().chunk(100).start();
    let mut request = Request::new(prompt(50, 1), 10);
    change(&mut request);
    let error = engine.submit(request).unwrap_err();
    message.assert_eq(&error.to_string());
    engine.shutdown();
}

#[test]
fn what_does_not_fit_is_refused_with_the_numbers() {
    refused(
        |r| r.prompt = prompt(101, 1),
        expect![
            "prompt has 101 tokens and asks for 10: the encoder takes 100 tokens, the decoder makes 399"
        ],
    );
    refused(
        |r| r.max_tokens = 400,
        expect![
            "prompt has 50 tokens and asks for 400: the encoder takes 100 tokens, the decoder makes 399"
        ],
    );
    refused(
        |r| r.prompt_logprobs = Some(1),
        expect![
            "prompt_logprobs asks how likely the prompt is: an encoder reads this model's prompts, and no token of them is predicted"
        ],
    );
    refused(
        |r| *r = Request::pooled(prompt(50, 1), Pooling::Mean),
        expect!["this model gives no hidden states on this device, which pooling needs"],
    );
    let engine = setup().pages(5).start();
    let error = engine.submit(Request::new(prompt(96, 1), 34)).unwrap_err();
    expect!["prompt has 96 tokens and asks for 34 more, which takes up to 6 pages of the KV cache; it has 5"]
        .assert_eq(&error.to_string());
    let outcome = ask(&engine, Request::new(prompt(96, 1), 32));
    assert_eq!(outcome.tokens.len(), 32);
    engine.shutdown();
}
