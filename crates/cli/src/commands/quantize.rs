//! Owns `mettle quantize`: a GGUF file with its weights in other types.

use super::settings;
use crate::args::QuantizeArgs;
use crate::config::Flags;
use crate::interrupt::Interrupt;
use crate::terminal::{Counter, bytes, note};
use anyhow::{bail, ensure};
use mettle_tensor::{TensorInfo, TensorSource};
use mettle_weights::gguf::{Gguf, Requantize};
use std::io::{self, Write};
use std::path::Path;
use std::time::Instant;

pub fn run(args: QuantizeArgs) -> anyhow::Result<()> {
    let mut flags = Flags::new();
    flags.extend(args.threads.clone().map(|value| ("threads", value)));
    let settings = settings(flags)?;
    let input = args.input.display();
    ensure!(
        args.input.exists(),
        "{input} does not exist: give a .gguf file"
    );
    ensure!(
        !args.input.is_dir(),
        "{input} is a folder: quantize takes a .gguf file, or any part of a split one"
    );
    ensure!(
        is_gguf(&args.input),
        "{input} is not a .gguf file; quantize takes nothing else"
    );
    let output = args.output.display();
    ensure!(
        is_gguf(&args.output),
        "{output} does not end in .gguf, which every model file here must"
    );
    if !args.force && args.output.exists() {
        bail!("{output} exists already; --force replaces it");
    }
    let interrupt = Interrupt::install()?;
    let source = Gguf::open(&args.input)?;
    let work = Requantize {
        source: &source,
        file_type: args.file_type,
        threads: settings.threads,
        cancel: &interrupt.flag(),
    };
    warn_of_second_loss(source.tensors(), &work.tensors()?);
    let start = Instant::now();
    let mut counter = Counter::new("tensors");
    let sizes = work.write(&args.output, args.force, |done, of, name| {
        counter.at(done, of, name)
    })?;
    writeln!(
        io::stdout(),
        "{output}: {}, {} -> {}, {:.2} bits a weight, {:.1} s",
        args.file_type,
        bytes(sizes.from),
        bytes(sizes.to),
        sizes.to as f64 * 8.0 / sizes.weights as f64,
        start.elapsed().as_secs_f64()
    )?;
    Ok(())
}

fn is_gguf(path: &Path) -> bool {
    path.extension()
        .is_some_and(|ending| ending.eq_ignore_ascii_case("gguf"))
}

fn warn_of_second_loss(from: &[TensorInfo], to: &[TensorInfo]) {
    let is_second = |(from, to): &(&TensorInfo, &TensorInfo)| {
        from.dtype != to.dtype && from.dtype.is_quantized() && to.dtype.is_quantized()
    };
    let twice: Vec<_> = from.iter().zip(to).filter(is_second).collect();
    if let Some((first, _)) = twice.first() {
        note(&format!(
            "{} of {} tensors are quantized already (the first: {}, {}): they lose something twice; a file of F16 or F32 gives better results",
            twice.len(),
            from.len(),
            first.name,
            first.dtype
        ));
    }
}
