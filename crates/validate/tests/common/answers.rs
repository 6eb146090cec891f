//! Owns an engine's answer as bits, for comparing two of them.

use mettle_engine::{Event, FinishReason, RequestStream};

/// The ids of each choice, with the bits of their log-probabilities.
pub type Answer = Vec<Vec<(u32, Vec<(u32, u32)>)>>;

/// Reads an answer to its end, which is its length.
pub fn read(mut stream: RequestStream) -> Answer {
    let mut answer = vec![Vec::new(); stream.choices()];
    while let Some(event) = stream.recv() {
        match event {
            Event::Token {
                choice,
                id,
                logprobs,
                ..
            } => {
                let top = logprobs.expect("asked for").top;
                let bits = top.iter().map(|(id, l)| (*id, l.to_bits())).collect();
                answer[choice].push((id, bits));
            }
            Event::Finished(end) => assert_eq!(end.reason, FinishReason::Length),
            Event::PromptLogprobs(_) => panic!("nobody asked"),
        }
    }
    answer
}
