//! Owns the question which models are in the cache.

use super::catalogue::{CATALOGUE, CatalogueEntry};
use super::home::Home;
use super::hub::{HubId, is_plain_file, parts_of, pick_gguf};
use super::hub_files::COMPLETE;
use crate::error::{Result, WeightsError};
use std::path::{Path, PathBuf};

/// A model in the cache. `path` is a GGUF file or a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cached {
    pub name: String,
    pub path: PathBuf,
    pub bytes: u64,
}

/// Every model in the cache, the catalogue's first.
pub fn list(home: &Home) -> Result<Vec<Cached>> {
    let mut models = Vec::new();
    for known in CATALOGUE {
        if let Some(path) = entry(known, home) {
            models.push(Cached {
                name: known.name.to_owned(),
                path,
                bytes: known.bytes,
            });
        }
    }
    let mut folders = names(&home.hub_root())?;
    folders.sort();
    for id in folders.iter().filter_map(|f| HubId::from_folder_name(f)) {
        let folder = home.hub_folder(&id);
        let mut ggufs = Vec::new();
        let mut rest = 0;
        for name in names(&folder)? {
            let path = folder.join(&name);
            if !name.ends_with(".gguf") {
                rest += path.metadata().map_or(0, |m| m.len());
                continue;
            }
            // A split model is listed once, under its first part, when it is whole.
            let parts = parts_of(&name);
            if let (true, Some(bytes)) = (parts[0] == name, size_of_all(&folder, &parts)) {
                ggufs.push(Cached {
                    name: format!("{id}:{name}"),
                    path,
                    bytes,
                });
            }
        }
        if plain_id(&folder).as_ref() == Some(&folder) {
            models.push(Cached {
                name: id.to_string(),
                path: folder,
                bytes: rest,
            });
        }
        ggufs.sort_by(|a, b| a.name.cmp(&b.name));
        models.extend(ggufs);
    }
    Ok(models)
}

/// The file of a catalogue entry, if it is whole. It was checked when it came; the size guards against later harm.
pub(super) fn entry(entry: &CatalogueEntry, home: &Home) -> Option<PathBuf> {
    let path = home.catalogue_file(entry);
    let whole = path.metadata().is_ok_and(|m| m.len() == entry.bytes);
    whole.then_some(path)
}

/// The folder or GGUF file that a hub id means, if it is in the cache.
pub(super) fn hub_model(id: &HubId, home: &Home) -> Option<PathBuf> {
    let folder = home.hub_folder(id);
    if id.pick.is_none() {
        return plain_id(&folder);
    }
    let names = names(&folder).ok()?;
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let name = pick_gguf(id, id.pick.as_deref(), &names).ok()?;
    whole_gguf(&folder, name)
}

/// The path of a GGUF model whose parts are all there.
fn whole_gguf(folder: &Path, name: &str) -> Option<PathBuf> {
    size_of_all(folder, &parts_of(name))?;
    Some(folder.join(name))
}

/// `None` where one is missing.
fn size_of_all(folder: &Path, names: &[String]) -> Option<u64> {
    let files = names.iter().map(|name| folder.join(name).metadata().ok());
    files
        .map(|file| file.filter(|f| f.is_file()).map(|f| f.len()))
        .sum()
}

/// What an id without a pick means in its folder, once all of it has come.
fn plain_id(folder: &Path) -> Option<PathBuf> {
    let gguf = std::fs::read_to_string(folder.join(COMPLETE)).ok()?;
    if gguf.is_empty() {
        return Some(folder.to_owned());
    }
    is_plain_file(&gguf)
        .then(|| whole_gguf(folder, &gguf))
        .flatten()
}

/// The names in a folder; none if there is no such folder.
fn names(folder: &Path) -> Result<Vec<String>> {
    let entries = match std::fs::read_dir(folder) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(WeightsError::io("read", folder))?,
    };
    let names = entries.flatten().map(|e| e.file_name());
    Ok(names.filter_map(|n| n.into_string().ok()).collect())
}
