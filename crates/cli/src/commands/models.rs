//! Owns `mettle models`: what is in the cache, and what the catalogue offers.

use super::settings;
use crate::config::Flags;
use crate::terminal::bytes;
use mettle_weights::download::{
    CATALOGUE, Cached, DEFAULT_MODEL, HUB_ENTRIES, Home, Located, list, locate,
};
use std::io::{self, Write};
use std::path::PathBuf;

pub fn run() -> anyhow::Result<()> {
    let settings = settings(Flags::new())?;
    let home = Home::discover(Some(settings.home.clone()))?;
    let cached = list(&home)?;
    let mut rows = vec![["NAME", "SIZE", "LICENCE", "CACHED"].map(str::to_owned)];
    for entry in CATALOGUE {
        let found = cached.iter().find(|model| model.name == entry.name);
        rows.push([
            entry.name.to_owned(),
            bytes(entry.bytes),
            entry.licence.to_owned(),
            found.map_or("no".to_owned(), |model| model.path.display().to_string()),
        ]);
    }
    let mut offered: Vec<PathBuf> = Vec::new();
    for entry in HUB_ENTRIES {
        let path = match locate(entry.id, &home)? {
            Located::Path(path) => Some(path),
            Located::NotCached { .. } => None,
        };
        rows.push([
            entry.name.to_owned(),
            format!("about {}", bytes(entry.about_bytes)),
            entry.licence.to_owned(),
            path.as_ref()
                .map_or("no".to_owned(), |path| path.display().to_string()),
        ]);
        offered.extend(path);
    }
    let is_offered = |model: &Cached| {
        let pinned = CATALOGUE.iter().any(|entry| entry.name == model.name);
        pinned || offered.contains(&model.path)
    };
    for model in cached.iter().filter(|model| !is_offered(model)) {
        rows.push([
            model.name.clone(),
            bytes(model.bytes),
            "see the hub".to_owned(),
            model.path.display().to_string(),
        ]);
    }
    let mut stdout = io::stdout().lock();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: Vec<usize> = (0..3).map(|column| width(column).unwrap_or(0)).collect();
    for [name, size, licence, place] in &rows {
        writeln!(
            stdout,
            "{name:<0$}  {size:>1$}  {licence:<2$}  {place}",
            widths[0], widths[1], widths[2]
        )?;
    }
    writeln!(
        stdout,
        "\nThe default is {DEFAULT_MODEL}. mettle pull NAME fetches one; NAME may also be a hub id (owner/name)."
    )?;
    Ok(())
}
