//! Owns the settings as the program uses them: parsed, with errors that name the setting and where it was set.

use super::{Config, ConfigError, Found, Origin};
use mettle_bench::machine::Machine;
use mettle_cpu::Isa;
use mettle_engine::MAX_LOGPROBS;
use mettle_plan::KvElement;
use mettle_plan::passes::ALL;
use mettle_server::{Pooling, ReasoningFormat, ToolFormat};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// Tokens or sequences of one step, far beyond what makes a device faster. Scratch memory grows with it.
pub const MOST_STEP_ROWS: usize = 1 << 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadFormat {
    Auto,
    Dummy,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Device {
    Auto,
    Metal,
    Cuda,
    Cpu,
    Emulator,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToolParser {
    /// What the model's template suggests.
    Auto,
    Format(ToolFormat),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReasoningParser {
    /// What the model's template suggests.
    Auto,
    None,
    Format(ReasoningFormat),
}

#[derive(Clone, Debug)]
pub struct Settings {
    pub home: PathBuf,
    pub model: String,
    pub device: Device,
    /// No other backend takes over when the chosen one cannot run the model.
    pub strict: bool,
    pub threads: usize,
    pub cpu_isa: Isa,
    pub kv_element: KvElement,
    /// `None`: what the context needs, within what is free.
    pub kv_memory: Option<u64>,
    pub max_model_len: Option<usize>,
    pub max_num_batched_tokens: usize,
    pub load_format: LoadFormat,
    pub disable_pass: Vec<String>,
    pub prefix_cache: bool,
    pub seed: Option<u64>,
    pub host: String,
    pub port: u16,
    pub served_model_name: Vec<String>,
    pub api_keys: Vec<String>,
    pub shutdown_timeout: Duration,
    /// Answers that are made at a time.
    pub max_num_seqs: usize,
    /// Requests that may wait.
    pub max_queue: usize,
    pub max_logprobs: usize,
    pub allowed_origins: Vec<String>,
    pub max_body_bytes: usize,
    pub request_timeout: Option<Duration>,
    pub tool_call_parser: ToolParser,
    pub reasoning_parser: ReasoningParser,
    /// Of embeddings; absent: the model's own.
    pub pooling: Option<Pooling>,
    pub hub_endpoint: String,
    pub hub_token: Option<String>,
    pub offline: bool,
}

impl Settings {
    pub fn new(config: &Config) -> Result<Settings, ConfigError> {
        let text = |name: &str| config.get(name).value.clone();
        let number = |name: &str| parsed::<usize>(config, name, "a whole number", |_| true);
        let count = |name: &str| parsed(config, name, "a whole number above 0", |n: &usize| *n > 0);
        let required = |name: &str, value: Option<usize>| {
            value.ok_or_else(|| wrong(config, name, "a whole number"))
        };
        Ok(Settings {
            home: config.home.clone(),
            model: text("model"),
            device: one_of(
                config,
                "device",
                &[
                    ("auto", Device::Auto),
                    ("metal", Device::Metal),
                    ("cuda", Device::Cuda),
                    ("cpu", Device::Cpu),
                    ("emulator", Device::Emulator),
                ],
            )?,
            strict: switch(config, "strict")?,
            threads: count("threads")?.unwrap_or_else(|| Machine::look().worthwhile_threads()),
            cpu_isa: cpu_isa(config)?,
            kv_element: one_of(
                config,
                "kv-cache-dtype",
                &[("f16", KvElement::F16), ("f32", KvElement::F32)],
            )?,
            kv_memory: parsed(config, "kv-memory", Bytes::EXPECTED, |b: &Bytes| b.0 > 0)?
                .map(|bytes| bytes.0),
            max_model_len: count("max-model-len")?,
            max_num_batched_tokens: step_rows(config, "max-num-batched-tokens")?,
            load_format: one_of(
                config,
                "load-format",
                &[("auto", LoadFormat::Auto), ("dummy", LoadFormat::Dummy)],
            )?,
            disable_pass: passes(config)?,
            prefix_cache: switch(config, "prefix-cache")?,
            seed: parsed(config, "seed", "a whole number", |_| true)?,
            host: text("host"),
            port: parsed(config, "port", "a number from 0 to 65535", |_| true)?.unwrap_or(0),
            served_model_name: values(&config.get("served-model-name").value),
            api_keys: values(&config.get("api-key").value),
            shutdown_timeout: Duration::from_secs(required(
                "shutdown-timeout",
                number("shutdown-timeout")?,
            )? as u64),
            max_num_seqs: step_rows(config, "max-num-seqs")?,
            max_queue: required("max-queue", number("max-queue")?)?,
            max_logprobs: max_logprobs(config)?,
            allowed_origins: values(&unlisted(&config.get("allowed-origins").value)),
            max_body_bytes: body_bytes(config)?,
            request_timeout: parsed(
                config,
                "request-timeout",
                "a whole number above 0",
                |n: &u64| *n > 0,
            )?
            .map(Duration::from_secs),
            tool_call_parser: one_of(
                config,
                "tool-call-parser",
                &[
                    ("auto", ToolParser::Auto),
                    ("hermes", ToolParser::Format(ToolFormat::Hermes)),
                    ("llama3_json", ToolParser::Format(ToolFormat::Llama3Json)),
                    ("mistral", ToolParser::Format(ToolFormat::Mistral)),
                    ("generic_json", ToolParser::Format(ToolFormat::GenericJson)),
                ],
            )?,
            reasoning_parser: one_of(
                config,
                "reasoning-parser",
                &[
                    ("auto", ReasoningParser::Auto),
                    ("none", ReasoningParser::None),
                    (
                        "deepseek_r1",
                        ReasoningParser::Format(ReasoningFormat::DeepseekR1),
                    ),
                    ("qwen3", ReasoningParser::Format(ReasoningFormat::Qwen3)),
                ],
            )?,
            pooling: one_of(
                config,
                "pooling",
                &[
                    ("auto", None),
                    ("last", Some(Pooling::Last)),
                    ("mean", Some(Pooling::Mean)),
                    ("cls", Some(Pooling::First)),
                ],
            )?,
            hub_endpoint: text("hub-endpoint").trim_end_matches('/').to_owned(),
            hub_token: Some(text("hub-token")).filter(|token| !token.is_empty()),
            offline: switch(config, "offline")?,
        })
    }
}

/// A number of rows of a step.
fn step_rows(config: &Config, name: &str) -> Result<usize, ConfigError> {
    let expected = format!("a whole number from 1 to {MOST_STEP_ROWS}");
    let value = parsed(config, name, &expected, |n| {
        (1..=MOST_STEP_ROWS).contains(n)
    })?;
    value.ok_or_else(|| wrong(config, name, &expected))
}

fn max_logprobs(config: &Config) -> Result<usize, ConfigError> {
    let expected = format!("a whole number up to {MAX_LOGPROBS}");
    let value = parsed(config, "max-logprobs", &expected, |n| *n <= MAX_LOGPROBS)?;
    value.ok_or_else(|| wrong(config, "max-logprobs", &expected))
}

fn body_bytes(config: &Config) -> Result<usize, ConfigError> {
    let name = "max-body-bytes";
    let bytes = parsed(config, name, Bytes::EXPECTED, |b: &Bytes| b.0 > 0)?;
    let bytes = bytes.and_then(|bytes| usize::try_from(bytes.0).ok());
    bytes.ok_or_else(|| wrong(config, name, Bytes::EXPECTED))
}

/// vLLM writes lists as JSON: `["a", "b"]` is `a,b`.
fn unlisted(text: &str) -> String {
    let text = text.trim();
    let inner = text.strip_prefix('[').and_then(|t| t.strip_suffix(']'));
    inner.map_or(text.to_owned(), |inner| inner.replace('"', ""))
}

/// One of those that this processor has.
fn cpu_isa(config: &Config) -> Result<Isa, ConfigError> {
    let sets = Isa::available();
    let mut known = vec![("auto", Isa::detect())];
    known.extend(sets.iter().map(|isa| (isa.name(), *isa)));
    one_of(config, "cpu-isa", &known)
        .map_err(|ConfigError(text)| ConfigError(format!("{text} (what this processor has)")))
}

/// Several values separated by commas.
fn values(text: &str) -> Vec<String> {
    let parts = text.split(',').map(str::trim);
    parts
        .filter(|part| !part.is_empty())
        .map(str::to_owned)
        .collect()
}

fn passes(config: &Config) -> Result<Vec<String>, ConfigError> {
    let names = values(&config.get("disable-pass").value);
    let is_known = |name: &String| ALL.iter().any(|pass| pass.name == name);
    match names.iter().all(is_known) {
        true => Ok(names),
        false => {
            let known = ALL.map(|pass| pass.name).join(", ");
            Err(wrong(config, "disable-pass", &format!("some of {known}")))
        }
    }
}

fn parsed<T: FromStr>(
    config: &Config,
    name: &str,
    expected: &str,
    fits: impl Fn(&T) -> bool,
) -> Result<Option<T>, ConfigError> {
    let found = config.get(name);
    if found.value.is_empty() {
        return Ok(None);
    }
    match found.value.parse() {
        Ok(value) if fits(&value) => Ok(Some(value)),
        _ => Err(wrong(config, name, expected)),
    }
}

fn one_of<T: Copy>(config: &Config, name: &str, known: &[(&str, T)]) -> Result<T, ConfigError> {
    let value = config.get(name).value.to_ascii_lowercase();
    let names: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
    let found = known.iter().find(|(name, _)| *name == value);
    found
        .map(|(_, value)| *value)
        .ok_or_else(|| wrong(config, name, &any_of(&names)))
}

/// `a, b or c`.
fn any_of(names: &[&str]) -> String {
    match names {
        [others @ .., last] if !others.is_empty() => format!("{} or {last}", others.join(", ")),
        _ => names.concat(),
    }
}

fn switch(config: &Config, name: &str) -> Result<bool, ConfigError> {
    match config.get(name).value.to_ascii_lowercase().as_str() {
        "on" | "1" | "true" | "yes" => Ok(true),
        "off" | "0" | "false" | "no" => Ok(false),
        _ => Err(wrong(config, name, "on or off")),
    }
}

fn wrong(config: &Config, name: &str, expected: &str) -> ConfigError {
    let Found { value, origin } = config.get(name);
    let place = match origin {
        Origin::Flag(flag) => (*flag).to_owned(),
        Origin::Environment(variable) => (*variable).to_owned(),
        Origin::File { .. } => format!("{origin}: {name}"),
        Origin::Default => name.to_owned(),
    };
    ConfigError(format!("{place} is {value:?}, it must be {expected}"))
}

/// A number of bytes, as `512M` or `2G` (powers of 1024).
struct Bytes(u64);

impl Bytes {
    const EXPECTED: &str = "a number of bytes above 0, as 512M or 2G";
}

impl FromStr for Bytes {
    type Err = ();

    fn from_str(text: &str) -> Result<Bytes, ()> {
        let upper = text.trim().to_ascii_uppercase();
        let text = upper.strip_suffix('B').unwrap_or(&upper);
        let text = text.strip_suffix('I').unwrap_or(text);
        let units = [('K', 10), ('M', 20), ('G', 30), ('T', 40)];
        let unit = units.iter().find(|(letter, _)| text.ends_with(*letter));
        let (digits, shift) = match unit {
            Some((letter, shift)) => (text.trim_end_matches(*letter), *shift),
            None => (text, 0),
        };
        let number: f64 = digits.trim().parse().map_err(|_| ())?;
        let bytes = number * (1_u64 << shift) as f64;
        match (0.0..9e18).contains(&bytes) {
            true => Ok(Bytes(bytes as u64)),
            false => Err(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_with_their_units() {
        let read = |text: &str| text.parse::<Bytes>().ok().map(|bytes| bytes.0);
        assert_eq!(read("4096"), Some(4096));
        assert_eq!(read("512M"), Some(512 << 20));
        assert_eq!(read("2GiB"), Some(2 << 30));
        assert_eq!(read("1.5 kb"), Some(1536));
        for wrong in ["", "G", "-1", "2X", "nan", "1e30", "MM", "inf"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }
}
