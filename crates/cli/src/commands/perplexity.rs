//! Owns `mettle perplexity`: how well a model predicts a text, by llama.cpp's rules, so that figures can be compared.
//!
//! The text's tokens are cut into windows of `context` tokens, what does not fill one is left out. In each window the tokens
//! of the second half are scored, all but its first; the first half is what they are predicted from. Models that want a
//! BOS get it in the place of each window's first token.

use super::settings;
use crate::args::PerplexityArgs;
use crate::config::{Settings, engine_flags};
use crate::interrupt::{Interrupt, Interrupted};
use crate::session::{Load, Session};
use crate::terminal::Counter;
use anyhow::{Context, bail, ensure};
use mettle_engine::{Event, FinishReason, Request, RequestStream};
use mettle_text::SpecialTokens;
use serde::Serialize;
use std::collections::VecDeque;
use std::io::{self, Write};
use std::time::Instant;

/// Windows that are under way at a time: one is computed while the next is ready.
const AHEAD: usize = 2;

#[derive(Debug, Serialize)]
struct Record<'a> {
    perplexity: f64,
    /// Of the perplexity, as if all tokens were independent.
    standard_error: f64,
    nats_per_token: f64,
    scored_tokens: usize,
    windows: usize,
    context: usize,
    text_tokens: usize,
    seconds: f64,
    model: &'a str,
    backend: &'a str,
    commit: &'static str,
}

pub fn run(args: PerplexityArgs) -> anyhow::Result<()> {
    let settings = Settings {
        // Windows that share a beginning would be computed once; all are to be computed alike.
        prefix_cache: false,
        ..settings(engine_flags(args.model.as_ref(), &args.engine))?
    };
    let text = std::fs::read(&args.file)
        .with_context(|| format!("cannot read {}", args.file.display()))?;
    let text =
        String::from_utf8(text).with_context(|| format!("{} is not UTF-8", args.file.display()))?;
    let interrupt = Interrupt::install()?;
    let load = Load {
        sequences: AHEAD,
        queue: AHEAD,
    };
    let session = Session::open(&settings, &interrupt, load)?;
    let most = session.engine.limits().context;
    ensure!(
        session.engine.limits().encoder.is_none(),
        "{} reads text with an encoder, which predicts no token of it: it has no perplexity",
        session.model.name
    );
    ensure!(
        args.context <= most,
        "windows of {} tokens were asked for; the model's context is {most}",
        args.context
    );
    let windows = windows(&session, &text, &args)?;
    let start = Instant::now();
    let scores = score(&session, &windows, &interrupt)?;
    let mean = scores.sum / scores.count as f64;
    let variance = (scores.squares / scores.count as f64 - mean * mean).max(0.0);
    let perplexity = mean.exp();
    let record = Record {
        perplexity,
        standard_error: perplexity * (variance / (scores.count.max(2) - 1) as f64).sqrt(),
        nats_per_token: mean,
        scored_tokens: scores.count,
        windows: windows.len(),
        context: args.context,
        text_tokens: windows.text_tokens,
        seconds: start.elapsed().as_secs_f64(),
        model: &session.model.name,
        backend: &session.backend,
        commit: env!("METTLE_COMMIT"),
    };
    let mut out = io::stdout().lock();
    match args.json {
        true => writeln!(out, "{}", serde_json::to_string(&record)?)?,
        false => writeln!(
            out,
            "perplexity {:.4} +/- {:.4} ({} tokens in {} windows of {}, {:.1} s)",
            record.perplexity,
            record.standard_error,
            record.scored_tokens,
            record.windows,
            record.context,
            record.seconds
        )?,
    }
    session.engine.shutdown();
    Ok(())
}

struct Windows {
    tokens: Vec<u32>,
    context: usize,
    count: usize,
    bos: Option<u32>,
    text_tokens: usize,
}

impl Windows {
    fn len(&self) -> usize {
        self.count
    }

    fn prompt(&self, number: usize) -> Vec<u32> {
        let start = number * self.context;
        let mut prompt = self.tokens[start..start + self.context].to_vec();
        if let Some(bos) = self.bos {
            prompt[0] = bos;
        }
        prompt
    }
}

fn windows(session: &Session, text: &str, args: &PerplexityArgs) -> anyhow::Result<Windows> {
    let tokenizer = &session.tokenizer;
    let tokens = tokenizer.encode(text, SpecialTokens::Plain, true)?;
    let alone = tokenizer.encode("", SpecialTokens::Plain, true)?;
    let bos = alone
        .first()
        .copied()
        .filter(|id| Some(*id) == tokenizer.bos());
    let whole = tokens.len() / args.context;
    if whole == 0 {
        bail!(
            "{} has {} tokens and a window takes {}; give a longer text or a smaller --context",
            args.file.display(),
            tokens.len(),
            args.context
        );
    }
    Ok(Windows {
        text_tokens: tokens.len(),
        tokens,
        context: args.context,
        count: args.windows.map_or(whole, |most| most.min(whole)),
        bos,
    })
}

/// Sums over scored tokens of their negative log-probability.
#[derive(Debug, Default)]
struct Scores {
    sum: f64,
    squares: f64,
    count: usize,
}

fn score(session: &Session, windows: &Windows, interrupt: &Interrupt) -> anyhow::Result<Scores> {
    let mut scores = Scores::default();
    let mut counter = Counter::new("windows");
    let mut under_way: VecDeque<RequestStream> = VecDeque::with_capacity(AHEAD);
    for number in 0..windows.len() {
        for next in number + under_way.len()..windows.len().min(number + AHEAD) {
            let request = Request {
                prompt_logprobs: Some(0),
                ..Request::new(windows.prompt(next), 0)
            };
            under_way.push_back(session.engine.submit(request)?);
        }
        let stream = under_way.pop_front().expect("one was submitted");
        add(stream, windows.context, &mut scores)?;
        if interrupt.is_pressed() {
            return Err(Interrupted.into());
        }
        let so_far = (scores.sum / scores.count as f64).exp();
        counter.at(number + 1, windows.len(), &format!("{so_far:.4}"));
    }
    Ok(scores)
}

fn add(mut stream: RequestStream, context: usize, scores: &mut Scores) -> anyhow::Result<()> {
    while let Some(event) = stream.recv() {
        match event {
            Event::PromptLogprobs(scored) => {
                for token in scored[context / 2 + 1..].iter().flatten() {
                    let nats = -f64::from(token.logprob);
                    scores.sum += nats;
                    scores.squares += nats * nats;
                    scores.count += 1;
                }
            }
            Event::Finished(end) => {
                if let FinishReason::Error(reason) = end.reason {
                    bail!("the engine failed: {reason}");
                }
            }
            Event::Token { .. } => unreachable!("none was asked for"),
        }
    }
    Ok(())
}
