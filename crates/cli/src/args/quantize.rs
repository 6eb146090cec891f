//! Owns what can be typed after `mettle quantize`.

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use mettle_weights::gguf::FileType;
use std::path::PathBuf;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  mettle quantize model-f16.gguf model-q4_k_m.gguf --type Q4_K_M
  mettle quantize model-00001-of-00003.gguf model-q8_0.gguf --type q8_0 --force

Names mean what they mean to llama.cpp: with K_S, K_M and K_L, tensors that matter more get more bits.
Norms, biases and routers stay as they are.")]
pub struct QuantizeArgs {
    /// A .gguf file of any type; any part of a split one stands for all
    #[arg(value_name = "IN")]
    pub input: PathBuf,
    /// The .gguf file to make
    #[arg(value_name = "OUT")]
    pub output: PathBuf,
    /// Type of most weights
    #[arg(long = "type", value_name = "TYPE", ignore_case = true, value_parser = file_type())]
    pub file_type: FileType,
    /// Threads that convert weights (one for each core)
    #[arg(long, value_name = "N")]
    pub threads: Option<String>,
    /// Replaces OUT if it exists
    #[arg(long)]
    pub force: bool,
}

fn file_type() -> impl TypedValueParser<Value = FileType> {
    let names = FileType::ALL.map(FileType::name);
    PossibleValuesParser::new(names)
        .map(|name| FileType::from_name(&name).expect("one of the possible values"))
}
