//! Owns `mettle plan`: a model's forward pass, to be read by people or programs.

use super::settings;
use crate::args::PlanArgs;
use crate::config::{Flags, Settings, list};
use anyhow::bail;
use mettle_models::{AdapterSlots, BUILT_IN, PlanOptions, plans};
use mettle_plan::passes;
use mettle_plan::print::PlanReport;
use mettle_weights::download::{Home, Located, locate};
use std::io::{self, Write};

pub fn run(args: PlanArgs) -> anyhow::Result<()> {
    let mut flags = Flags::new();
    flags.extend(args.model.clone().map(|value| ("model", value)));
    flags.extend(args.kv_cache_dtype.clone().map(|v| ("kv-cache-dtype", v)));
    flags.extend(list(&args.disable_pass).map(|value| ("disable-pass", value)));
    let settings = settings(flags)?;
    let options = PlanOptions {
        kv_element: settings.kv_element,
        adapters: args
            .adapters
            .map(|(slots, rank)| AdapterSlots { slots, rank }),
        ranks: args.ranks,
        ..PlanOptions::default()
    };
    let mut reports = Vec::new();
    for mut plan in plans(&source(&settings)?, &options)? {
        passes::apply(&mut plan, &settings.disable_pass)?;
        let bounds = plan.bounds(args.tokens, args.sequences);
        reports.push(PlanReport::new(&plan, &bounds));
    }
    let mut stdout = io::stdout().lock();
    if args.json {
        // A single plan is an object, several are a list.
        match reports.as_slice() {
            [one] => serde_json::to_writer_pretty(&mut stdout, one)?,
            all => serde_json::to_writer_pretty(&mut stdout, all)?,
        }
        writeln!(stdout)?;
        return Ok(());
    }
    stdout.write_all(as_text(&reports, args.all).as_bytes())?;
    Ok(())
}

/// One table each. The ranks of a split model have the same one: it is printed once unless `all`.
fn as_text(reports: &[PlanReport], all: bool) -> String {
    let mut shown: Vec<(&str, String)> = Vec::new();
    let mut texts = Vec::new();
    for report in reports {
        let text = report.to_text(all);
        let table = text.strip_prefix(&report.name).unwrap_or(&text);
        let same = shown.iter().find(|(_, known)| known == table);
        match same.filter(|_| !all) {
            Some((first, _)) => texts.push(format!(
                "{}\nas {first}, with other parts of the same tensors\n",
                report.name
            )),
            None => {
                shown.push((&report.name, table.to_owned()));
                texts.push(text);
            }
        }
    }
    texts.join("\n")
}

/// The path or built-in name that the setting means. Nothing is fetched for a plan: a name of the catalogue that is
/// not in the cache has a built-in config.
fn source(settings: &Settings) -> anyhow::Result<String> {
    let model = settings.model.as_str();
    let is_built_in = |name: &str| BUILT_IN.iter().any(|(known, _)| *known == name);
    // `plans` looks for a path of that name first.
    if is_built_in(model) {
        return Ok(model.to_owned());
    }
    let built_in = model.replace(':', "-");
    let home = Home::discover(Some(settings.home.clone()))?;
    match locate(model, &home) {
        Ok(Located::Path(path)) => Ok(path.display().to_string()),
        Ok(Located::NotCached { .. }) if is_built_in(&built_in) => Ok(built_in),
        Ok(Located::NotCached { name, .. }) => {
            bail!("{name} is not in the cache: mettle pull {name} fetches it")
        }
        Err(error) => {
            let names = BUILT_IN.map(|(name, _)| name).join(", ");
            bail!("{error}; or a built-in config: {names}")
        }
    }
}
