//! Owns an open safetensors model: one file, or the shards that an index names.

mod header;
mod index;
mod tensor_map;

use crate::error::{Result, WeightsError};
use crate::mapping::Mapping;
pub(crate) use index::Index;
use mettle_tensor::{TensorInfo, TensorSource, TensorView};
use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;

pub(crate) const SINGLE: &str = "model.safetensors";
pub(crate) const INDEX: &str = "model.safetensors.index.json";

pub struct Safetensors {
    shards: Vec<Mapping>,
    tensors: Vec<TensorInfo>,
    places: Vec<Place>,
    by_name: HashMap<String, usize>,
}

struct Place {
    shard: usize,
    range: Range<usize>,
}

impl Safetensors {
    /// Opens a `.safetensors` file, an index file, or a folder that holds `model.safetensors` or an index.
    pub fn open(path: &Path) -> Result<Safetensors> {
        let found = std::fs::metadata(path).map_err(WeightsError::io("open", path))?;
        if found.is_dir() {
            for name in [SINGLE, INDEX] {
                let inside = path.join(name);
                // A dangling or looping link is reported as such, not passed over.
                if inside.symlink_metadata().is_ok() {
                    return Safetensors::open_file(&inside);
                }
            }
            let problem = format!("the folder holds neither {SINGLE} nor {INDEX}");
            return Err(WeightsError::Malformed(problem).in_file(path));
        }
        Safetensors::open_file(path)
    }

    /// Opens one file that is in memory already.
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Safetensors> {
        let mut opened = Safetensors::empty();
        opened.add_shard(Mapping::Held(bytes))?;
        Ok(opened)
    }

    fn empty() -> Safetensors {
        Safetensors {
            shards: Vec::new(),
            tensors: Vec::new(),
            places: Vec::new(),
            by_name: HashMap::new(),
        }
    }

    fn open_file(path: &Path) -> Result<Safetensors> {
        let mut opened = Safetensors::empty();
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
        for (info, range) in header::read(&bytes)? {
            let index = self.tensors.len();
            if self.by_name.insert(info.name.clone(), index).is_some() {
                let problem = format!("tensor {:?} is in an earlier shard too", info.name);
                return Err(WeightsError::Malformed(problem));
            }
            self.tensors.push(info);
            self.places.push(Place {
                shard: self.shards.len(),
                range,
            });
        }
        self.shards.push(bytes);
        Ok(())
    }

    /// Checks that the last shard added holds exactly the tensors that the index says.
    fn check_against(&self, index: &Index, shard: &str) -> Result<()> {
        let last = self.shards.len() - 1;
        for (info, place) in self.tensors.iter().zip(&self.places) {
            if place.shard == last && index.shard_of(&info.name) != Some(shard) {
                return Err(WeightsError::Malformed(format!(
                    "shard {shard:?} holds tensor {:?}, but the index {}",
                    info.name,
                    match index.shard_of(&info.name) {
                        Some(other) => format!("says it is in {other:?}"),
                        None => "does not name it".to_owned(),
                    }
                )));
            }
        }
        for name in index.tensors_in(shard) {
            let held = self.by_name.get(name);
            if held.is_none_or(|i| self.places[*i].shard != last) {
                return Err(WeightsError::Malformed(format!(
                    "the index says that tensor {name:?} is in {shard:?}, but it is not there"
                )));
            }
        }
        Ok(())
    }
}

impl TensorSource for Safetensors {
    fn tensors(&self) -> &[TensorInfo] {
        &self.tensors
    }

    fn view(&self, index: usize) -> TensorView<'_> {
        let (info, place) = (&self.tensors[index], &self.places[index]);
        TensorView {
            dtype: info.dtype,
            shape: &info.shape,
            bytes: &self.shards[place.shard][place.range.clone()],
            order: None,
        }
    }

    fn release(&self, index: usize) {
        let place = &self.places[index];
        self.shards[place.shard].release(place.range.clone());
    }

    fn find(&self, name: &str) -> Option<usize> {
        self.by_name.get(name).copied()
    }
}
