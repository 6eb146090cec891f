//! Owns random weights for benchmarks and tests: seeded, shaped like a model's, and sane to compute with.

use crate::error::{Result, WeightsError, gigabytes};
use crate::free_memory::free_memory;
use crate::random_blocks::RandomBlocks;
use memmap2::MmapMut;
use mettle_tensor::{TensorInfo, TensorSource, TensorView};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Mutex;

/// Bytes that one work item fills, about: small enough to spread one large tensor over all threads.
const CHUNK_BYTES: usize = 1 << 20;

/// Tensors start at multiples of a cache line.
const ALIGNMENT: u64 = 64;

/// Tensors of random values with standard deviation 1/sqrt(last dimension); one-dimensional dense ones are near 1.
/// The bytes of a tensor depend only on the seed, its name, its type and its shape.
pub struct Dummy {
    tensors: Vec<TensorInfo>,
    memory: MmapMut,
    /// Each tensor's bytes in `memory`.
    ranges: Vec<Range<usize>>,
    by_name: HashMap<String, usize>,
}

impl Dummy {
    /// Refuses what the machine has no memory for.
    ///
    /// # Panics
    /// If a tensor's rows are not whole blocks of its type: whoever makes up the list checks that.
    pub fn new(tensors: Vec<TensorInfo>, seed: u64) -> Result<Dummy> {
        let sizes: Vec<usize> = tensors.iter().map(size).collect();
        let padded = |size: &usize| (*size as u64).next_multiple_of(ALIGNMENT);
        let needed = sizes.iter().map(padded).fold(0, u64::saturating_add);
        let mut memory = zeroed(needed, free_memory())?;
        let mut ranges = Vec::with_capacity(sizes.len());
        let mut work = Vec::new();
        let mut rest = &mut memory[..];
        let mut start = 0;
        for (info, size) in tensors.iter().zip(&sizes) {
            ranges.push(start..start + size);
            let (bytes, after) = rest.split_at_mut(padded(size) as usize);
            start += bytes.len();
            rest = after;
            let block_bytes = info.dtype.block_bytes();
            let generator = RandomBlocks::new(info, seed);
            let chunk_bytes = CHUNK_BYTES / block_bytes * block_bytes;
            for (index, chunk) in bytes[..*size].chunks_mut(chunk_bytes).enumerate() {
                work.push((generator, index, chunk));
            }
        }
        fill(work);
        let by_name = tensors
            .iter()
            .enumerate()
            .map(|(i, t)| (t.name.clone(), i))
            .collect();
        Ok(Dummy {
            tensors,
            memory,
            ranges,
            by_name,
        })
    }
}

fn size(info: &TensorInfo) -> usize {
    info.dtype.tensor_bytes(&info.shape).unwrap_or_else(|| {
        panic!(
            "tensor {:?} of shape {:?} is not made of whole {} blocks",
            info.name, info.shape, info.dtype
        )
    })
}

/// Memory of the system's own: unlike a vector's, asking for too much of it is an error, and it is zero unwritten.
fn zeroed(needed: u64, free: Option<u64>) -> Result<MmapMut> {
    let too_large = |reason: String| WeightsError::RandomTooLarge { needed, reason };
    // Systems promise memory that they do not have and end the program when it is written.
    if let Some(free) = free.filter(|free| needed > *free) {
        return Err(too_large(format!("{} are free", gigabytes(free))));
    }
    let size = usize::try_from(needed).ok();
    let size = size.filter(|size| *size <= isize::MAX as usize);
    let size = size.ok_or_else(|| too_large("no system has as much".into()))?;
    MmapMut::map_anon(size).map_err(|reason| too_large(reason.to_string()))
}

fn fill(work: Vec<(RandomBlocks, usize, &mut [u8])>) {
    let threads = std::thread::available_parallelism()
        .map_or(1, |n| n.get())
        .min(work.len());
    let queue = Mutex::new(work.into_iter());
    let next = || queue.lock().expect("no holder panics").next();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some((generator, index, chunk)) = next() {
                    generator.fill(index, chunk);
                }
            });
        }
    });
}

impl TensorSource for Dummy {
    fn tensors(&self) -> &[TensorInfo] {
        &self.tensors
    }

    fn view(&self, index: usize) -> TensorView<'_> {
        let info = &self.tensors[index];
        TensorView {
            dtype: info.dtype,
            shape: &info.shape,
            bytes: self.memory[self.ranges[index].clone()].into(),
            order: None,
        }
    }

    fn find(&self, name: &str) -> Option<usize> {
        self.by_name.get(name).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    #[test]
    fn more_than_is_free_is_refused_before_it_is_taken() {
        let error = |needed, free| zeroed(needed, free).unwrap_err().to_string();
        expect!["random weights need 140.0 GB of memory: 16.0 GB are free"]
            .assert_eq(&error(140_000_000_000, Some(16_000_000_000)));
        // Where the system does not say what is free, it refuses by itself.
        let unknown = error(1 << 60, None);
        assert!(
            unknown.starts_with("random weights need 1152921504.6 GB of memory: "),
            "{unknown}"
        );
        assert!(error(u64::MAX, None).ends_with("no system has as much"));
        assert_eq!(zeroed(0, Some(0)).unwrap().len(), 0);
        assert_eq!(zeroed(64, Some(64)).unwrap()[..], [0; 64]);
    }
}
