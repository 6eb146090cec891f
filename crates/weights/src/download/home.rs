//! Owns the layout of the cache folder and the locks in it.

use super::catalogue::CatalogueEntry;
use super::hub::HubId;
use super::progress::{Options, Progress};
use crate::error::{Result, WeightsError};
use std::ffi::OsString;
use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The folder that downloaded models live in.
#[derive(Clone, Debug)]
pub struct Home {
    root: PathBuf,
}

/// Held while one process fetches one model.
pub(super) struct Lock(#[expect(dead_code, reason = "closing the file ends the lock")] File);

/// A folder that goes away with its owner.
pub(super) struct Scratch(PathBuf);

impl Scratch {
    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What cannot be removed now is removed by the next pull.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Home {
    /// `chosen` if given, else the platform's cache folder. Nothing is created yet.
    pub fn discover(chosen: Option<PathBuf>) -> Result<Home> {
        if let Some(root) = chosen {
            return Ok(Home { root });
        }
        match platform_caches(|variable| std::env::var_os(variable)) {
            Some(caches) => Ok(Home {
                root: caches.join("mettle"),
            }),
            None => Err(WeightsError::NoHome),
        }
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    pub(super) fn catalogue_file(&self, entry: &CatalogueEntry) -> PathBuf {
        self.root
            .join("catalogue")
            .join(file_name(entry.name))
            .join(entry.file)
    }

    pub(super) fn hub_root(&self) -> PathBuf {
        self.root.join("hub")
    }

    pub(super) fn hub_folder(&self, id: &HubId) -> PathBuf {
        // The hub allows no "--" in names, so the folder's name can be turned back into the id.
        self.hub_root().join(format!("{}--{}", id.owner, id.name))
    }

    /// An empty folder for passing files, on the same disk as the models, removed when dropped. Whoever calls holds
    /// the lock of `model`, so what is there already was left by a process that died.
    pub(super) fn scratch(&self, model: &str) -> Result<Scratch> {
        let path = self.root.join("tmp").join(file_name(model));
        if path.exists() {
            std::fs::remove_dir_all(&path).map_err(WeightsError::io("remove", &path))?;
        }
        create_folder(&path)?;
        Ok(Scratch(path))
    }

    /// Waits until no other process fetches `model`.
    pub(super) fn lock(
        &self,
        model: &str,
        options: &Options,
        progress: &mut dyn Progress,
    ) -> Result<Lock> {
        let folder = self.root.join("locks");
        create_folder(&folder)?;
        let path = folder.join(format!("{}.lock", file_name(model)));
        let file = File::create(&path).map_err(WeightsError::io("create", &path))?;
        let mut waiting = false;
        loop {
            match file.try_lock() {
                Ok(()) => break,
                Err(TryLockError::Error(e)) => return Err(WeightsError::io("lock", &path)(e)),
                Err(TryLockError::WouldBlock) => {
                    if !waiting {
                        progress.begin("waiting for another process that fetches it", None);
                        waiting = true;
                    }
                    options.check_cancel()?;
                    std::thread::sleep(Duration::from_millis(100));
                }
            }
        }
        if waiting {
            progress.finish();
        }
        Ok(Lock(file))
    }
}

/// Where the platform keeps what programs can fetch again.
fn platform_caches(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let folder = |name| {
        variable(name)
            .map(PathBuf::from)
            // The XDG rules say that relative paths are to be ignored.
            .filter(|path| path.is_absolute())
    };
    if cfg!(target_os = "macos") {
        folder("HOME").map(|home| home.join("Library/Caches"))
    } else {
        folder("XDG_CACHE_HOME").or_else(|| folder("HOME").map(|home| home.join(".cache")))
    }
}

pub(super) fn create_folder(path: &Path) -> Result<()> {
    std::fs::create_dir_all(path).map_err(WeightsError::io("create", path))
}

/// A model's name without the characters that mean something in paths.
fn file_name(model: &str) -> String {
    model.replace([':', '/', '\\'], "-")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caches(variables: &[(&str, &str)]) -> Option<PathBuf> {
        platform_caches(|name| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| OsString::from(value))
        })
    }

    #[cfg(not(target_os = "macos"))]
    #[test]
    fn the_xdg_rules_are_kept() {
        let home = ("HOME", "/home/me");
        let caches_in_home = Some(PathBuf::from("/home/me/.cache"));
        assert_eq!(caches(&[home, ("XDG_CACHE_HOME", "/c")]), Some("/c".into()));
        assert_eq!(caches(&[home, ("XDG_CACHE_HOME", "c")]), caches_in_home);
        assert_eq!(caches(&[home]), caches_in_home);
    }

    #[cfg(target_os = "macos")]
    #[test]
    fn the_library_holds_the_caches() {
        let found = caches(&[("HOME", "/Users/me"), ("XDG_CACHE_HOME", "/c")]);
        assert_eq!(found, Some("/Users/me/Library/Caches".into()));
    }

    #[test]
    fn without_a_home_there_is_no_cache() {
        assert_eq!(caches(&[]), None);
        assert_eq!(caches(&[("HOME", "relative")]), None);
    }
}
