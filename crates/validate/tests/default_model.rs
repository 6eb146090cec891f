//! SmolLM2 against transformers in f32 on the same file, and its tokenizer against transformers' own.

mod common;

use common::{default_model, fixtures, ids, json, open};
use mettle_cpu::CpuBackend;
use mettle_plan::KvElement;
use mettle_text::{ChatTemplate, Message, RenderOptions, SpecialTokens, encode_chat};
use mettle_validate::{Difference, Runner, RunnerOptions, log_softmax};

/// The bound that was set for this model; 8-bit activations miss it (llama.cpp: 0.052 to 0.066 on these texts).
const MEAN_TOLERANCE: f64 = 0.02;

#[test]
fn log_probabilities_of_four_kinds_of_text() {
    let model = open(&default_model(), KvElement::F16);
    let reference = json(&fixtures().join("smollm2/reference.json"));
    let backend = CpuBackend::new(2);
    let mut runner = Runner::new(&model, &backend, RunnerOptions::new(512)).unwrap();
    for (name, text) in reference["texts"].as_object().unwrap() {
        let tokens = ids(&text["tokens"]);
        assert_eq!(tokens.len(), 500);
        let logits = runner.logits(&tokens, 128).unwrap();
        let rows: Vec<Vec<f32>> = logits
            .chunks_exact(model.vocab_size)
            .map(log_softmax)
            .collect();
        let found: Vec<f32> = (0..499).map(|i| rows[i][tokens[i + 1] as usize]).collect();
        let expected: Vec<f32> = text["log_probabilities"]
            .as_array()
            .unwrap()
            .iter()
            .map(|l| l.as_f64().unwrap() as f32)
            .collect();
        let difference = Difference::between(&found, &expected);
        let top1 = ids(&text["top1"]);
        let agree = (0..499)
            .filter(|i| {
                let row = &rows[*i];
                let top = (0..row.len()).max_by(|a, b| row[*a].total_cmp(&row[*b]));
                top == Some(top1[*i] as usize)
            })
            .count() as f64
            / 499.0;
        println!("{name}: {difference:?}, top-1 {:.1} %", agree * 100.0);
        assert!(difference.mean <= MEAN_TOLERANCE, "{name}: {difference:?}");
        let peer = reference["llama_cpp"]["texts"][name]["top1_agreement"]
            .as_f64()
            .unwrap();
        // The goal was set at 99 %, more than llama.cpp reaches on these texts.
        assert!(
            agree >= peer.max(0.99),
            "{name}: top-1 {agree}, llama.cpp {peer}"
        );
    }
}

#[test]
fn greedy_answer_where_the_lead_is_clear() {
    let model = open(&default_model(), KvElement::F16);
    let reference = json(&fixtures().join("smollm2/reference.json"));
    let greedy = &reference["greedy"];
    let (mut tokens, answer) = (ids(&greedy["prompt"]), ids(&greedy["tokens"]));
    let gaps = greedy["gaps"].as_array().unwrap();
    let backend = CpuBackend::new(2);
    let mut runner = Runner::new(&model, &backend, RunnerOptions::new(512)).unwrap();
    let mut logits = runner.logits(&tokens, 512).unwrap();
    let mut chosen = Vec::new();
    for (expected, gap) in answer.iter().zip(gaps) {
        let row = &logits[logits.len() - model.vocab_size..];
        let top = (0..row.len())
            .max_by(|a, b| row[*a].total_cmp(&row[*b]))
            .unwrap();
        if gap.as_f64().unwrap() > 2.0 * MEAN_TOLERANCE {
            assert_eq!(top as u32, *expected);
        }
        chosen.push(top as u32);
        logits = runner.step(&[*expected], tokens.len()).unwrap();
        tokens.push(*expected);
    }
    let text = model.tokenizer().unwrap().decode(&chosen, true);
    assert!(text.contains("Berlin"), "{text}");
}

/// The reference is transformers' tokenizer of this file with the digit splitting put back that its pre-tokenizer
/// `smollm` asks for and transformers leaves out (7 strings differ without it); llama.cpp gives the same ids for all.
#[test]
fn tokenizer_is_that_of_transformers() {
    let model = open(&default_model(), KvElement::F16);
    let tokenizer = model.tokenizer().unwrap();
    let torture = json(&fixtures().join("smollm2/torture.json"));
    let texts = torture["texts"].as_array().unwrap();
    assert!(texts.len() > 200);
    for case in texts {
        let text = case["text"].as_str().unwrap();
        let found = tokenizer.encode(text, SpecialTokens::Parse, false).unwrap();
        assert_eq!(found, ids(&case["ids"]), "{text:?}");
        if case["literal_ids"].is_array() {
            let found = tokenizer.encode(text, SpecialTokens::Plain, false).unwrap();
            assert_eq!(found, ids(&case["literal_ids"]), "{text:?} as plain text");
        }
    }
    let source = model.chat_template.as_deref().unwrap();
    let template = ChatTemplate::new(source, tokenizer.template_specials()).unwrap();
    for chat in torture["chats"].as_array().unwrap() {
        let messages: Vec<Message> = serde_json::from_value(chat["messages"].clone()).unwrap();
        let options = RenderOptions {
            add_generation_prompt: chat["add_generation_prompt"].as_bool().unwrap_or(true),
            ..RenderOptions::default()
        };
        let text = template.render(&messages, &options).unwrap();
        assert_eq!(text, chat["text"].as_str().unwrap());
        let found = encode_chat(&tokenizer, &template, &messages, &options).unwrap();
        assert_eq!(found, ids(&chat["ids"]), "{messages:?}");
    }
}
