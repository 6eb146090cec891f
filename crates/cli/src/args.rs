//! Owns what can be typed after `mettle`: commands, flags and the help that teaches them.
//! Values stay text here; `config` says what they mean and which of flag, environment and file wins.

mod bench;
mod quantize;

pub use bench::*;
pub use quantize::*;

use crate::config::MOST_STEP_ROWS;
use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Parser, Subcommand};
use mettle_plan::passes;
use std::path::PathBuf;

#[derive(Debug, Parser)]
#[command(
    name = "mettle",
    version,
    about = "Runs large language models on this machine",
    after_help = "Examples:
  mettle run \"What is the capital of Germany?\"
  mettle chat
  mettle serve --port 8000
  mettle plan -m smollm2:135m

MODEL is a catalogue name (mettle models), a hub id (owner/name), a .gguf file or a folder.
The default model is fetched on first use; after that no network is needed.",
    max_term_width = 100,
    disable_help_subcommand = true
)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Answers one prompt on stdout
    Run(RunArgs),
    /// Talks to a model in the terminal
    Chat(ChatArgs),
    /// Fetches a model into the cache
    Pull(PullArgs),
    /// Lists the models in the cache and in the catalogue
    Models,
    /// Says what a model's files hold, what memory it needs, and whether it can run here
    Inspect(InspectArgs),
    /// Makes a smaller .gguf file: the same model, its weights in another type
    Quantize(QuantizeArgs),
    /// Prints a model's forward pass: ops, shapes, bytes, FLOPs, barriers, KV cache
    Plan(PlanArgs),
    /// Prints every setting and where its value came from
    Config(ConfigArgs),
    /// Serves a model over HTTP, as OpenAI's API
    Serve(ServeArgs),
    /// Measures speed
    #[command(subcommand)]
    Bench(BenchCommand),
    /// Says what this machine can do, what Mettle makes of it, and what would make it faster
    Doctor(DoctorArgs),
    /// Says how well a model predicts a text; comparable with llama.cpp's figure
    Perplexity(PerplexityArgs),
    /// Checks a device: its kernels against exact results, or a model's layers against the CPU
    Validate(ValidateArgs),
}

/// Settings that every command with a running model has.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Engine")]
pub struct EngineArgs {
    /// Threads of the CPU backend (one for each core)
    #[arg(long, value_name = "N")]
    pub threads: Option<String>,
    /// Instructions of the CPU backend: scalar, avx2, avx_vnni, avx512, amx, neon, neon_dotprod, neon_i8mm (auto: the best there are)
    #[arg(long, value_name = "SET")]
    pub cpu_isa: Option<String>,
    /// Where the model runs: auto, metal, cuda, cpu or emulator (auto: the first of these that there is)
    #[arg(long, value_name = "DEVICE")]
    pub device: Option<String>,
    /// Makes it an error if the device cannot run the model; otherwise the CPU takes over
    #[arg(long)]
    pub strict: bool,
    /// Type of cached keys and values: f16 or f32 (f16)
    #[arg(long, value_name = "TYPE")]
    pub kv_cache_dtype: Option<String>,
    /// Memory for the KV cache, as 512M or 2G (what the context needs, at most 1/4 of what is free)
    #[arg(long, value_name = "BYTES")]
    pub kv_memory: Option<String>,
    /// Tokens of prompt and answer together (the model's own limit)
    #[arg(long, value_name = "N")]
    pub max_model_len: Option<String>,
    /// Tokens computed in one step, up to 65536 (512)
    #[arg(long, value_name = "N")]
    pub max_num_batched_tokens: Option<String>,
    /// Weights: auto reads the model's, dummy makes random ones from its config (auto)
    #[arg(long, value_name = "FORMAT")]
    pub load_format: Option<String>,
    /// Switches a rewrite of the plan off; may be given several times
    #[arg(long, value_name = "PASS")]
    pub disable_pass: Vec<String>,
    /// Computes every prompt from its first token
    #[arg(long, alias = "no-enable-prefix-caching")]
    pub no_prefix_cache: bool,
    /// Makes sampling repeatable
    #[arg(long, value_name = "N")]
    pub seed: Option<String>,
}

#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Sampling (default: what the model's makers say, else greedy)")]
pub struct SamplingArgs {
    /// 0 always takes the most likely token; up to 2
    #[arg(long, value_name = "T", allow_negative_numbers = true, value_parser = within::<0, 2>)]
    pub temperature: Option<f32>,
    /// Keeps the K most likely tokens; 0 keeps all
    #[arg(long, value_name = "K")]
    pub top_k: Option<usize>,
    /// Keeps the most likely tokens that together reach this probability
    #[arg(long, value_name = "P", allow_negative_numbers = true, value_parser = probability)]
    pub top_p: Option<f32>,
    /// Keeps tokens at least this share as likely as the most likely one
    #[arg(long, value_name = "P", allow_negative_numbers = true, value_parser = within::<0, 1>)]
    pub min_p: Option<f32>,
    /// Above 1 makes tokens of prompt and answer less likely to come again
    #[arg(long, value_name = "R", allow_negative_numbers = true, value_parser = factor)]
    pub repetition_penalty: Option<f32>,
    /// Above 0 makes tokens of the answer less likely to come again
    #[arg(long, value_name = "R", allow_negative_numbers = true, value_parser = within::<-2, 2>)]
    pub presence_penalty: Option<f32>,
    /// The same, once for each time a token has come
    #[arg(long, value_name = "R", allow_negative_numbers = true, value_parser = within::<-2, 2>)]
    pub frequency_penalty: Option<f32>,
    /// Ends the answer before this text; may be given several times
    #[arg(long, value_name = "TEXT", value_parser = NonEmptyStringValueParser::new())]
    pub stop: Vec<String>,
    /// Tokens of the answer at the most (what the context leaves)
    #[arg(long, value_name = "N", value_parser = above_zero)]
    pub max_tokens: Option<usize>,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  mettle run \"What is the capital of Germany?\"
  mettle run --max-tokens 50 --temperature 0.7 \"Write a haiku about rain\"
  cat report.txt | mettle run --system \"Summarize what you are given\" -
  mettle run --raw --stop . \"The quick brown fox\"

The answer goes to stdout and nothing else does.")]
pub struct RunArgs {
    /// The prompt; - reads it from stdin
    pub prompt: String,
    /// Name, hub id, .gguf file or folder (smollm2:135m)
    #[arg(short, long, value_name = "MODEL")]
    pub model: Option<String>,
    /// Gives the text to the model as it is, without its chat template
    #[arg(long, conflicts_with = "system")]
    pub raw: bool,
    /// A system message before the prompt
    #[arg(long, value_name = "TEXT")]
    pub system: Option<String>,
    #[command(flatten)]
    pub sampling: SamplingArgs,
    #[command(flatten)]
    pub engine: EngineArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  mettle chat
  mettle chat -m ./model.gguf --system \"Answer in French\" --temperature 0.7

Where the model's makers say nothing of sampling, chat draws at temperature 0.7 and top-p 0.9.
Inside: /help lists the commands; Ctrl-C stops an answer, at the prompt it leaves.")]
pub struct ChatArgs {
    /// Name, hub id, .gguf file or folder (smollm2:135m)
    #[arg(short, long, value_name = "MODEL")]
    pub model: Option<String>,
    /// A system message at the beginning
    #[arg(long, value_name = "TEXT")]
    pub system: Option<String>,
    #[command(flatten)]
    pub sampling: SamplingArgs,
    #[command(flatten)]
    pub engine: EngineArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  mettle pull smollm2:135m
  mettle pull HuggingFaceTB/SmolLM2-135M-Instruct

What was fetched before an interruption is kept: the same command goes on from there.")]
pub struct PullArgs {
    /// A catalogue name or a hub id
    pub name: String,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  mettle inspect smollm2:135m
  mettle inspect ./model-00001-of-00003.gguf --all

No weights are read: a model of any size is looked into at once.")]
pub struct InspectArgs {
    /// Name, hub id, .gguf file or folder (smollm2:135m)
    pub model: Option<String>,
    /// Prints every tensor
    #[arg(long)]
    pub all: bool,
    /// Tokens of prompt and answer together (the model's own limit)
    #[arg(long, value_name = "N")]
    pub max_model_len: Option<String>,
    /// Type of cached keys and values: f16 or f32 (f16)
    #[arg(long, value_name = "TYPE")]
    pub kv_cache_dtype: Option<String>,
}

#[derive(Debug, Args)]
#[command(after_help = plan_help())]
pub struct PlanArgs {
    /// A model as elsewhere, a config.json, or the name of a built-in config (smollm2:135m)
    #[arg(short, long, value_name = "CONFIG")]
    pub model: Option<String>,
    /// Prints JSON
    #[arg(long)]
    pub json: bool,
    /// Prints every layer, not only those that differ
    #[arg(long)]
    pub all: bool,
    /// Switches a rewrite of the plan off; may be given several times
    #[arg(long, value_name = "PASS")]
    pub disable_pass: Vec<String>,
    /// Type of cached keys and values: f16 or f32 (f16)
    #[arg(long, value_name = "TYPE")]
    pub kv_cache_dtype: Option<String>,
    /// Room for low-rank adapters on every projection, as SLOTSxRANK
    #[arg(long, value_name = "4x16", value_parser = slots_and_rank)]
    pub adapters: Option<(usize, usize)>,
    /// Splits the model over N ranks, one plan each
    #[arg(long, value_name = "N", value_parser = above_zero)]
    pub ranks: Option<usize>,
    /// Tokens of one step, for the scratch memory
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = step_rows)]
    pub tokens: usize,
    /// Sequences of one step, for the scratch memory
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = step_rows)]
    pub sequences: usize,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  mettle config
  METTLE_THREADS=4 mettle config --json

A flag wins over an environment variable (METTLE_...), that over the file config.toml in the cache
folder (lines of `key = value`), that over the default.")]
pub struct ConfigArgs {
    /// Prints JSON
    #[arg(long)]
    pub json: bool,
    /// Name, hub id, .gguf file or folder (smollm2:135m)
    #[arg(short, long, value_name = "MODEL")]
    pub model: Option<String>,
    #[command(flatten)]
    pub engine: EngineArgs,
    #[command(flatten)]
    pub server: ServerArgs,
}

#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Server")]
pub struct ServerArgs {
    /// Address to listen on (127.0.0.1: this machine only)
    #[arg(long, value_name = "ADDRESS")]
    pub host: Option<String>,
    /// Port to listen on; 0 takes a free one (8000)
    #[arg(long, value_name = "PORT")]
    pub port: Option<String>,
    /// Name of the model in the API; may be given several times (the model's name)
    #[arg(long, value_name = "NAME")]
    pub served_model_name: Vec<String>,
    /// Key that requests to /v1 must carry; may be given several times (none: open)
    #[arg(long, value_name = "KEY")]
    pub api_key: Vec<String>,
    /// Seconds that requests under way have to end after SIGTERM (30)
    #[arg(long, value_name = "SECONDS")]
    pub shutdown_timeout: Option<String>,
    /// Answers that are made at a time (64)
    #[arg(long, value_name = "N")]
    pub max_num_seqs: Option<String>,
    /// Requests that may wait; more are turned away with 429 (1024)
    #[arg(long, value_name = "N")]
    pub max_queue: Option<String>,
    /// The most alternatives that a request may ask for with each token, up to 20 (20)
    #[arg(long, value_name = "N")]
    pub max_logprobs: Option<String>,
    /// Origins of web pages that may use the API; may be given several times (*: any)
    #[arg(long, value_name = "ORIGIN")]
    pub allowed_origins: Vec<String>,
    /// The largest request, as 512K or 32M (32M)
    #[arg(long, value_name = "BYTES")]
    pub max_body_bytes: Option<String>,
    /// Seconds after which a request is given up (never)
    #[arg(long, value_name = "SECONDS")]
    pub request_timeout: Option<String>,
    /// How the model writes tool calls: auto, hermes, llama3_json, mistral, generic_json (auto: by its template)
    #[arg(long, value_name = "FORMAT")]
    pub tool_call_parser: Option<String>,
    /// How the model marks its reasoning: auto, none, deepseek_r1, qwen3 (auto: by its template)
    #[arg(long, value_name = "FORMAT")]
    pub reasoning_parser: Option<String>,
    /// How hidden states become an embedding where a request says nothing: auto, last, mean, cls (auto: as the model's files
    /// say; else last, of encoders mean)
    #[arg(long, value_name = "POOLING")]
    pub pooling: Option<String>,
    /// Accepted for vLLM's sake: tools are always on
    #[arg(long, hide = true)]
    pub enable_auto_tool_choice: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  mettle serve
  mettle serve ./model.gguf --host 0.0.0.0 --port 9000 --api-key SECRET
  curl http://127.0.0.1:8000/v1/completions -H 'Content-Type: application/json' \\
       -d '{\"prompt\": \"The capital of Germany is\", \"max_tokens\": 8}'")]
pub struct ServeArgs {
    /// Name, hub id, .gguf file or folder (smollm2:135m)
    #[arg(value_name = "MODEL")]
    pub positional_model: Option<String>,
    /// The same, as a flag
    #[arg(short, long, value_name = "MODEL", conflicts_with = "positional_model")]
    pub model: Option<String>,
    #[command(flatten)]
    pub server: ServerArgs,
    #[command(flatten)]
    pub engine: EngineArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  mettle validate --kernels --device metal
  mettle validate --fixtures fixtures/models --device metal
  mettle validate -m smollm2:135m --device metal

Exit code 0: all is as it should be; 1: something differs, and the output says what.")]
pub struct ValidateArgs {
    /// Runs the kernels' tests on the device
    #[arg(long, conflicts_with = "model")]
    pub kernels: bool,
    /// Compares the tiny models in this folder with what transformers computed (fixtures/models of the source tree)
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["model", "kernels"])]
    pub fixtures: Option<PathBuf>,
    /// With --kernels: only tests whose name contains this
    #[arg(long, value_name = "TEXT", requires = "kernels", default_value = "")]
    pub filter: String,
    /// With --kernels: runs each dispatch so often and demands equal bits
    #[arg(long, value_name = "N", requires = "kernels", default_value_t = 1, value_parser = above_zero)]
    pub repeats: usize,
    /// Compares each layer of this model with the CPU: name, hub id, .gguf file or folder (smollm2:135m)
    #[arg(short, long, value_name = "MODEL")]
    pub model: Option<String>,
    /// Without --kernels: tokens of the text that both compute
    #[arg(long, value_name = "N", default_value_t = 48, value_parser = above_zero)]
    pub tokens: usize,
    #[command(flatten)]
    pub engine: EngineArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  mettle doctor
  mettle doctor -m ./model.gguf --threads 4 --json

Bandwidth and arithmetic are measured in short loops, so other programs should be idle. Nothing is fetched.")]
pub struct DoctorArgs {
    /// The model whose decode speed is set against the machine's: name, .gguf file or folder (smollm2:135m)
    #[arg(short, long, value_name = "MODEL")]
    pub model: Option<String>,
    /// Prints one JSON object
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub engine: EngineArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  mettle perplexity wiki.test.raw
  mettle perplexity -m ./model.gguf --context 2048 --windows 20 book.txt

The text is cut into windows of --context tokens; the second half of each is scored, as llama.cpp's
perplexity tool does. A lower figure is a better prediction; figures of models with different
tokenizers cannot be compared.")]
pub struct PerplexityArgs {
    /// A text file in UTF-8
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Name, hub id, .gguf file or folder (smollm2:135m)
    #[arg(short, long, value_name = "MODEL")]
    pub model: Option<String>,
    /// Tokens of a window, at least 8
    #[arg(short, long, value_name = "N", default_value_t = 512, value_parser = window)]
    pub context: usize,
    /// Stops after so many windows (all)
    #[arg(long, value_name = "N", value_parser = above_zero)]
    pub windows: Option<usize>,
    /// Prints one JSON object
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub engine: EngineArgs,
}

fn window(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|n| *n >= 8);
    number.ok_or_else(|| "it must be a whole number from 8 on".to_owned())
}

fn step_rows(text: &str) -> Result<usize, String> {
    let number = text.parse().ok();
    let number = number.filter(|n| (1..=MOST_STEP_ROWS).contains(n));
    number.ok_or_else(|| format!("it must be a whole number from 1 to {MOST_STEP_ROWS}"))
}

fn above_zero(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) | Err(_) => Err("it must be a whole number above 0".to_owned()),
        Ok(number) => Ok(number),
    }
}

fn slots_and_rank(text: &str) -> Result<(usize, usize), String> {
    let sides = text.split_once('x').and_then(|(slots, rank)| {
        let slots = above_zero(slots).ok()?;
        Some((slots, above_zero(rank).ok()?))
    });
    sides.ok_or_else(|| "it must be of the form 4x16: slots x rank".to_owned())
}

fn within<const LOW: i8, const HIGH: i8>(text: &str) -> Result<f32, String> {
    let range = f32::from(LOW)..=f32::from(HIGH);
    let number = text.parse().ok().filter(|n| range.contains(n));
    number.ok_or_else(|| format!("it must be between {LOW} and {HIGH}"))
}

fn temperature(text: &str) -> Result<f64, String> {
    within::<0, 2>(text).map(f64::from)
}

fn probability(text: &str) -> Result<f32, String> {
    let number = text.parse().ok().filter(|p| *p > 0.0 && *p <= 1.0);
    number.ok_or_else(|| "it must be above 0 and not above 1".to_owned())
}

fn factor(text: &str) -> Result<f32, String> {
    let number = text.parse().ok();
    let number = number.filter(|r: &f32| *r > 0.0 && r.is_finite());
    number.ok_or_else(|| "it must be above 0".to_owned())
}

fn plan_help() -> String {
    let configs = mettle_models::BUILT_IN.map(|(name, _)| name).join(", ");
    let passes = passes::ALL.map(|pass| format!("  {:<18} {}", pass.name, pass.about));
    format!(
        "Examples:
  mettle plan -m smollm2:135m
  mettle plan -m ./folder/config.json --all
  mettle plan -m ./model.gguf --disable-pass fuse-qkv --json
  mettle plan -m llama-3.1-8b --ranks 2

Built-in configs: {configs}

Passes:
{}

An op with | before it needs everything earlier to be finished: a barrier.",
        passes.join("\n")
    )
}
