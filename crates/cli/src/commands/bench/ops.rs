//! Owns `mettle bench kernels` on the CPU: every kind of op of a model, alone, against the machine's own limits.

use super::latency::prepare_plan;
use crate::args::BenchKernelsArgs;
use crate::config::Settings;
use crate::device::integer_loop;
use crate::interrupt::{Interrupt, Interrupted};
use crate::session;
use crate::terminal::{Counter, note};
use anyhow::bail;
use mettle_bench::ceilings::Ceilings;
use mettle_bench::ops::{
    OpKind, OpTiming, StepShape, StepTimer, fuse, kinds, needed, only, options, timing,
};
use mettle_bench::others::{self, Others};
use mettle_cpu::CpuBackend;
use mettle_models::Model;
use mettle_plan::{Backend, Plan};
use serde::Serialize;
use std::io::{self, Write};

/// Rows up to which a step is one of answers, not of a prompt.
const MOST_ANSWERS: usize = 64;
pub const ACTIVATION_BYTES: usize = size_of::<f32>();

#[derive(Serialize)]
struct Line<'a> {
    #[serde(flatten)]
    timing: &'a OpTiming,
    gigabytes_per_second: Option<f64>,
    gigaflops: Option<f64>,
    /// Of what memory or arithmetic, whichever binds, would allow.
    ceiling_share: Option<f64>,
    threads: usize,
    context: usize,
    model: &'a str,
    backend: &'static str,
    commit: &'static str,
}

pub fn run(args: &BenchKernelsArgs, settings: &Settings) -> anyhow::Result<()> {
    let interrupt = Interrupt::install()?;
    let path = session::fetch(settings, &interrupt)?;
    let model = Model::open(&path, session::open_options(settings))?;
    let mut plan = session::only_plan(&model)?;
    fuse(&mut plan, &settings.disable_pass)?;
    let shapes: Vec<StepShape> = args.rows.iter().map(|rows| shape(*rows, args)).collect();
    let is_wanted = |kind: &OpKind| {
        let labels = shapes.iter().map(|shape| kind.label(shape.rows));
        labels.into_iter().any(|label| label.contains(&args.filter))
    };
    let kinds: Vec<OpKind> = kinds(&plan).into_iter().filter(is_wanted).collect();
    if kinds.is_empty() {
        bail!("no op of {} has {:?} in its name", model.name, args.filter);
    }
    let backend = CpuBackend::with_isa(settings.threads, settings.cpu_isa);
    note(&format!("device    {}", backend.describe()));
    let ceilings = Ceilings::measure(settings.threads, integer_loop(settings.cpu_isa));
    note(&format!(
        "ceiling   {:.1} GB/s, {:.1} GFLOP/s in f32, {:.1} Gop/s in 16-bit integers (measured)",
        ceilings.read_bytes_per_second / 1e9,
        ceilings.flops_per_second / 1e9,
        ceilings.integer_ops_per_second / 1e9
    ));
    let others = Others::watch();
    let timer = StepTimer::new(model.vocab_size);
    let measure =
        |kind: Option<&OpKind>| time_all(&backend, &plan, &model, settings, &shapes, &timer, kind);
    let without = measure(None)?;
    let mut counter = Counter::new("kinds of ops");
    let mut timings = Vec::new();
    for (number, kind) in kinds.iter().enumerate() {
        if interrupt.is_pressed() {
            return Err(Interrupted.into());
        }
        let with = measure(Some(kind))?;
        let without = match needed(&plan, kind) {
            Some(needed) => measure(Some(&needed))?,
            None => without.clone(),
        };
        for ((shape, with), without) in shapes.iter().zip(with).zip(&without) {
            if kind.label(shape.rows).contains(&args.filter) {
                let timing = timing(&plan, kind, shape, with, *without, ACTIVATION_BYTES);
                timings.push((*shape, timing));
            }
        }
        counter.at(number + 1, kinds.len(), &kind.name);
    }
    let busy = others.busy_cores();
    // By step, so that what a step's time is made of stands together.
    let mut out = io::stdout().lock();
    if !args.json {
        let head = ["us", "GB/s", "GFLOP/s", "% ceiling", "us/step"];
        let [us, bytes, flops, share, step] = head;
        writeln!(
            out,
            "{:<28} {:>5} {:>6} {us:>10} {bytes:>8} {flops:>9} {share:>10} {step:>10}",
            "op", "rows", "calls"
        )?;
    }
    for wanted in &shapes {
        for (_, timing) in timings.iter().filter(|(shape, _)| shape == wanted) {
            let (bytes, flops) = (timing.bytes, timing.flops);
            let least = ceilings.least_seconds(bytes, flops, timing.in_integers);
            let line = Line {
                timing,
                gigabytes_per_second: timing.seconds.map(|seconds| bytes / seconds / 1e9),
                gigaflops: timing.seconds.map(|seconds| flops / seconds / 1e9),
                ceiling_share: timing.seconds.map(|seconds| least / seconds),
                threads: settings.threads,
                context: args.context,
                model: &model.name,
                backend: backend.name(),
                commit: env!("METTLE_COMMIT"),
            };
            match args.json {
                true => writeln!(out, "{}", serde_json::to_string(&line)?)?,
                false => row(&mut out, &line)?,
            }
        }
    }
    if let Some(busy) = busy.filter(|busy| *busy > others::MANY) {
        note(&format!(
            "note: meanwhile other programs kept {busy:.1} cores busy; times are not to be trusted"
        ));
    }
    Ok(())
}

pub fn shape(rows: usize, args: &BenchKernelsArgs) -> StepShape {
    StepShape {
        rows,
        context: args.context,
        is_prefill: rows > MOST_ANSWERS,
    }
}

/// The time of each step of a plan with only these ops.
fn time_all(
    backend: &CpuBackend,
    plan: &Plan,
    model: &Model,
    settings: &Settings,
    shapes: &[StepShape],
    timer: &StepTimer,
    kind: Option<&OpKind>,
) -> anyhow::Result<Vec<f64>> {
    let options = options(shapes, model.vocab_size);
    let rows = shapes.iter().map(|shape| shape.rows).max().unwrap_or(1);
    let roomy = Settings {
        max_num_batched_tokens: rows,
        ..settings.clone()
    };
    let part = only(plan, kind);
    let mut executable = prepare_plan(backend, part, &*model.tensors, &roomy, &options)?;
    let times = shapes
        .iter()
        .map(|shape| timer.time(&mut *executable, shape));
    Ok(times.collect::<Result<_, _>>()?)
}

fn row(out: &mut impl Write, line: &Line) -> io::Result<()> {
    let timing = line.timing;
    let cell = |value: Option<f64>, digits: usize| match value {
        Some(value) => format!("{value:.digits$}"),
        // Lost in the noise.
        None => "-".to_owned(),
    };
    let microseconds = timing.seconds.map(|seconds| seconds * 1e6);
    writeln!(
        out,
        "{:<28} {:>5} {:>6} {:>10} {:>8} {:>9} {:>10} {:>10}",
        timing.name,
        timing.rows,
        timing.count,
        cell(microseconds, 1),
        cell(line.gigabytes_per_second, 2),
        cell(line.gigaflops, 2),
        cell(line.ceiling_share.map(|share| share * 100.0), 1),
        cell(microseconds.map(|us| us * timing.count as f64), 0)
    )
}
