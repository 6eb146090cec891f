//! Owns what the parts of a split GGUF model say about each other: their names and their numbers.

use super::Metadata;
use crate::error::{Result, WeightsError};
use std::path::{Path, PathBuf};

/// Of the name `model-00002-of-00003.gguf`: the parts before the numbers, and the numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartName<'a> {
    pub model: &'a str,
    /// Counted from 1.
    pub part: usize,
    pub count: usize,
}

impl<'a> PartName<'a> {
    /// `None` for the name of a file that is whole, or that numbers no possible part.
    pub fn parse(file_name: &'a str) -> Option<PartName<'a>> {
        let (stem, ending) = file_name.rsplit_once('.')?;
        let (rest, count) = stem.rsplit_once("-of-")?;
        let (model, part) = rest.rsplit_once('-')?;
        let number = |digits: &str| {
            let plain = digits.len() == 5 && digits.bytes().all(|b| b.is_ascii_digit());
            plain.then(|| digits.parse().ok()).flatten()
        };
        let (part, count) = (number(part)?, number(count)?);
        let possible = ending.eq_ignore_ascii_case("gguf") && part >= 1 && part <= count;
        possible.then_some(PartName { model, part, count })
    }

    /// The name of another part of the same model.
    pub fn sibling(&self, part: usize) -> String {
        format!("{}-{part:05}-of-{:05}.gguf", self.model, self.count)
    }

    /// Every part's name, in order.
    pub fn all(&self) -> impl Iterator<Item = String> {
        (1..=self.count).map(|part| self.sibling(part))
    }
}

/// What a part's metadata says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Split {
    /// Counted from 0.
    pub number: u64,
    pub count: u64,
    /// Of all parts together.
    pub tensors: u64,
}

impl Split {
    /// `None` for a file that is whole: one part, or none, as merging leaves behind.
    pub fn read(metadata: &Metadata) -> Result<Option<Split>> {
        let count = metadata.get_u64("split.count")?.unwrap_or(0);
        if count <= 1 {
            return Ok(None);
        }
        let required = |key: &str| {
            let missing = || WeightsError::MissingKey { key: key.into() };
            metadata.get_u64(key)?.ok_or_else(missing)
        };
        let split = Split {
            number: required("split.no")?,
            count,
            tensors: required("split.tensors.count")?,
        };
        match split.number < count {
            true => Ok(Some(split)),
            false => Err(WeightsError::Malformed(format!(
                "split.no is {}, but split.count makes {} the last",
                split.number,
                count - 1
            ))),
        }
    }

    /// The paths of all parts, from the path of this one.
    pub fn paths(&self, path: &Path) -> Result<Vec<PathBuf>> {
        let (part, count) = (self.number + 1, self.count);
        let name = path.file_name().and_then(|n| n.to_str());
        let Some(name) = name.and_then(PartName::parse) else {
            return Err(WeightsError::Malformed(format!(
                "part {part} of {count} of a split GGUF model, but it is not called \
                 NAME-{part:05}-of-{count:05}.gguf, so the other parts cannot be found"
            )));
        };
        if (name.part as u64, name.count as u64) != (part, count) {
            return Err(WeightsError::Malformed(format!(
                "its name says part {} of {}, but inside it is part {part} of {count}",
                name.part, name.count
            )));
        }
        Ok(name.all().map(|name| path.with_file_name(name)).collect())
    }
}

/// Checks part `number` (from 0) against the first one.
pub fn check_part(number: usize, first: (&Metadata, Split), other: &Metadata) -> Result<()> {
    let (first, split) = first;
    let expected = Split {
        number: number as u64,
        ..split
    };
    match Split::read(other)? {
        Some(found) if found == expected => {}
        Some(found) => {
            return Err(WeightsError::Malformed(format!(
                "part {} of {} of a model with {} tensors, but part {} of {} of a model with {} belongs here",
                found.number + 1,
                found.count,
                found.tensors,
                number + 1,
                split.count,
                split.tensors,
            )));
        }
        None => {
            return Err(WeightsError::Malformed(format!(
                "a whole GGUF file, but part {} of {} belongs here",
                number + 1,
                split.count
            )));
        }
    }
    // Most writers leave all but the split keys to the first part; where another has them they must agree.
    for key in ["general.architecture", "general.name"] {
        if let (Some(here), Some(there)) = (other.get_str(key)?, first.get_str(key)?)
            && here != there
        {
            return Err(WeightsError::Malformed(format!(
                "a part of another model: {key} is {here:?} here and {there:?} in the first part"
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_parts_are_read_and_made() {
        let name = PartName::parse("a-of-b-Q4_K_M-00002-of-00003.gguf").unwrap();
        assert_eq!((name.model, name.part, name.count), ("a-of-b-Q4_K_M", 2, 3));
        let all: Vec<String> = name.all().collect();
        assert_eq!(all[0], "a-of-b-Q4_K_M-00001-of-00003.gguf");
        assert_eq!(all[1], "a-of-b-Q4_K_M-00002-of-00003.gguf");
        assert_eq!(all.len(), 3);
        for whole in [
            "model.gguf",
            "m-00000-of-00003.gguf",
            "m-00004-of-00003.gguf",
            "m-2-of-3.gguf",
            "m-+0002-of-00003.gguf",
            "m-00001-of-00003.safetensors",
            "00001-of-00003.gguf",
        ] {
            assert_eq!(PartName::parse(whole), None, "{whole}");
        }
    }
}
