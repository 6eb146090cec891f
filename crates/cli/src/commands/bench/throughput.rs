//! Owns `mettle bench throughput`: many prompts at once through the engine, without a server, and the tokens a second.

use crate::args::BenchThroughputArgs;
use crate::commands::settings;
use crate::config::engine_flags;
use crate::interrupt::{Interrupt, Interrupted};
use crate::session::{Load, Session};
use crate::terminal::{Counter, note};
use anyhow::bail;
use mettle_bench::machine::peak_rss;
use mettle_bench::{Random, Spread};
use mettle_engine::{Event, FinishReason, Request, RequestStream};
use serde::Serialize;
use std::io::Write;
use std::time::Instant;

#[derive(Serialize)]
struct Record {
    bench: &'static str,
    model: String,
    backend: &'static str,
    device: String,
    threads: usize,
    commit: &'static str,
    num_prompts: usize,
    max_num_seqs: usize,
    input_len: usize,
    output_len: usize,
    repeats: usize,
    /// Medians of the repeats.
    requests_per_second: f64,
    output_tokens_per_second: f64,
    total_tokens_per_second: f64,
    /// Output tokens a second.
    output: Spread,
    elapsed_seconds: Spread,
    load_seconds: f64,
    preemptions: u64,
    peak_rss_bytes: Option<u64>,
}

pub fn run(args: BenchThroughputArgs) -> anyhow::Result<()> {
    let mut flags = engine_flags(args.model.as_ref(), &args.engine);
    if let Some(sequences) = &args.max_num_seqs {
        flags.insert("max-num-seqs", sequences.clone());
    }
    let settings = settings(flags)?;
    let interrupt = Interrupt::install()?;
    let load = Load {
        sequences: settings.max_num_seqs,
        queue: args.num_prompts,
    };
    let session = Session::open(&settings, &interrupt, load)?;
    note(&format!("device    {}", session.backend));
    let ordinary: Vec<u32> = (0..session.tokenizer.vocab_size() as u32)
        .filter(|id| !session.tokenizer.is_special(*id))
        .collect();
    let mut elapsed = Vec::new();
    let tokens = args.num_prompts * args.output_len;
    // The first run warms up, with one prompt only.
    for repeat in 0..=args.repeats {
        let count = if repeat == 0 { 1 } else { args.num_prompts };
        let mut random = Random::new(repeat as u64);
        let mut prompt = || {
            let draw = |_| ordinary[random.below(ordinary.len())];
            (0..args.input_len).map(draw).collect()
        };
        let prompts: Vec<Vec<u32>> = (0..count).map(|_| prompt()).collect();
        let seconds = one_run(&session, prompts, args.output_len, &interrupt)?;
        if repeat > 0 {
            elapsed.push(seconds);
        }
    }
    let elapsed = Spread::of_seconds(&elapsed);
    let a_second = |amount: usize| amount as f64 / elapsed.median;
    let record = Record {
        bench: "throughput",
        model: session.model.name.clone(),
        backend: session.device,
        device: session.backend.clone(),
        threads: settings.threads,
        commit: env!("METTLE_COMMIT"),
        num_prompts: args.num_prompts,
        max_num_seqs: settings.max_num_seqs,
        input_len: args.input_len,
        output_len: args.output_len,
        repeats: args.repeats,
        requests_per_second: a_second(args.num_prompts),
        output_tokens_per_second: a_second(tokens),
        total_tokens_per_second: a_second(tokens + args.num_prompts * args.input_len),
        output: elapsed.rate(tokens as f64),
        elapsed_seconds: elapsed,
        load_seconds: session.load_time.as_secs_f64(),
        preemptions: session.engine.stats().preemptions,
        peak_rss_bytes: peak_rss(),
    };
    session.engine.shutdown();
    match args.json {
        true => writeln!(std::io::stdout(), "{}", serde_json::to_string(&record)?)?,
        false => show(&record)?,
    }
    Ok(())
}

/// Submits all prompts at once and gives the seconds until the last answer ended.
fn one_run(
    session: &Session,
    prompts: Vec<Vec<u32>>,
    output_len: usize,
    interrupt: &Interrupt,
) -> anyhow::Result<f64> {
    let count = prompts.len();
    let mut counter = Counter::new("answers");
    let start = Instant::now();
    let mut streams: Vec<RequestStream> = Vec::with_capacity(count);
    for prompt in prompts {
        let mut request = Request::new(prompt, output_len);
        request.ignore_eos = true;
        streams.push(session.engine.submit(request)?);
    }
    for (number, stream) in streams.iter_mut().enumerate() {
        while let Some(event) = stream.recv() {
            if interrupt.is_pressed() {
                return Err(Interrupted.into());
            }
            if let Event::Finished(end) = event
                && end.reason != FinishReason::Length
            {
                bail!("an answer ended early: {:?}", end.reason);
            }
        }
        counter.at(number + 1, count, "");
    }
    Ok(start.elapsed().as_secs_f64())
}

fn show(record: &Record) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "model     {}", record.model)?;
    writeln!(
        out,
        "prompts   {} of {} tokens, {} out, up to {} at a time",
        record.num_prompts, record.input_len, record.output_len, record.max_num_seqs
    )?;
    writeln!(
        out,
        "output    {:>10.1} tok/s median, {:.1} best, {:.1} worst",
        record.output.median, record.output.best, record.output.worst
    )?;
    writeln!(
        out,
        "in all    {:>10.1} tok/s, {:.2} requests/s ({:.2} s)",
        record.total_tokens_per_second, record.requests_per_second, record.elapsed_seconds.median
    )
}
