//! Owns `mettle inspect`: what a model's files say and hold, what memory it needs, and whether it can run here.

use super::settings;
use crate::args::InspectArgs;
use crate::config::{Flags, Settings};
use crate::fit::{self, Fit};
use crate::session::open_options;
use crate::terminal::bytes;
use anyhow::bail;
use mettle_models::{Inspection, inspect};
use mettle_tensor::{DType, TensorInfo};
use mettle_weights::download::{Home, Located, locate};
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::PathBuf;

pub fn run(args: InspectArgs) -> anyhow::Result<()> {
    let mut flags = Flags::new();
    flags.extend(args.model.clone().map(|value| ("model", value)));
    flags.extend(args.max_model_len.clone().map(|v| ("max-model-len", v)));
    flags.extend(args.kv_cache_dtype.clone().map(|v| ("kv-cache-dtype", v)));
    let settings = settings(flags)?;
    let path = locate_only(&settings)?;
    let found = inspect(&path, open_options(&settings))?;
    let mut out = io::stdout().lock();
    let weights = fit::weight_bytes(&found.tensors);
    let count = found.tensors.len();
    writeln!(out, "path      {}", path.display())?;
    writeln!(
        out,
        "format    {}, {count} tensors, {}",
        found.format,
        bytes(weights)
    )?;
    write_facts(&mut out, &found)?;
    write_types(&mut out, &found.tensors)?;
    if args.all {
        write_tensors(&mut out, &found.tensors)?;
    }
    write_verdict(&mut out, &found, &settings)?;
    Ok(())
}

/// The model's place. Nothing is fetched to be looked at.
fn locate_only(settings: &Settings) -> anyhow::Result<PathBuf> {
    let home = Home::discover(Some(settings.home.clone()))?;
    match locate(&settings.model, &home)? {
        Located::Path(path) => Ok(path),
        Located::NotCached { name, .. } => {
            bail!("{name} is not in the cache: mettle pull {name} fetches it")
        }
    }
}

fn write_facts(out: &mut impl Write, found: &Inspection) -> io::Result<()> {
    for (index, (key, value)) in found.facts.iter().enumerate() {
        let title = if index == 0 { "metadata" } else { "" };
        writeln!(out, "{title:<10}{key} = {value}")?;
    }
    Ok(())
}

fn write_types(out: &mut impl Write, tensors: &[TensorInfo]) -> io::Result<()> {
    let mut types: BTreeMap<DType, (usize, u64)> = BTreeMap::new();
    for tensor in tensors {
        let (count, size) = types.entry(tensor.dtype).or_default();
        *count += 1;
        *size += fit::tensor_bytes(tensor);
    }
    for (index, (dtype, (count, size))) in types.into_iter().enumerate() {
        let title = if index == 0 { "types" } else { "" };
        let size = bytes(size);
        writeln!(
            out,
            "{title:<10}{:<8} {count:>5} tensors {size:>10}",
            dtype.name()
        )?;
    }
    Ok(())
}

fn write_tensors(out: &mut impl Write, tensors: &[TensorInfo]) -> io::Result<()> {
    let width = tensors.iter().map(|t| t.name.len()).max().unwrap_or(0);
    for (index, tensor) in tensors.iter().enumerate() {
        let title = if index == 0 { "tensors" } else { "" };
        let (name, dtype) = (&tensor.name, tensor.dtype.name());
        let size = bytes(fit::tensor_bytes(tensor));
        let shape = format!("{:?}", tensor.shape);
        writeln!(
            out,
            "{title:<10}{name:<width$}  {dtype:<8} {size:>10}  {shape}"
        )?;
    }
    Ok(())
}

fn write_verdict(
    out: &mut impl Write,
    found: &Inspection,
    settings: &Settings,
) -> anyhow::Result<()> {
    let fit = match &found.model {
        Ok(model) => Fit::of(model, settings),
        Err(error) => return Ok(writeln!(out, "verdict   cannot run here: {error}")?),
    };
    match fit {
        Ok(fit) => {
            writeln!(
                out,
                "memory    {} weights, {} KV cache for {} tokens, {} free",
                bytes(fit.weights),
                bytes(fit.cache),
                fit.context,
                bytes(fit.free)
            )?;
            writeln!(out, "verdict   {}", fit.verdict())?;
        }
        Err(error) => writeln!(out, "verdict   cannot run here: {error:#}")?,
    }
    Ok(())
}
