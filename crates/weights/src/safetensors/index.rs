//! Owns the index of a sharded safetensors model: which shard holds which tensor.

use super::tensor_map::TensorMap;
use crate::error::{Result, WeightsError};
use serde::Deserialize;
use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// The largest published models need about 10 MB.
const LARGEST_INDEX: u64 = 100_000_000;

pub struct Index {
    /// (tensor, shard) in file order.
    entries: Vec<(String, String)>,
    shard_by_tensor: HashMap<String, usize>,
}

#[derive(Deserialize)]
struct IndexFile {
    weight_map: TensorMap<String>,
}

impl Index {
    pub fn read(path: &Path) -> Result<Index> {
        let file = File::open(path).map_err(WeightsError::io("open", path))?;
        let mut text = Vec::new();
        file.take(LARGEST_INDEX + 1)
            .read_to_end(&mut text)
            .map_err(WeightsError::io("read", path))?;
        Index::parse(&text).map_err(|e| e.in_file(path))
    }

    fn parse(text: &[u8]) -> Result<Index> {
        if text.len() as u64 > LARGEST_INDEX {
            return Err(WeightsError::Malformed(format!(
                "the index is longer than {LARGEST_INDEX} bytes"
            )));
        }
        let file: IndexFile = serde_json::from_slice(text)
            .map_err(|e| WeightsError::Malformed(format!("the index is not valid: {e}")))?;
        let TensorMap(entries) = file.weight_map;
        if entries.is_empty() {
            return Err(WeightsError::Malformed("the index names no tensor".into()));
        }
        for (tensor, shard) in &entries {
            if !is_plain_name(shard) {
                return Err(WeightsError::Malformed(format!(
                    "the index places tensor {tensor:?} in {shard:?}; a shard must be a .safetensors file beside the index"
                )));
            }
        }
        let shard_by_tensor = entries
            .iter()
            .enumerate()
            .map(|(i, (tensor, _))| (tensor.clone(), i))
            .collect();
        Ok(Index {
            entries,
            shard_by_tensor,
        })
    }

    /// The shards by name, each once.
    pub fn shards(&self) -> BTreeSet<&str> {
        self.entries.iter().map(|(_, s)| s.as_str()).collect()
    }

    pub fn shard_of(&self, tensor: &str) -> Option<&str> {
        let entry = self.shard_by_tensor.get(tensor)?;
        Some(&self.entries[*entry].1)
    }

    pub fn tensors_in<'a>(&'a self, shard: &'a str) -> impl Iterator<Item = &'a str> {
        self.entries
            .iter()
            .filter(move |(_, s)| s == shard)
            .map(|(t, _)| t.as_str())
    }
}

/// A name that stays in its folder on every system.
fn is_plain_name(name: &str) -> bool {
    name.ends_with(".safetensors") && !name.contains(['/', '\\', ':', '\0'])
}
