//! Owns `mettle pull`: a model into the cache, its path on stdout.

use super::settings;
use crate::args::PullArgs;
use crate::config::Flags;
use crate::interrupt::Interrupt;
use crate::session::fetch;
use crate::terminal::note;
use std::io::{self, Write};
use std::path::Path;

pub fn run(args: PullArgs) -> anyhow::Result<()> {
    let settings = settings(Flags::from([("model", args.name.clone())]))?;
    let interrupt = Interrupt::install()?;
    let path = fetch(&settings, &interrupt)?;
    if path == Path::new(&args.name) {
        note("this is a path: there is nothing to fetch");
    }
    writeln!(io::stdout(), "{}", path.display())?;
    Ok(())
}
