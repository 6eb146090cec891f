//! Owns a file on its way into the cache: written beside its place as `NAME.part`, checked, then renamed.

use super::home::create_folder;
use crate::error::{Result, WeightsError};
use sha2::{Digest, Sha256};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

/// What is known of a file before it is fetched.
#[derive(Clone, Debug, Default)]
pub struct Expected {
    pub bytes: Option<u64>,
    /// In lower-case hexadecimal.
    pub sha256: Option<String>,
}

pub struct PartFile {
    file: File,
    hasher: Sha256,
    written: u64,
    part: PathBuf,
    place: PathBuf,
}

impl PartFile {
    /// Starts over: what an earlier attempt left is thrown away.
    pub fn create(place: &Path) -> Result<PartFile> {
        let mut opened = PartFile::open(place)?;
        opened.restart()?;
        Ok(opened)
    }

    /// Goes on after what an earlier attempt left, which `finish` checks with the rest.
    pub fn resume(place: &Path) -> Result<PartFile> {
        let mut opened = PartFile::open(place)?;
        let mut buffer = vec![0; 1 << 16];
        loop {
            let read = opened
                .file
                .read(&mut buffer)
                .map_err(WeightsError::io("read", &opened.part))?;
            if read == 0 {
                return Ok(opened);
            }
            opened.hasher.update(&buffer[..read]);
            opened.written += read as u64;
        }
    }

    fn open(place: &Path) -> Result<PartFile> {
        let folder = place.parent().unwrap_or(Path::new("."));
        create_folder(folder)?;
        let mut name = place.as_os_str().to_owned();
        name.push(".part");
        let part = PathBuf::from(name);
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&part)
            .map_err(WeightsError::io("create", &part))?;
        Ok(PartFile {
            file,
            hasher: Sha256::new(),
            written: 0,
            part,
            place: place.to_owned(),
        })
    }

    pub fn written(&self) -> u64 {
        self.written
    }

    pub fn restart(&mut self) -> Result<()> {
        use std::io::Seek;
        let emptied = self.file.set_len(0).and_then(|()| self.file.rewind());
        emptied.map_err(WeightsError::io("empty", &self.part))?;
        self.hasher = Sha256::new();
        self.written = 0;
        Ok(())
    }

    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.file.write_all(bytes).map_err(|e| self.explain(e))?;
        self.hasher.update(bytes);
        self.written += bytes.len() as u64;
        Ok(())
    }

    /// Checks the whole file and moves it into its place. A file that fails the check is deleted.
    pub fn finish(self, expected: &Expected) -> Result<PathBuf> {
        let found = hexadecimal(&self.hasher.clone().finalize());
        let problem = match expected {
            Expected {
                bytes: Some(bytes), ..
            } if *bytes != self.written => Some(WeightsError::WrongSize {
                file: self.place.clone(),
                expected: *bytes,
                found: self.written,
            }),
            Expected {
                sha256: Some(sha256),
                ..
            } if *sha256 != found => Some(WeightsError::WrongChecksum {
                file: self.place.clone(),
                expected: sha256.clone(),
                found,
            }),
            _ => None,
        };
        if let Some(problem) = problem {
            std::fs::remove_file(&self.part).map_err(WeightsError::io("remove", &self.part))?;
            return Err(problem);
        }
        // Without the sync a crash could leave a file of the right name and the wrong contents.
        self.file.sync_all().map_err(|e| self.explain(e))?;
        std::fs::rename(&self.part, &self.place)
            .map_err(WeightsError::io("rename to", &self.place))?;
        Ok(self.place)
    }

    fn explain(&self, error: io::Error) -> WeightsError {
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => WeightsError::DiskFull {
                file: self.part.clone(),
                written: self.written,
            },
            _ => WeightsError::io("write", &self.part)(error),
        }
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expected(bytes: u64, sha256: &str) -> Expected {
        Expected {
            bytes: Some(bytes),
            sha256: Some(sha256.to_owned()),
        }
    }

    const ABC: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    #[test]
    fn resumed_files_are_checked_as_a_whole() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("deep/model.gguf");
        PartFile::create(&place).unwrap().write(b"ab").unwrap();
        assert!(!place.exists());
        let mut part = PartFile::resume(&place).unwrap();
        assert_eq!(part.written(), 2);
        part.write(b"c").unwrap();
        part.finish(&expected(3, ABC)).unwrap();
        assert_eq!(std::fs::read(&place).unwrap(), b"abc");
        assert_eq!(
            std::fs::read_dir(place.parent().unwrap()).unwrap().count(),
            1
        );
    }

    #[test]
    fn wrong_contents_never_reach_the_place() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("model.gguf");
        for contents in [&b"abd"[..], b"abcd", b""] {
            let mut part = PartFile::create(&place).unwrap();
            part.write(contents).unwrap();
            assert!(part.finish(&expected(3, ABC)).is_err());
            assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_full_disk_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("model.gguf");
        std::os::unix::fs::symlink("/dev/full", folder.path().join("model.gguf.part")).unwrap();
        let error = PartFile::open(&place).unwrap().write(b"abc").unwrap_err();
        let text = error.to_string();
        assert!(text.starts_with("the disk is full: 0 bytes of "), "{text}");
    }
}
