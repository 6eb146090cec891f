//! Owns the open files of a safetensors model and every tensor as they have it: one file, or the shards that an index names.

use super::header::{self, Stored};
use super::index::Index;
use super::{INDEX, SINGLE};
use crate::error::{Result, WeightsError};
use crate::mapping::Mapping;
use std::collections::HashMap;
use std::path::Path;

pub struct Shards {
    files: Vec<Mapping>,
    tensors: Vec<Stored>,
    /// Which file holds each.
    file_of: Vec<usize>,
    by_name: HashMap<String, usize>,
}

impl Shards {
    /// Opens a `.safetensors` file, an index file, or a folder that holds `model.safetensors` or an index.
    pub fn open(path: &Path) -> Result<Shards> {
        let found = std::fs::metadata(path).map_err(WeightsError::io("open", path))?;
        if found.is_dir() {
            for name in [SINGLE, INDEX] {
                let inside = path.join(name);
                // A dangling or looping link is reported as such, not passed over.
                if inside.symlink_metadata().is_ok() {
                    return Shards::open_file(&inside);
                }
            }
            let problem = format!("the folder holds neither {SINGLE} nor {INDEX}");
            return Err(WeightsError::Malformed(problem).in_file(path));
        }
        Shards::open_file(path)
    }

    /// Opens one file that is in memory already.
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Shards> {
        let mut opened = Shards::empty();
        opened.add_shard(Mapping::Held(bytes))?;
        Ok(opened)
    }

    /// In the order of the files and of their bytes.
    pub fn tensors(&self) -> &[Stored] {
        &self.tensors
    }

    pub fn find(&self, name: &str) -> Option<usize> {
        self.by_name.get(name).copied()
    }

    pub fn bytes(&self, index: usize) -> &[u8] {
        &self.files[self.file_of[index]][self.tensors[index].range.clone()]
    }

    pub fn release(&self, index: usize) {
        self.files[self.file_of[index]].release(self.tensors[index].range.clone());
    }

    fn empty() -> Shards {
        Shards {
            files: Vec::new(),
            tensors: Vec::new(),
            file_of: Vec::new(),
            by_name: HashMap::new(),
        }
    }

    fn open_file(path: &Path) -> Result<Shards> {
        let mut opened = Shards::empty();
        if path.extension().is_some_and(|e| e == "json") {
            let index = Index::read(path)?;
            let folder = path.parent().unwrap_or(Path::new("."));
            for shard in index.shards() {
                opened.open_shard(&folder.join(shard))?;
                opened
                    .check_against(&index, shard)
                    .map_err(|e| e.in_file(path))?;
            }
        } else {
            opened.open_shard(path)?;
        }
        Ok(opened)
    }

    fn open_shard(&mut self, path: &Path) -> Result<()> {
        let bytes = Mapping::open(path)?;
        self.add_shard(bytes).map_err(|e| e.in_file(path))
    }

    fn add_shard(&mut self, bytes: Mapping) -> Result<()> {
        for tensor in header::read(&bytes)? {
            let index = self.tensors.len();
            if self.by_name.insert(tensor.name.clone(), index).is_some() {
                let problem = format!("tensor {:?} is in an earlier shard too", tensor.name);
                return Err(WeightsError::Malformed(problem));
            }
            self.tensors.push(tensor);
            self.file_of.push(self.files.len());
        }
        self.files.push(bytes);
        Ok(())
    }

    /// Checks that the last shard added holds exactly the tensors that the index says.
    fn check_against(&self, index: &Index, shard: &str) -> Result<()> {
        let last = self.files.len() - 1;
        for (tensor, file) in self.tensors.iter().zip(&self.file_of) {
            if *file == last && index.shard_of(&tensor.name) != Some(shard) {
                return Err(WeightsError::Malformed(format!(
                    "shard {shard:?} holds tensor {:?}, but the index {}",
                    tensor.name,
                    match index.shard_of(&tensor.name) {
                        Some(other) => format!("says it is in {other:?}"),
                        None => "does not name it".to_owned(),
                    }
                )));
            }
        }
        for name in index.tensors_in(shard) {
            let held = self.by_name.get(name);
            if held.is_none_or(|i| self.file_of[*i] != last) {
                return Err(WeightsError::Malformed(format!(
                    "the index says that tensor {name:?} is in {shard:?}, but it is not there"
                )));
            }
        }
        Ok(())
    }
}
