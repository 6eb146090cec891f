//! Owns `mettle validate`: a device's kernels against exact results, and a model's layers against the CPU.

use super::settings;
use crate::args::ValidateArgs;
use crate::config::{Device, Settings, engine_flags};
use crate::device::{Candidate, candidates};
use crate::interrupt::Interrupt;
use crate::session;
use crate::terminal::{Counter, note, paint};
use anyhow::{Context, bail};
use mettle_cpu::CpuBackend;
use mettle_cuda::CudaGpu;
use mettle_gpu::{Gpu, SuiteGpu};
use mettle_kernels::suite::{self, SuiteDevice};
use mettle_metal::MetalGpu;
use mettle_models::Model;
use mettle_plan::{Backend, BackendError};
use mettle_tensor::DType;
use mettle_text::SpecialTokens;
use mettle_validate::{Comparison, ValidateError, check_fixture, compare};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// What both backends read. Long enough for any `--tokens` that one would wait for; it is repeated beyond that.
const TEXT: &str = "The lighthouse keeper wrote the same three things in his book every evening: the hour at which \
he lit the lamp, the direction of the wind, and the number of ships that had passed since noon. In forty years he had \
missed only one day, and of that day he never spoke. 17 ships, wind from the north-west, lamp lit at 18:42.\n";

/// Relative differences of a tap, about six times the largest seen with right kernels: 0.0034 in f16 (SmolLM2-135M), 0.017 in
/// bf16 (a tiny Llama).
const F16_TAP_LIMIT: f64 = 0.02;
const BF16_TAP_LIMIT: f64 = 0.1;
/// Mean difference of log-probabilities: twice what running transformers itself in f16 and in bf16 costs on the fixture
/// where it costs most (0.0092 and 0.0751).
const F16_LIMIT: f64 = 0.02;
const BF16_LIMIT: f64 = 0.15;

pub fn run(args: ValidateArgs) -> anyhow::Result<()> {
    let settings = settings(engine_flags(args.model.as_ref(), &args.engine))?;
    match (&args.fixtures, args.kernels) {
        (Some(folder), _) => fixtures(folder, &settings),
        (None, true) => kernels(&args, &settings),
        (None, false) => model(&args, &settings),
    }
}

fn fixtures(folder: &Path, settings: &Settings) -> anyhow::Result<()> {
    let Candidate { backend, reason } = candidates(settings)?.swap_remove(0);
    note(&format!("device    {} ({reason})", backend.describe()));
    let entries = std::fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    let mut folders: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.join("reference.json").exists())
        .collect();
    folders.sort();
    let (mut ran, mut failed) = (0, 0);
    for folder in &folders {
        let has = |name: &str| folder.join(name).exists();
        let safetensors = has("config.json").then_some("");
        let gguf = has("model.gguf").then_some("model.gguf");
        for file in safetensors.into_iter().chain(gguf) {
            let results = match check_fixture(folder, file, &*backend) {
                Err(ValidateError::Backend(refused @ BackendError::Unsupported { .. })) => {
                    println!("{:<40} not run: {refused}", folder.join(file).display());
                    continue;
                }
                results => results?,
            };
            for result in results {
                let verdict = if result.is_within() { "" } else { "  <-" };
                println!(
                    "{:<40} {:>4} tokens in chunks of {:>3}: mean {:.6}, largest {:.6}, allowed mean {:.6}{verdict}",
                    result.model.display(),
                    result.length,
                    result.chunk,
                    result.difference.mean,
                    result.difference.max,
                    result.allowed_mean
                );
                ran += 1;
                failed += usize::from(!result.is_within());
            }
        }
    }
    match (ran, failed) {
        (0, _) => bail!(
            "{} holds no fixture (a folder with reference.json)",
            folder.display()
        ),
        (_, 0) => {
            println!("{ran} texts within what f16 allows, every kernel of each plan counted");
            Ok(())
        }
        _ => bail!("{failed} of {ran} texts differ by more than f16 allows"),
    }
}

fn kernels(args: &ValidateArgs, settings: &Settings) -> anyhow::Result<()> {
    match settings.device {
        Device::Metal => on(MetalGpu::open()?, args),
        Device::Cuda => on(CudaGpu::open()?, args),
        Device::Emulator => emulated(args),
        Device::Cpu => {
            bail!("the CPU backend has no such kernels: --device metal, cuda or emulator")
        }
        Device::Auto => match (MetalGpu::open(), CudaGpu::open()) {
            (Ok(gpu), _) => on(gpu, args),
            (_, Ok(gpu)) => on(gpu, args),
            (Err(metal), Err(cuda)) => bail!("{metal}; {cuda}"),
        },
    }
}

#[cfg(feature = "emulator")]
fn emulated(args: &ValidateArgs) -> anyhow::Result<()> {
    on(crate::device::emulated()?, args)
}

#[cfg(not(feature = "emulator"))]
fn emulated(_: &ValidateArgs) -> anyhow::Result<()> {
    bail!("emulator is not available: this binary was built without the feature `emulator`")
}

fn on<G: Gpu>(gpu: G, args: &ValidateArgs) -> anyhow::Result<()> {
    note(&format!("device    {}", gpu.describe()));
    let start = Instant::now();
    let repeats = u32::try_from(args.repeats).context("--repeats")?;
    let report = with_progress(&mut SuiteGpu::new(gpu), &args.filter, repeats);
    for (name, message) in &report.failed {
        println!(
            "{} {name}: {message}",
            paint(&io::stdout(), "1;31", "FAILED")
        );
    }
    let ran = report.passed + report.failed.len();
    if ran == 0 {
        bail!("no kernel test has {:?} in its name", args.filter);
    }
    println!(
        "{} of {ran} kernel tests passed in {:.1} s",
        report.passed,
        start.elapsed().as_secs_f64()
    );
    match report.failed.len() {
        0 => Ok(()),
        failed => bail!("{failed} kernel tests failed on this device"),
    }
}

fn with_progress(device: &mut dyn SuiteDevice, filter: &str, repeats: u32) -> suite::Report {
    let mut counter = Counter::new("kernel tests");
    suite::run(device, filter, repeats, &mut |progress| {
        counter.at(progress.done, progress.of, progress.name);
    })
}

fn model(args: &ValidateArgs, settings: &Settings) -> anyhow::Result<()> {
    let interrupt = Interrupt::install()?;
    let Candidate { backend, reason } = candidates(settings)?.swap_remove(0);
    let path = session::fetch(settings, &interrupt)?;
    let model = Model::open(&path, session::open_options(settings))?;
    let tokens = tokens_of(&model, args.tokens)?;
    note(&format!(
        "model     {} ({})",
        model.name,
        model.architecture()
    ));
    note(&format!("device    {} ({reason})", backend.describe()));
    let reference = CpuBackend::with_isa(settings.threads, settings.cpu_isa);
    note(&format!("reference {}", reference.describe()));
    let disabled = &settings.disable_pass;
    let comparison = compare(&model, &reference, &*backend, &tokens, disabled)?;
    let is_bf16 = |t: &mettle_tensor::TensorInfo| t.dtype == DType::BF16;
    let limits = match model.tensors.tensors().iter().any(is_bf16) {
        true => (BF16_TAP_LIMIT, BF16_LIMIT),
        false => (F16_TAP_LIMIT, F16_LIMIT),
    };
    show(&comparison, limits)
}

fn tokens_of(model: &Model, count: usize) -> anyhow::Result<Vec<u32>> {
    let count = count.min(model.context_length);
    let tokenizer = model.tokenizer()?;
    let ids = tokenizer.encode(TEXT, SpecialTokens::Parse, true)?;
    Ok(ids.into_iter().cycle().take(count).collect())
}

fn show(comparison: &Comparison, (tap_limit, limit): (f64, f64)) -> anyhow::Result<()> {
    println!("{:<28} {:>10} {:>12}", "tap", "relative", "largest");
    for tap in &comparison.taps {
        let mark = if tap.relative > tap_limit { "  <-" } else { "" };
        println!(
            "{:<28} {:>10.6} {:>12.6}{mark}",
            tap.name, tap.relative, tap.max
        );
    }
    let mean = comparison.log_probabilities.mean;
    println!(
        "log-probabilities: mean difference {mean:.6} (limit {limit}), largest {:.6}; the same most likely token at {} of {} places",
        comparison.log_probabilities.max, comparison.same_top, comparison.places
    );
    if let Some(first) = comparison.taps.iter().find(|t| t.relative > tap_limit) {
        bail!(
            "the device differs from the CPU first at {} ({:.4}, limit {tap_limit})",
            first.name,
            first.relative
        );
    }
    if mean > limit {
        bail!("the log-probabilities differ by {mean:.4} on average, limit {limit}");
    }
    Ok(())
}
