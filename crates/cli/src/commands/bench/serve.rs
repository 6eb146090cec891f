//! Owns `mettle bench serve`: one load or a sweep of loads on a running server, and where the figures go.

use super::load_table;
use crate::args::{BenchServeArgs, DatasetKind, EndpointKind};
use crate::config::ConfigError;
use crate::interrupt::{Interrupt, Interrupted};
use crate::terminal::{Counter, note};
use anyhow::{Context, bail};
use mettle_bench::load::{
    BaseUrl, Dataset, Drive, Endpoint, LoadRecord, Point, Rate, RequestOptions, Server, Summary,
    drive,
};
use mettle_bench::report;
use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Tokens of an answer to a made prompt.
const OUTPUT_LEN: usize = 64;
/// Keeps the seeds of warm-ups away from those of loads.
const WARMUP_SEEDS: u64 = 1 << 40;

pub fn run(args: BenchServeArgs) -> anyhow::Result<()> {
    let loads = loads(&args)?;
    let dataset = dataset(&args)?;
    let url = BaseUrl::parse(&args.base_url)?;
    for file in [&args.json, &args.html].into_iter().flatten() {
        check_writable(file)?;
    }
    let interrupt = Interrupt::install()?;
    // One thread is enough to send, and leaves the cores to a server on the same machine.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start a runtime")?;
    let record = runtime.block_on(async {
        let connecting = Server::connect(
            url,
            args.api_key.clone(),
            args.model.clone(),
            endpoint(&args),
        );
        let server = tokio::select! {
            server = connecting => server?,
            () = pressed(&interrupt) => return Err(anyhow::Error::from(Interrupted)),
        };
        sweep(&args, &server, &dataset, &loads, &interrupt).await
    })?;
    if let Some(file) = &args.json {
        let text = serde_json::to_string(&record.json())?;
        fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))?;
    }
    if let Some(file) = &args.html {
        fs::write(file, report::html(&record))
            .with_context(|| format!("cannot write {}", file.display()))?;
        note(&format!("report    {}", file.display()));
    }
    if record.is_interrupted {
        return Err(Interrupted.into());
    }
    if record
        .points
        .iter()
        .all(|point| point.summary.completed == 0)
    {
        bail!("no request succeeded");
    }
    Ok(())
}

async fn sweep(
    args: &BenchServeArgs,
    server: &Server,
    dataset: &Dataset,
    loads: &[(Rate, Option<usize>)],
    interrupt: &Interrupt,
) -> anyhow::Result<LoadRecord> {
    note(&format!(
        "server    {}, {} ({}, prompts as {})",
        args.base_url,
        server.model,
        server.endpoint.path(),
        server.prompts_are()
    ));
    note(&format!("dataset   {}", dataset.describe()));
    let mut record = LoadRecord {
        model: server.model.clone(),
        base_url: args.base_url.clone(),
        endpoint: server.endpoint.path(),
        dataset: dataset.describe(),
        prompts_are: server.prompts_are(),
        ignore_eos: args.ignore_eos.unwrap_or(dataset.ignores_eos()),
        temperature: args.temperature,
        warmup: args.warmup,
        goals: args.goodput.clone(),
        date: chrono::Utc::now()
            .format("%Y-%m-%d %H:%M:%S UTC")
            .to_string(),
        commit: env!("METTLE_COMMIT").to_owned(),
        command: command_line(std::env::args()),
        is_interrupted: false,
        points: Vec::new(),
    };
    // Prompts of an earlier run with the same seed may still be in the server's prefix cache.
    let run = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let run = format!("mettle-bench-{}", run.as_nanos());
    let mut start = None;
    for (number, (rate, concurrency)) in loads.iter().enumerate() {
        let seed = args.seed.wrapping_add(number as u64);
        let options = RequestOptions {
            endpoint: server.endpoint,
            model: server.model.clone(),
            ignore_eos: record.ignore_eos,
            temperature: args.temperature,
            timeout: Duration::from_secs(args.timeout as u64),
            cache_salt: format!("{run}-{number}"),
        };
        let plan = |prompts, rate| Drive {
            options: options.clone(),
            prompts,
            rate,
            concurrency: *concurrency,
            seed,
        };
        let warmup = dataset
            .prompts(server, args.warmup, seed.wrapping_add(WARMUP_SEEDS))
            .await?;
        let prompts = dataset.prompts(server, args.num_prompts, seed).await?;
        let flag = interrupt.flag();
        drive(server, plan(warmup, Rate::Unlimited), &flag, &mut |_| {}).await;
        let began = start
            .get_or_insert_with(Instant::now)
            .elapsed()
            .as_secs_f64();
        let mut counter = Counter::new("requests");
        let run = drive(server, plan(prompts, *rate), &flag, &mut |now| {
            let speed = now.output_tokens as f64 / now.seconds.max(1e-9);
            let failed = match now.failed {
                0 => String::new(),
                count => format!(", {count} failed"),
            };
            counter.at(now.ended, now.total, &format!("{speed:.1} tok/s{failed}"));
        })
        .await;
        drop(counter);
        let point = Point {
            rate: *rate,
            concurrency: *concurrency,
            prompts: args.num_prompts,
            seed,
            began,
            summary: Summary::of(&run, &args.goodput),
            run,
        };
        load_table::print_point(&point)?;
        record.points.push(point);
        if interrupt.is_pressed() {
            record.is_interrupted = true;
            break;
        }
    }
    if record.points.len() > 1 {
        load_table::print_sweep(&record)?;
    }
    Ok(record)
}

/// The loads of a sweep, in their order.
fn loads(args: &BenchServeArgs) -> anyhow::Result<Vec<(Rate, Option<usize>)>> {
    if args.request_rate.len() > 1 && args.max_concurrency.len() > 1 {
        let text = "a sweep goes over --request-rate or over --max-concurrency, not over both";
        return Err(ConfigError(text.to_owned()).into());
    }
    let limits: Vec<Option<usize>> = match args.max_concurrency.is_empty() {
        true => vec![None],
        false => args.max_concurrency.iter().copied().map(Some).collect(),
    };
    let pairs = args
        .request_rate
        .iter()
        .flat_map(|rate| limits.iter().map(move |limit| (*rate, *limit)));
    Ok(pairs.collect())
}

fn dataset(args: &BenchServeArgs) -> anyhow::Result<Dataset> {
    let output_len = args.output_len.unwrap_or(OUTPUT_LEN);
    Ok(match (args.dataset, &args.dataset_path) {
        (DatasetKind::SharegptFile, Some(path)) => Dataset::conversations(path, args.output_len)?,
        (DatasetKind::SharegptFile, None) => {
            let text = "--dataset sharegpt-file needs --dataset-path";
            return Err(ConfigError(text.to_owned()).into());
        }
        (_, Some(_)) => {
            let text = "--dataset-path is read only with --dataset sharegpt-file";
            return Err(ConfigError(text.to_owned()).into());
        }
        (DatasetKind::Random, None) => Dataset::Random {
            input_len: args.input_len,
            output_len,
            spread: args.range_ratio,
        },
        (DatasetKind::Prefix, None) => Dataset::Prefix {
            prefix_len: args.prefix_len,
            prefixes: args.num_prefixes,
            input_len: args.input_len,
            output_len,
        },
    })
}

fn endpoint(args: &BenchServeArgs) -> Endpoint {
    match args.endpoint {
        EndpointKind::Completions => Endpoint::Completions,
        EndpointKind::Chat => Endpoint::Chat,
    }
}

async fn pressed(interrupt: &Interrupt) {
    while !interrupt.is_pressed() {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// A file that cannot be written is told before the run, not after it.
fn check_writable(file: &PathBuf) -> anyhow::Result<()> {
    let opened = OpenOptions::new().append(true).create(true).open(file);
    opened.with_context(|| format!("cannot write {}", file.display()))?;
    Ok(())
}

/// The command as it was typed, without its secrets and without the way to the program.
fn command_line(mut words: impl Iterator<Item = String>) -> String {
    let program = words.next().unwrap_or_default();
    let program = Path::new(&program).file_name().unwrap_or_default();
    let mut line = program.to_string_lossy().into_owned();
    let mut is_secret = false;
    for word in words {
        line.push(' ');
        match (is_secret, word.strip_prefix("--api-key")) {
            (true, _) => line.push_str("..."),
            (false, Some(value)) if value.starts_with('=') => line.push_str("--api-key=..."),
            _ if word.contains(' ') => line.push_str(&format!("'{word}'")),
            _ => line.push_str(&word),
        }
        is_secret = !is_secret && word == "--api-key";
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_is_recorded_without_its_key() {
        let line = |words: &[&str]| command_line(words.iter().map(|w| (*w).to_owned()));
        assert_eq!(
            line(&[
                "/a/b/mettle",
                "bench",
                "--api-key",
                "secret",
                "--model",
                "a b"
            ]),
            "mettle bench --api-key ... --model 'a b'"
        );
        assert_eq!(
            line(&["mettle", "--api-key=secret"]),
            "mettle --api-key=..."
        );
    }
}
