//! Owns random weights for benchmarks and tests: seeded, shaped like a model's, and sane to compute with.

use crate::random_blocks::RandomBlocks;
use mettle_tensor::{TensorInfo, TensorSource, TensorView};
use std::collections::HashMap;
use std::sync::Mutex;

/// Bytes that one work item fills, about: small enough to spread one large tensor over all threads.
const CHUNK_BYTES: usize = 1 << 20;

/// Tensors of random values with standard deviation 1/sqrt(last dimension); one-dimensional dense ones are near 1.
/// The bytes of a tensor depend only on the seed, its name, its type and its shape.
pub struct Dummy {
    tensors: Vec<TensorInfo>,
    bytes: Vec<Vec<u8>>,
    by_name: HashMap<String, usize>,
}

impl Dummy {
    /// # Panics
    /// If a tensor's rows are not whole blocks of its type: whoever makes up the list checks that.
    pub fn new(tensors: Vec<TensorInfo>, seed: u64) -> Dummy {
        let mut bytes: Vec<Vec<u8>> = tensors.iter().map(zeroed).collect();
        let mut work = Vec::new();
        for (info, bytes) in tensors.iter().zip(&mut bytes) {
            let block_bytes = info.dtype.block_bytes();
            let generator = RandomBlocks::new(info, seed);
            let chunk_bytes = CHUNK_BYTES / block_bytes * block_bytes;
            for (index, chunk) in bytes.chunks_mut(chunk_bytes).enumerate() {
                work.push((generator, index, chunk));
            }
        }
        fill(work);
        let by_name = tensors
            .iter()
            .enumerate()
            .map(|(i, t)| (t.name.clone(), i))
            .collect();
        Dummy {
            tensors,
            bytes,
            by_name,
        }
    }
}

fn zeroed(info: &TensorInfo) -> Vec<u8> {
    let size = info.dtype.tensor_bytes(&info.shape).unwrap_or_else(|| {
        panic!(
            "tensor {:?} of shape {:?} is not made of whole {} blocks",
            info.name, info.shape, info.dtype
        )
    });
    vec![0; size]
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
            bytes: &self.bytes[index],
        }
    }

    fn find(&self, name: &str) -> Option<usize> {
        self.by_name.get(name).copied()
    }
}
