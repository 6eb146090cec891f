//! Owns the meaning of a MODEL argument: a path, a catalogue name or a hub id.

use super::cached;
use super::catalogue;
use super::home::Home;
use super::hub::HubId;
use crate::error::{Result, WeightsError};
use std::path::{Path, PathBuf};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Located {
    /// A file or folder. Whether it is a model is for its reader to say.
    Path(PathBuf),
    /// A name that `pull` knows how to fetch; `bytes` where the size is known beforehand.
    NotCached { name: String, bytes: Option<u64> },
}

/// Finds the model that `model` means, without any network.
pub fn locate(model: &str, home: &Home) -> Result<Located> {
    if let Some(entry) = catalogue::find(model) {
        return Ok(match cached::entry(entry, home) {
            Some(path) => Located::Path(path),
            None => Located::NotCached {
                name: entry.name.to_owned(),
                bytes: Some(entry.bytes),
            },
        });
    }
    let path = Path::new(model);
    if path.exists() {
        return Ok(Located::Path(path.to_owned()));
    }
    let model = catalogue::hub_id(model);
    let Some(id) = HubId::parse(model).filter(|_| !looks_like_a_path(model)) else {
        return Err(unknown(model));
    };
    match cached::hub_model(&id, home) {
        Some(path) => Ok(Located::Path(path)),
        None => Ok(Located::NotCached {
            name: id.to_string(),
            bytes: None,
        }),
    }
}

/// `dir/model.gguf` could be a hub id by its letters, but nobody means one.
fn looks_like_a_path(model: &str) -> bool {
    !model.contains(':') && model.to_ascii_lowercase().ends_with(".gguf")
}

pub(super) fn unknown(model: &str) -> WeightsError {
    let near = catalogue::near(model);
    let reason = if !near.is_empty() {
        format!("did you mean {}?", near.join(" or "))
    } else if model.contains('/') || model.contains('\\') || looks_like_a_path(model) {
        "there is no such file or folder".to_owned()
    } else {
        "give a catalogue name (mettle models lists them), a hub id (owner/name), a .gguf file or a folder".to_owned()
    };
    WeightsError::UnknownModel {
        model: model.to_owned(),
        reason,
    }
}
