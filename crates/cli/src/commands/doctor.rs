//! Owns `mettle doctor`: the machine, which backend runs here and why, measured limits, how near to them a model's decode
//! comes, and what would make it faster.

use super::bench::latency::prepare;
use super::settings;
use crate::args::DoctorArgs;
use crate::config::{Settings, engine_flags};
use crate::device::{candidates, integer_loop};
use crate::session;
use crate::terminal::{bytes, note};
use mettle_bench::ceilings::Ceilings;
use mettle_bench::latency::{LatencyOptions, latency};
use mettle_bench::machine::Machine;
use mettle_bench::others::{self, Others};
use mettle_cpu::CpuBackend;
use mettle_cuda::CudaGpu;
use mettle_gpu::{Gpu, GpuError};
use mettle_metal::MetalGpu;
use mettle_models::Model;
use mettle_plan::{Backend, cost, passes};
use mettle_weights::download::{self, Home, Located};
use serde::Serialize;
use std::io::{self, Write};

/// The decode that is set against the machine: short, so that the answer comes within seconds.
const INPUT: usize = 128;
const OUTPUT: usize = 32;
/// A share of the limit below which something besides memory must be in the way.
const GOOD_SHARE: f64 = 0.6;

#[derive(Serialize)]
struct Report {
    commit: &'static str,
    machine: Machine,
    backends: Vec<BackendReport>,
    /// What `--device auto` (or the device that was named) comes to.
    chosen: String,
    /// Cores that other programs kept busy while the ceilings were measured, where the system tells.
    busy_cores: Option<f64>,
    one_thread: Ceilings,
    all_threads: Ceilings,
    decode: Option<Decode>,
    advice: Vec<String>,
}

#[derive(Serialize)]
struct BackendReport {
    name: &'static str,
    is_available: bool,
    /// Which device, or why there is none.
    about: String,
}

/// How fast a model answers on the CPU, and how fast memory would let it.
#[derive(Serialize)]
struct Decode {
    model: String,
    context: usize,
    bytes_per_token: u64,
    tokens_per_second: f64,
    limit_tokens_per_second: f64,
    roofline_share: f64,
}

pub fn run(args: DoctorArgs) -> anyhow::Result<()> {
    let settings = settings(engine_flags(args.model.as_ref(), &args.engine))?;
    let machine = Machine::look();
    let backends = backends(&settings);
    let candidate = candidates(&settings)?.swap_remove(0);
    let chosen = format!("{} ({})", candidate.backend.describe(), candidate.reason);
    let integers = integer_loop(settings.cpu_isa);
    let others = Others::watch();
    let one_thread = Ceilings::measure(1, integers);
    let all_threads = Ceilings::measure(settings.threads, integers);
    let (decode, no_model) = match cached_model(&settings)? {
        Ok(model) => (Some(decode(&model, &settings, &all_threads)?), None),
        Err(advice) => (None, Some(advice)),
    };
    let busy_cores = others.busy_cores();
    let mut advice = advice(&machine, busy_cores, &settings, &backends, decode.as_ref());
    advice.extend(no_model);
    let report = Report {
        commit: env!("METTLE_COMMIT"),
        machine,
        backends,
        chosen,
        busy_cores,
        one_thread,
        all_threads,
        decode,
        advice,
    };
    match args.json {
        true => writeln!(io::stdout(), "{}", serde_json::to_string(&report)?)?,
        false => show(&report)?,
    }
    Ok(())
}

fn backends(settings: &Settings) -> Vec<BackendReport> {
    let cpu = CpuBackend::with_isa(settings.threads, settings.cpu_isa);
    vec![
        gpu("metal", MetalGpu::open),
        gpu("cuda", CudaGpu::open),
        BackendReport {
            name: cpu.name(),
            is_available: true,
            about: cpu.describe(),
        },
    ]
}

fn gpu<G: Gpu>(name: &'static str, open: fn() -> Result<G, GpuError>) -> BackendReport {
    let opened = open();
    BackendReport {
        name,
        is_available: opened.is_ok(),
        about: match opened {
            Ok(gpu) => gpu.describe(),
            Err(GpuError::NotAvailable { why, .. }) => why,
            Err(other) => other.to_string(),
        },
    }
}

/// The model, if it can be had without a network; else what to do.
fn cached_model(settings: &Settings) -> anyhow::Result<Result<Model, String>> {
    let home = Home::discover(Some(settings.home.clone()))?;
    Ok(match download::locate(&settings.model, &home)? {
        Located::Path(path) => Ok(Model::open(&path, session::open_options(settings))?),
        Located::NotCached { name, .. } => Err(format!(
            "`mettle pull {name}` fetches a model; then this command also says how near to the limit it runs"
        )),
    })
}

fn decode(model: &Model, settings: &Settings, ceilings: &Ceilings) -> anyhow::Result<Decode> {
    note("measuring ...");
    let options = LatencyOptions {
        batch: 1,
        input_len: INPUT,
        output_len: OUTPUT,
        repeats: 3,
        vocabulary: model.vocab_size,
    };
    let backend = CpuBackend::with_isa(settings.threads, settings.cpu_isa);
    let mut executable = prepare(&backend, model, settings, &options)?;
    let result = latency(&mut *executable, &options, None, &mut |_| {})?;
    let mut plan = session::only_plan(model)?;
    passes::apply(&mut plan, &settings.disable_pass)?;
    let context = INPUT + OUTPUT / 2;
    let bytes_per_token = cost::decode(&plan, context).bytes;
    let tokens_per_second = result.decode.rate(OUTPUT as f64).best;
    let limit = ceilings.read_bytes_per_second / bytes_per_token as f64;
    Ok(Decode {
        model: model.name.clone(),
        context,
        bytes_per_token,
        tokens_per_second,
        limit_tokens_per_second: limit,
        roofline_share: tokens_per_second / limit,
    })
}

/// What would make it faster, the most helpful first.
fn advice(
    machine: &Machine,
    busy_cores: Option<f64>,
    settings: &Settings,
    backends: &[BackendReport],
    decode: Option<&Decode>,
) -> Vec<String> {
    let mut advice = Vec::new();
    if cfg!(debug_assertions) {
        advice.push("this is a debug build; `cargo build --release` makes a fast one".to_owned());
    }
    if let Some(busy) = busy_cores.filter(|busy| *busy > others::MANY) {
        advice.push(format!(
            "other programs kept {busy:.1} of {} cores busy meanwhile; figures here are lower for it",
            machine.logical_cores
        ));
    }
    for backend in backends {
        if backend.about.contains("feature") {
            advice.push(format!(
                "if there is a GPU here, a binary with {} would use it: {}",
                backend.name, backend.about
            ));
        }
    }
    if let Some(cores) = machine.fast_cores.or(machine.physical_cores) {
        if settings.threads > cores {
            advice.push(format!(
                "--threads {} is more than the {cores} cores; {cores} is usually faster",
                settings.threads
            ));
        } else if settings.threads < cores {
            advice.push(format!(
                "--threads {} leaves cores idle; there are {cores}",
                settings.threads
            ));
        }
    }
    if machine.governor.as_deref() == Some("powersave") {
        advice.push(
            "the clock is set to save power; the governor `performance` is faster".to_owned(),
        );
    }
    let has = |name: &str| machine.features.iter().any(|feature| feature == name);
    if cfg!(target_arch = "x86_64") && !machine.features.is_empty() && !(has("avx2") && has("fma"))
    {
        advice.push(
            "this processor has no AVX2 and FMA; kernels run in their scalar form".to_owned(),
        );
    }
    if let Some(decode) = decode {
        let share = decode.roofline_share * 100.0;
        advice.push(match decode.roofline_share < GOOD_SHARE {
            true => format!(
                "decode runs at {share:.0} % of what memory allows; `mettle bench kernels --rows 1` shows which op takes the time"
            ),
            false => format!(
                "decode runs at {share:.0} % of what memory allows: a smaller weight type, or answering several requests at a time, is what is left"
            ),
        });
    }
    advice
}

fn show(report: &Report) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let machine = &report.machine;
    writeln!(out, "processor {}", machine.processor)?;
    let physical = match machine.physical_cores {
        Some(cores) => format!("{cores} physical, "),
        None => String::new(),
    };
    writeln!(out, "cores     {physical}{} logical", machine.logical_cores)?;
    if !machine.features.is_empty() {
        writeln!(out, "features  {}", machine.features.join(" "))?;
    }
    if let Some(total) = machine.memory_bytes {
        let free = machine.free_memory_bytes;
        let free = free.map_or(String::new(), |free| format!(", {} free", bytes(free)));
        writeln!(out, "memory    {}{free}", bytes(total))?;
    }
    for backend in &report.backends {
        let state = if backend.is_available { "yes" } else { "no" };
        writeln!(out, "{:<9} {state}: {}", backend.name, backend.about)?;
    }
    writeln!(out, "chosen    {}", report.chosen)?;
    for ceilings in [&report.one_thread, &report.all_threads] {
        let threads = match ceilings.threads {
            1 => "1 thread".to_owned(),
            count => format!("{count} threads"),
        };
        writeln!(
            out,
            "measured  {threads}: reads {:.1} GB/s, computes {:.0} GFLOP/s in f32, {:.0} Gop/s in 16-bit integers",
            ceilings.read_bytes_per_second / 1e9,
            ceilings.flops_per_second / 1e9,
            ceilings.integer_ops_per_second / 1e9
        )?;
    }
    if let Some(decode) = &report.decode {
        writeln!(
            out,
            "decode    {}: {:.1} tok/s on the CPU at {} tokens of context, {:.0} % of the {:.0} tok/s that reading {} a token allows",
            decode.model,
            decode.tokens_per_second,
            decode.context,
            decode.roofline_share * 100.0,
            decode.limit_tokens_per_second,
            bytes(decode.bytes_per_token)
        )?;
    }
    for line in &report.advice {
        writeln!(out, "advice    {line}")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, Flags};

    #[test]
    fn advice_names_what_is_in_the_way() {
        let flags = Flags::from([("threads", "4".to_owned())]);
        let settings = Settings::new(&Config::resolve(flags, |_| None).unwrap()).unwrap();
        let machine = Machine {
            physical_cores: Some(2),
            logical_cores: 4,
            governor: Some("powersave".to_owned()),
            features: vec!["avx".to_owned()],
            ..Machine::default()
        };
        let backends = [BackendReport {
            name: "cuda",
            is_available: false,
            about: "this binary was built without the feature `cuda`".to_owned(),
        }];
        let decode = Decode {
            model: "m".to_owned(),
            context: 1,
            bytes_per_token: 1,
            tokens_per_second: 30.0,
            limit_tokens_per_second: 100.0,
            roofline_share: 0.3,
        };
        let found = advice(&machine, Some(1.5), &settings, &backends, Some(&decode)).join("\n");
        for part in [
            "1.5 of 4 cores",
            "with cuda",
            "--threads 4",
            "governor",
            "30 %",
        ] {
            assert!(found.contains(part), "{part} in {found}");
        }
    }
}
