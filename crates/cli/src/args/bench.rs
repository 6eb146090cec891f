//! Owns what can be typed after `mettle bench`.

use super::{EngineArgs, above_zero, step_rows};
use clap::{Args, Subcommand, ValueEnum};
use mettle_bench::load::{Goal, Rate};
use std::path::PathBuf;

#[derive(Debug, Subcommand)]
pub enum BenchCommand {
    /// Times a fixed batch: prompts together, then one token each a step
    Latency(BenchLatencyArgs),
    /// Answers many prompts through the engine, as fast as it can
    Throughput(BenchThroughputArgs),
    /// Puts load on a running server: latencies, throughput, goodput; one load or a sweep
    Serve(BenchServeArgs),
    /// Times single kernels: every kind of op of a model on the CPU, matrix products on a GPU
    Kernels(BenchKernelsArgs),
    /// Puts two records side by side
    Compare(BenchCompareArgs),
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  mettle bench latency --input-len 512 --output-len 64
  mettle bench latency -m ./llama-8b --load-format dummy --device cuda --batch 16 --json

The first run warms up and does not count; best, median and worst of the others are given.")]
pub struct BenchLatencyArgs {
    /// Name, hub id, .gguf file or folder (smollm2:135m)
    #[arg(short, long, value_name = "MODEL")]
    pub model: Option<String>,
    /// Tokens of each prompt
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = above_zero)]
    pub input_len: usize,
    /// Tokens of each answer
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = above_zero)]
    pub output_len: usize,
    /// Sequences at a time
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = step_rows)]
    pub batch: usize,
    /// Runs that count
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = above_zero)]
    pub repeats: usize,
    /// Also times every kernel of a step on its own (GPUs)
    #[arg(long)]
    pub kernels: bool,
    /// Also measures what all threads read from memory right before and after each run's answers
    #[arg(long)]
    pub memory: bool,
    /// Prints one JSON object
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub engine: EngineArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  mettle bench kernels --filter gemv/q4_1
  mettle bench kernels -m ./model.gguf --rows 1,16 --context 2048 --json
  mettle bench kernels --types --rows 1
  mettle bench kernels --device cuda --filter linear/bf16/1x

On the CPU, every kind of op of a model is timed alone, as all layers run it one after another, and set
against what the machine can read and compute at the most (products of quantized weights in 16-bit
integers, all else in f32), which is measured first. On a GPU, matrix products of an 8B model's shapes
are timed, named linear/TYPE/MxNxK.")]
pub struct BenchKernelsArgs {
    /// The model whose ops are timed on the CPU: name, hub id, .gguf file or folder (smollm2:135m)
    #[arg(short, long, value_name = "MODEL")]
    pub model: Option<String>,
    /// Only ops whose name contains this
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub filter: String,
    /// Rows of a step on the CPU: up to 64 are one token each of so many answers, more are a prompt
    #[arg(long, value_name = "N", value_delimiter = ',', default_values_t = [1, 8, 512], value_parser = step_rows)]
    pub rows: Vec<usize>,
    /// Tokens that each answer's token sees on the CPU
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = above_zero)]
    pub context: usize,
    /// Times one product in every weight type on the CPU instead, and sets it against Q4_1
    #[arg(long, conflicts_with = "model")]
    pub types: bool,
    /// Times every matrix tile of a GPU there is a kernel for, not only the one that would be chosen
    #[arg(long)]
    pub all_tiles: bool,
    /// Prints one JSON object a line
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub engine: EngineArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  mettle bench throughput --num-prompts 64 --input-len 256 --output-len 64
  mettle bench throughput -m ./model.gguf --max-num-seqs 16 --repeats 3 --json

All prompts are there from the start; none shares its beginning with another.")]
pub struct BenchThroughputArgs {
    /// Name, hub id, .gguf file or folder (smollm2:135m)
    #[arg(short, long, value_name = "MODEL")]
    pub model: Option<String>,
    /// Prompts to answer
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = above_zero)]
    pub num_prompts: usize,
    /// Tokens of each prompt
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = above_zero)]
    pub input_len: usize,
    /// Tokens of each answer
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = above_zero)]
    pub output_len: usize,
    /// Answers that are made at a time (64)
    #[arg(long, value_name = "N")]
    pub max_num_seqs: Option<String>,
    /// Runs that count, with prompts of their own
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = above_zero)]
    pub repeats: usize,
    /// Prints one JSON object
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub engine: EngineArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  mettle bench latency --json > before.json
  mettle bench compare before.json after.json
  mettle bench compare a.json b.json --filter ttft

Any record that `mettle bench` writes will do. Repeated measurements are compared by their medians; their
spreads overlap if the worst of one is not clearly beyond the best of the other: then there is no winner.")]
pub struct BenchCompareArgs {
    /// The record to compare with
    pub a: PathBuf,
    /// The other record
    pub b: PathBuf,
    /// Only numbers whose name contains this
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub filter: String,
    /// Prints one JSON object
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DatasetKind {
    /// Random tokens
    Random,
    /// Random tokens after one of a few shared beginnings
    #[value(alias = "prefix_repetition")]
    Prefix,
    /// First turns of the conversations in --dataset-path
    #[value(alias = "sharegpt")]
    SharegptFile,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum EndpointKind {
    /// /v1/completions
    #[value(alias = "/v1/completions")]
    Completions,
    /// /v1/chat/completions
    #[value(alias = "/v1/chat/completions")]
    Chat,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  mettle bench serve --max-concurrency 16 --num-prompts 200
  mettle bench serve --request-rate 1,2,4,8,inf --goodput ttft:500 tpot:50 --html report.html
  mettle bench serve --max-concurrency 1,2,4,8,16 --dataset prefix --prefix-len 512 --json sweep.json

Names and meanings are those of `vllm bench serve`. A list of rates or of concurrencies makes a sweep.
Times count from sending a request; TPOT is (last token - first token) / (tokens - 1); goodput counts
requests that met every goal. Each load has prompts of its own, so that none is found in a prefix cache.")]
pub struct BenchServeArgs {
    /// Where the server is
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8000")]
    pub base_url: String,
    /// The model's name there (the first that the server names)
    #[arg(short, long, value_name = "NAME")]
    pub model: Option<String>,
    /// Key to send along
    #[arg(
        long,
        value_name = "KEY",
        env = "OPENAI_API_KEY",
        hide_env_values = true
    )]
    pub api_key: Option<String>,
    /// What requests are sent to
    #[arg(long, value_name = "NAME", value_enum, default_value = "completions")]
    pub endpoint: EndpointKind,
    /// Requests a second, at random moments; inf sends them all at once. A list makes a sweep
    #[arg(long, value_name = "R", value_delimiter = ',', default_value = "inf")]
    pub request_rate: Vec<Rate>,
    /// Requests under way at a time (no limit). A list makes a sweep
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = above_zero)]
    pub max_concurrency: Vec<usize>,
    /// Requests of each load
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = above_zero)]
    pub num_prompts: usize,
    /// Where prompts come from
    #[arg(
        long,
        alias = "dataset-name",
        value_name = "NAME",
        value_enum,
        default_value = "random"
    )]
    pub dataset: DatasetKind,
    /// A JSON file of conversations in ShareGPT's form
    #[arg(long, value_name = "FILE")]
    pub dataset_path: Option<PathBuf>,
    /// Tokens of each prompt; with --dataset prefix, those after its beginning
    #[arg(long, aliases = ["random-input-len", "prefix-repetition-suffix-len"], value_name = "N", default_value_t = 256, value_parser = above_zero)]
    pub input_len: usize,
    /// Tokens of each answer (64; recorded ones: as long as they are)
    #[arg(long, aliases = ["random-output-len", "prefix-repetition-output-len", "sharegpt-output-len"], value_name = "N", value_parser = above_zero)]
    pub output_len: Option<usize>,
    /// Draws both lengths from len * (1 - R) to len * (1 + R); with --dataset random
    #[arg(long, alias = "random-range-ratio", value_name = "R", default_value_t = 0.0, value_parser = share_below_one)]
    pub range_ratio: f64,
    /// Tokens of each shared beginning
    #[arg(long, alias = "prefix-repetition-prefix-len", value_name = "N", default_value_t = 256, value_parser = above_zero)]
    pub prefix_len: usize,
    /// Shared beginnings
    #[arg(long, alias = "prefix-repetition-num-prefixes", value_name = "N", default_value_t = 4, value_parser = above_zero)]
    pub num_prefixes: usize,
    /// Fixes prompts and arrivals
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed: u64,
    /// Requests before each load that do not count
    #[arg(long, alias = "num-warmups", value_name = "N", default_value_t = 2)]
    pub warmup: usize,
    /// ttft, tpot or e2el with milliseconds, as ttft:500; may be given several times
    #[arg(long, value_name = "NAME:MS", num_args = 1..)]
    pub goodput: Vec<Goal>,
    /// Answers go on to their full length (made prompts: true, recorded ones: false)
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub ignore_eos: Option<bool>,
    /// 0 always takes the most likely token
    #[arg(long, value_name = "T", default_value_t = 0.0, value_parser = super::temperature)]
    pub temperature: f64,
    /// Seconds after which a request counts as failed
    #[arg(long, value_name = "SECONDS", default_value_t = 600, value_parser = above_zero)]
    pub timeout: usize,
    /// Writes all figures, with every request's, as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Writes a page with charts
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

fn share_below_one(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|r| (0.0..1.0).contains(r));
    number.ok_or_else(|| "it must be at least 0 and below 1".to_owned())
}
