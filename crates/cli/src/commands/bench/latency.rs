//! Owns `mettle bench latency`: how long a fixed batch takes, prompts and answers apart, on one backend.

use crate::args::BenchLatencyArgs;
use crate::commands::settings;
use crate::config::{Settings, engine_flags};
use crate::device::candidates;
use crate::interrupt::Interrupt;
use crate::session;
use crate::terminal::{Counter, note};
use mettle_bench::Spread;
use mettle_bench::ceilings::MemoryProbe;
use mettle_bench::latency::{Latency, LatencyOptions, latency, profile};
use mettle_bench::machine::peak_rss;
use mettle_models::Model;
use mettle_plan::{Executable, OpTime, PageLayout, Plan, PrepareOptions, Sizes, passes};
use mettle_tensor::TensorSource;
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Instant;

/// Tokens in a KV page.
const PAGE_TOKENS: usize = 32;

#[derive(Serialize)]
struct Record {
    bench: &'static str,
    model: String,
    backend: &'static str,
    device: String,
    threads: usize,
    commit: &'static str,
    batch: usize,
    input_len: usize,
    output_len: usize,
    repeats: usize,
    /// Best of the repeats.
    prefill_tokens_per_second: f64,
    decode_tokens_per_second: f64,
    prefill: Spread,
    decode: Spread,
    /// With --memory.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    decode_beside_memory: Vec<DecodeBesideMemory>,
    load_seconds: f64,
    peak_rss_bytes: Option<u64>,
    weight_bytes: usize,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    decode_kernels: Vec<KernelTime>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    prefill_kernels: Vec<KernelTime>,
}

/// A run's decode, and what memory gave right before and after it.
#[derive(Serialize)]
struct DecodeBesideMemory {
    tokens_per_second: f64,
    memory_bytes_per_second: [f64; 2],
}

/// A kernel's share of one step.
#[derive(Serialize)]
struct KernelTime {
    kernel: &'static str,
    calls: usize,
    milliseconds: f64,
}

pub fn run(args: BenchLatencyArgs) -> anyhow::Result<()> {
    let settings = settings(engine_flags(args.model.as_ref(), &args.engine))?;
    let interrupt = Interrupt::install()?;
    let path = session::fetch(&settings, &interrupt)?;
    let start = Instant::now();
    let model = Model::open(&path, session::open_options(&settings))?;
    let candidate = candidates(&settings)?.swap_remove(0);
    let options = LatencyOptions {
        batch: args.batch,
        input_len: args.input_len,
        output_len: args.output_len,
        repeats: args.repeats,
        vocabulary: model.vocab_size,
    };
    let backend = candidate.backend;
    let mut executable = prepare(&*backend, &model, &settings, &options)?;
    let load_seconds = start.elapsed().as_secs_f64();
    let mut counter = Counter::new("runs");
    let probe = args.memory.then(|| MemoryProbe::new(settings.threads));
    let result = latency(&mut *executable, &options, probe.as_ref(), &mut |done| {
        counter.at(done + 1, options.repeats + 1, "");
    })?;
    let prefill = result.prefill.rate((args.batch * args.input_len) as f64);
    let answered = (args.batch * args.output_len) as f64;
    let decode = result.decode.rate(answered);
    let mut record = Record {
        bench: "latency",
        model: model.name.clone(),
        backend: backend.name(),
        device: backend.describe(),
        threads: settings.threads,
        commit: env!("METTLE_COMMIT"),
        batch: args.batch,
        input_len: args.input_len,
        output_len: args.output_len,
        repeats: args.repeats,
        prefill_tokens_per_second: prefill.best,
        decode_tokens_per_second: decode.best,
        prefill,
        decode,
        decode_beside_memory: (result.beside_memory.iter())
            .map(|run| DecodeBesideMemory {
                tokens_per_second: answered / run.decode_seconds,
                memory_bytes_per_second: run.memory,
            })
            .collect(),
        load_seconds,
        peak_rss_bytes: peak_rss(),
        weight_bytes: executable.memory().weight_bytes,
        decode_kernels: Vec::new(),
        prefill_kernels: Vec::new(),
    };
    if args.kernels {
        record.decode_kernels = kernels(&mut *executable, &options, true)?;
        record.prefill_kernels = kernels(&mut *executable, &options, false)?;
    }
    match args.json {
        true => println!("{}", serde_json::to_string(&record)?),
        false => show(&record, &result),
    }
    Ok(())
}

/// The model on a backend, with room for the batch.
pub fn prepare(
    backend: &dyn mettle_plan::Backend,
    model: &Model,
    settings: &Settings,
    options: &LatencyOptions,
) -> anyhow::Result<Box<dyn Executable>> {
    let mut plan = session::only_plan(model)?;
    passes::apply(&mut plan, &settings.disable_pass)?;
    prepare_plan(backend, plan, &*model.tensors, settings, options)
}

/// The same with a plan of one's own.
pub fn prepare_plan(
    backend: &dyn mettle_plan::Backend,
    plan: Plan,
    weights: &dyn TensorSource,
    settings: &Settings,
    options: &LatencyOptions,
) -> anyhow::Result<Box<dyn Executable>> {
    let page_layout = PageLayout::new(&plan.kv_groups, PAGE_TOKENS);
    let tokens = settings.max_num_batched_tokens.max(options.batch);
    let bounds = Sizes {
        logit_rows: options.batch,
        ..plan.bounds(tokens, options.batch)
    };
    let prepare = PrepareOptions {
        bounds,
        kv_pages: mettle_bench::latency::pages(options, &page_layout),
        page_layout,
        taps: Vec::new(),
    };
    Ok(backend.prepare(&[plan], weights, prepare)?)
}

fn kernels(
    executable: &mut dyn Executable,
    options: &LatencyOptions,
    decode: bool,
) -> anyhow::Result<Vec<KernelTime>> {
    let Some(times) = profile(executable, options, decode) else {
        note(
            "note: this backend does not time its kernels one by one; `mettle bench kernels` does",
        );
        return Ok(Vec::new());
    };
    let mut by_name: BTreeMap<&'static str, (usize, f64)> = BTreeMap::new();
    for OpTime {
        kernel, seconds, ..
    } in times?
    {
        let entry = by_name.entry(kernel).or_default();
        entry.0 += 1;
        entry.1 += seconds;
    }
    let mut kernels: Vec<KernelTime> = by_name
        .into_iter()
        .map(|(kernel, (calls, seconds))| KernelTime {
            kernel,
            calls,
            milliseconds: seconds * 1e3,
        })
        .collect();
    kernels.sort_by(|a, b| b.milliseconds.total_cmp(&a.milliseconds));
    Ok(kernels)
}

fn show(record: &Record, result: &Latency) {
    println!("model    {}", record.model);
    println!("device   {}", record.device);
    println!(
        "prefill  {:>10.1} tok/s best, {:.1} median, {:.1} worst ({} x {} tokens in {:.3} s)",
        record.prefill.best,
        record.prefill.median,
        record.prefill.worst,
        record.batch,
        record.input_len,
        result.prefill.best
    );
    println!(
        "decode   {:>10.1} tok/s best, {:.1} median, {:.1} worst ({} x {} tokens in {:.3} s)",
        record.decode.best,
        record.decode.median,
        record.decode.worst,
        record.batch,
        record.output_len,
        result.decode.best
    );
    for run in &record.decode_beside_memory {
        println!(
            "memory   {:>10.1} GB/s before, {:.1} after a decode of {:.1} tok/s",
            run.memory_bytes_per_second[0] / 1e9,
            run.memory_bytes_per_second[1] / 1e9,
            run.tokens_per_second
        );
    }
    println!("load     {:>10.2} s", record.load_seconds);
    for (title, kernels) in [
        ("decode step", &record.decode_kernels),
        ("prefill step", &record.prefill_kernels),
    ] {
        if !kernels.is_empty() {
            println!("{title}, each kernel alone:");
        }
        for time in kernels {
            println!(
                "  {:<36} {:>5} calls {:>10.3} ms",
                time.kernel, time.calls, time.milliseconds
            );
        }
    }
}
