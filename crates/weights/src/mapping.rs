//! Owns the bytes of a weight file: mapped from disk, or held in memory for tests.

use crate::error::{Result, WeightsError};
use memmap2::Mmap;
use std::fs::File;
use std::ops::{Deref, Range};
use std::path::Path;

pub enum Mapping {
    Mapped(Mmap),
    Held(Vec<u8>),
}

impl Mapping {
    pub fn open(path: &Path) -> Result<Mapping> {
        let file = File::open(path).map_err(WeightsError::io("open", path))?;
        let found = file.metadata().map_err(WeightsError::io("read", path))?;
        if !found.is_file() {
            return Err(WeightsError::Malformed("not a regular file".into()).in_file(path));
        }
        if found.len() == 0 {
            return Ok(Mapping::Held(Vec::new()));
        }
        // SAFETY: the map is read only. Should another process truncate or rewrite the file while it is open we may
        // read other bytes or be killed by the system; every engine that maps weights accepts this, and our own
        // downloads only ever replace a file by renaming over it, which leaves the mapped one intact.
        let map = unsafe { Mmap::map(&file) }.map_err(WeightsError::io("map", path))?;
        Ok(Mapping::Mapped(map))
    }

    /// Gives back the memory of the pages that lie wholly inside `range`. They come back from disk when read again.
    pub fn release(&self, range: Range<usize>) {
        let Mapping::Mapped(map) = self else { return };
        let page = page_size();
        let start = range.start.next_multiple_of(page);
        let end = range.end / page * page;
        if start >= end {
            return;
        }
        // SAFETY: the map is a clean, read-only view of a file, so dropping its pages loses nothing: a later read
        // faults the same bytes in again.
        let advised = unsafe {
            map.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, start, end - start)
        };
        // Only memory use depends on the advice.
        drop(advised);
    }
}

impl Deref for Mapping {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Mapping::Mapped(map) => map,
            Mapping::Held(bytes) => bytes,
        }
    }
}

fn page_size() -> usize {
    // SAFETY: sysconf reads a constant of the system and touches no memory of ours.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(size).unwrap_or(16384)
}
