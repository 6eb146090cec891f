//! Owns `mettle bench kernels --types`: one product in every weight type, and each type's time per byte against Q4_1's.

use super::latency::prepare_plan;
use super::ops::{ACTIVATION_BYTES, shape};
use crate::args::BenchKernelsArgs;
use crate::config::Settings;
use crate::interrupt::{Interrupt, Interrupted};
use crate::terminal::{Counter, note};
use anyhow::Context;
use mettle_bench::ops::{OpKind, OpTiming, StepShape, StepTimer, kinds, only, options, timing};
use mettle_bench::type_products::{Products, VOCABULARY};
use mettle_cpu::CpuBackend;
use mettle_plan::{Backend, Executable, Plan};
use mettle_tensor::DType;
use mettle_weights::Dummy;
use serde::Serialize;
use std::io::{self, Write};

/// The output projection of an 8B Llama, so often that the smallest type does not fit a cache.
const PRODUCTS: Products = Products {
    rows: 4096,
    columns: 4096,
    count: 6,
};

/// Times that a type and Q4_1 are timed: an odd number.
const TURNS: usize = 5;

#[derive(Serialize)]
struct Line<'a> {
    #[serde(flatten)]
    timing: &'a OpTiming,
    gigabytes_per_second: Option<f64>,
    /// Time per byte, as a multiple of Q4_1's right before: the median of all turns.
    per_byte_of_q4_1: Option<f64>,
    threads: usize,
    backend: &'static str,
    commit: &'static str,
}

pub fn run(args: &BenchKernelsArgs, settings: &Settings) -> anyhow::Result<()> {
    let interrupt = Interrupt::install()?;
    let backend = CpuBackend::with_isa(settings.threads, settings.cpu_isa);
    note(&format!("device    {}", backend.describe()));
    let shapes: Vec<StepShape> = args.rows.iter().map(|rows| shape(*rows, args)).collect();
    let filter = args.filter.to_lowercase();
    let is_wanted = |dtype: &DType| dtype.name().to_lowercase().contains(&filter);
    let types: Vec<DType> = DType::ALL.into_iter().filter(is_wanted).collect();
    let mut measure = Timed::new(DType::Q4_1, &backend, settings, &shapes)?;
    let mut counter = Counter::new("types");
    let mut timings = Vec::new();
    for (number, dtype) in types.iter().enumerate() {
        if interrupt.is_pressed() {
            return Err(Interrupted.into());
        }
        let mut timed = Timed::new(*dtype, &backend, settings, &shapes)?;
        // In turns: other programs take their share of memory now more, now less.
        let mut ratios = vec![Vec::new(); shapes.len()];
        for _ in 0..TURNS {
            measure.time(&shapes)?;
            timed.time(&shapes)?;
            for (index, ratios) in ratios.iter_mut().enumerate() {
                let [of_type, of_q4_1] =
                    [&timed, &measure].map(|t| t.last_per_byte(&shapes, index));
                ratios.extend(of_type.zip(of_q4_1).map(|(a, b)| a / b));
            }
        }
        let ratios: Vec<_> = ratios.into_iter().map(median).collect();
        timings.push((timed.timings(&shapes), ratios));
        counter.at(number + 1, types.len(), dtype.name());
    }
    let mut out = io::stdout().lock();
    if !args.json {
        let head = ["us", "GB/s", "x Q4_1 per byte"];
        let [us, bytes, share] = head;
        writeln!(
            out,
            "{:<28} {:>5} {us:>10} {bytes:>8} {share:>16}",
            "op", "rows"
        )?;
    }
    for index in 0..shapes.len() {
        for (timings, ratios) in &timings {
            let timing = &timings[index];
            let line = Line {
                timing,
                gigabytes_per_second: timing.seconds.map(|s| timing.bytes / s / 1e9),
                per_byte_of_q4_1: ratios[index],
                threads: settings.threads,
                backend: backend.name(),
                commit: env!("METTLE_COMMIT"),
            };
            match args.json {
                true => writeln!(out, "{}", serde_json::to_string(&line)?)?,
                false => row(&mut out, &line)?,
            }
        }
    }
    Ok(())
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

/// The products of a type, ready to be timed, and the best and last times.
struct Timed {
    plan: Plan,
    kind: OpKind,
    /// With the products, and without.
    executables: [Box<dyn Executable>; 2],
    best: Vec<[f64; 2]>,
    last: Vec<[f64; 2]>,
    timer: StepTimer,
}

impl Timed {
    fn new(
        dtype: DType,
        backend: &CpuBackend,
        settings: &Settings,
        shapes: &[StepShape],
    ) -> anyhow::Result<Timed> {
        let plan = PRODUCTS.plan(dtype);
        let weights = Dummy::new(plan.tensors(), 1)?;
        let kind = kinds(&plan).pop().context("a plan without products")?;
        let roomy = Settings {
            max_num_batched_tokens: shapes.iter().map(|s| s.rows).max().context("no rows")?,
            ..settings.clone()
        };
        let options = options(shapes, VOCABULARY);
        let prepare = |kind| {
            let part = only(&plan, kind);
            prepare_plan(backend, part, &weights, &roomy, &options)
        };
        Ok(Timed {
            executables: [prepare(Some(&kind))?, prepare(None)?],
            best: vec![[f64::INFINITY; 2]; shapes.len()],
            last: vec![[f64::INFINITY; 2]; shapes.len()],
            timer: StepTimer::new(VOCABULARY),
            plan,
            kind,
        })
    }

    fn time(&mut self, shapes: &[StepShape]) -> anyhow::Result<()> {
        for (index, shape) in shapes.iter().enumerate() {
            for (which, executable) in self.executables.iter_mut().enumerate() {
                let seconds = self.timer.time(&mut **executable, shape)?;
                self.last[index][which] = seconds;
                self.best[index][which] = self.best[index][which].min(seconds);
            }
        }
        Ok(())
    }

    /// The best times of one product, in each step.
    fn timings(&self, shapes: &[StepShape]) -> Vec<OpTiming> {
        let times = shapes.iter().zip(&self.best);
        times
            .map(|(shape, [with, without])| self.timing(shape, *with, *without))
            .collect()
    }

    /// Of the last turn. What a step takes without products hardly changes: its best counts.
    fn last_per_byte(&self, shapes: &[StepShape], index: usize) -> Option<f64> {
        let ([with, _], [_, without]) = (self.last[index], self.best[index]);
        let timing = self.timing(&shapes[index], with, without);
        Some(timing.seconds? / timing.bytes)
    }

    fn timing(&self, shape: &StepShape, with: f64, without: f64) -> OpTiming {
        timing(
            &self.plan,
            &self.kind,
            shape,
            with,
            without,
            ACTIVATION_BYTES,
        )
    }
}

fn row(out: &mut impl Write, line: &Line) -> io::Result<()> {
    let cell = |value: Option<f64>, digits: usize| match value {
        Some(value) => format!("{value:.digits$}"),
        // Lost in the noise.
        None => "-".to_owned(),
    };
    writeln!(
        out,
        "{:<28} {:>5} {:>10} {:>8} {:>16}",
        line.timing.name,
        line.timing.rows,
        cell(line.timing.seconds.map(|seconds| seconds * 1e6), 1),
        cell(line.gigabytes_per_second, 2),
        cell(line.per_byte_of_q4_1, 2)
    )
}
