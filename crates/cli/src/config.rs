//! Owns the one place where settings come from: flags, then the environment, then the file, then defaults.

mod file;
mod keys;
mod settings;

pub use keys::{INHERITED, KEYS, Key};
pub use settings::{Device, LoadFormat, MOST_STEP_ROWS, ReasoningParser, Settings, ToolParser};

use crate::args::{EngineArgs, ServerArgs};
use file::ConfigFile;
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

/// A setting that cannot be used; `mettle` ends with the exit code of wrong usage.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{0}")]
pub struct ConfigError(pub String);

/// Where a value came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    Flag(&'static str),
    Environment(&'static str),
    File { path: PathBuf, line: usize },
    Default,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Flag(flag) => write!(f, "flag {flag}"),
            Origin::Environment(name) => write!(f, "environment {name}"),
            Origin::File { path, line } => write!(f, "{}:{line}", path.display()),
            Origin::Default => f.write_str("default"),
        }
    }
}

/// One setting's value, as text, and its origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    pub value: String,
    pub origin: Origin,
}

/// What the flags said, by setting.
pub type Flags = BTreeMap<&'static str, String>;

/// Every setting with its value and where that came from.
#[derive(Debug)]
pub struct Config {
    found: BTreeMap<&'static str, Found>,
    /// Variables of earlier engines that are set, with their values.
    pub inherited: Vec<(&'static str, String)>,
    /// The folder that the file was looked for in.
    pub home: PathBuf,
}

impl Config {
    /// `variable` reads the environment: the only reader in the program.
    pub fn resolve(
        flags: Flags,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Config, ConfigError> {
        // A variable set to nothing is taken for one that is not set.
        let variable = |name: &str| variable(name).filter(|value| !value.is_empty());
        let chosen = variable("METTLE_HOME").map(PathBuf::from);
        let home = mettle_weights::download::Home::discover(chosen)
            .map_err(|error| ConfigError(error.to_string()))?;
        let file = ConfigFile::read(home.root())?;
        let mut found = BTreeMap::new();
        for key in KEYS {
            let from_flag = || {
                let value = flags.get(key.name)?.clone();
                Some((value, Origin::Flag(key.flag)))
            };
            let from_variable = || {
                let read = |name: &&'static str| {
                    variable(name).map(|value| (value, Origin::Environment(name)))
                };
                key.variables.iter().find_map(read)
            };
            let value = from_flag()
                .or_else(from_variable)
                .or_else(|| file.get(key.name));
            let (value, origin) = value.unwrap_or((key.default.to_owned(), Origin::Default));
            found.insert(key.name, Found { value, origin });
        }
        let set = |(name, _): &(&'static str, &str)| Some((*name, variable(name)?));
        let mut config = Config {
            found,
            inherited: INHERITED.iter().filter_map(set).collect(),
            home: home.root().to_owned(),
        };
        config.take_inherited();
        Ok(config)
    }

    pub fn get(&self, name: &str) -> &Found {
        &self.found[name]
    }

    /// Earlier engines' switches that have a meaning here. Our own names win.
    fn take_inherited(&mut self) {
        for (name, value) in &self.inherited {
            let (key, value) = match (*name, value.as_str()) {
                ("VLLM_METAL_FUSED_O_PROJ_RESIDUAL", "0" | "off" | "false") => {
                    ("disable-pass", "residual-epilogue")
                }
                ("VLLM_PLATFORM", "cpu") => ("device", "cpu"),
                _ => continue,
            };
            let found = self.found.get_mut(key).expect("a key of the table");
            if found.origin == Origin::Default {
                *found = Found {
                    value: value.to_owned(),
                    origin: Origin::Environment(name),
                };
            }
        }
    }
}

/// The settings that an engine's flags name.
pub fn engine_flags(model: Option<&String>, args: &EngineArgs) -> Flags {
    let mut flags = Flags::new();
    let mut set = |name, value: Option<&String>| {
        if let Some(value) = value {
            flags.insert(name, value.clone());
        }
    };
    set("model", model);
    set("threads", args.threads.as_ref());
    set("cpu-isa", args.cpu_isa.as_ref());
    set("device", args.device.as_ref());
    set("kv-cache-dtype", args.kv_cache_dtype.as_ref());
    set("kv-memory", args.kv_memory.as_ref());
    set("max-model-len", args.max_model_len.as_ref());
    set(
        "max-num-batched-tokens",
        args.max_num_batched_tokens.as_ref(),
    );
    set("load-format", args.load_format.as_ref());
    set("seed", args.seed.as_ref());
    set("disable-pass", list(&args.disable_pass).as_ref());
    if args.strict {
        flags.insert("strict", "on".to_owned());
    }
    if args.no_prefix_cache {
        flags.insert("prefix-cache", "off".to_owned());
    }
    flags
}

/// The settings that a server's flags name.
pub fn server_flags(args: &ServerArgs) -> Flags {
    let texts = [
        ("host", args.host.clone()),
        ("port", args.port.clone()),
        ("shutdown-timeout", args.shutdown_timeout.clone()),
        ("max-num-seqs", args.max_num_seqs.clone()),
        ("max-queue", args.max_queue.clone()),
        ("max-logprobs", args.max_logprobs.clone()),
        ("allowed-origins", list(&args.allowed_origins)),
        ("max-body-bytes", args.max_body_bytes.clone()),
        ("request-timeout", args.request_timeout.clone()),
        ("tool-call-parser", args.tool_call_parser.clone()),
        ("reasoning-parser", args.reasoning_parser.clone()),
        ("pooling", args.pooling.clone()),
        ("served-model-name", list(&args.served_model_name)),
        ("api-key", list(&args.api_key)),
    ];
    let given = |(name, value): (&'static str, Option<String>)| Some((name, value?));
    texts.into_iter().filter_map(given).collect()
}

pub fn list(values: &[String]) -> Option<String> {
    (!values.is_empty()).then(|| values.join(","))
}

/// Reads the environment.
pub fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// The name of the file in the cache folder.
pub fn file_in(home: &Path) -> PathBuf {
    home.join("config.toml")
}

#[cfg(test)]
mod tests;
