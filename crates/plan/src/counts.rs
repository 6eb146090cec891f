//! Owns the running numbers of an executable: kernels dispatched and bytes moved. Its thread adds, any other reads, and
//! neither waits for the other.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

/// What an executable has done since it was prepared.
#[derive(Debug, Default)]
pub struct Counts {
    /// Several entries may have one name: variants of a kernel, uses of it in the plan.
    kernels: Mutex<Vec<(&'static str, Arc<AtomicU64>)>>,
    bytes: AtomicU64,
}

/// How often one kernel was dispatched.
#[derive(Clone, Debug)]
pub struct KernelCount(Arc<AtomicU64>);

impl KernelCount {
    pub fn add_one(&self) {
        self.0.fetch_add(1, Relaxed);
    }
}

impl Counts {
    /// A counter for one more kernel. Takes a lock and memory: for when a kernel is chosen or compiled, not for a step.
    pub fn kernel(&self, name: &'static str) -> KernelCount {
        let count = Arc::new(AtomicU64::new(0));
        let mut kernels = self.kernels.lock().unwrap_or_else(PoisonError::into_inner);
        kernels.push((name, count.clone()));
        KernelCount(count)
    }

    pub fn add_bytes(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Relaxed);
    }

    /// How often each kernel ran; one that never did is not there.
    pub fn dispatches(&self) -> BTreeMap<&'static str, u64> {
        let kernels = self.kernels.lock().unwrap_or_else(PoisonError::into_inner);
        let mut total = BTreeMap::new();
        for (name, count) in kernels.iter() {
            let count = count.load(Relaxed);
            if count > 0 {
                *total.entry(*name).or_insert(0) += count;
            }
        }
        total
    }

    /// Bytes that the steps so far moved by the plan's formula ([`StepBytes`](crate::cost::StepBytes)):
    /// of every op that ran, its weights once a step (of an embedding table the rows looked up, of a mixture the experts
    /// that so many tokens can choose), the columns of activations that it reads and writes for each of its rows, the
    /// cache that it writes for each token and the cache that it reads for each sequence. What caches of the processor
    /// save or a kernel reads twice does not show; copies of pages and outputs read by the host are not steps' ops,
    /// and an attention counts whole, though the last one computes wanted rows only.
    pub fn bytes_moved(&self) -> u64 {
        self.bytes.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_of_one_name_are_added_up_and_idle_kernels_are_left_out() {
        let counts = Counts::default();
        let (a, again, idle) = (counts.kernel("a"), counts.kernel("a"), counts.kernel("b"));
        (0..3).for_each(|_| a.add_one());
        again.add_one();
        counts.add_bytes(10);
        counts.add_bytes(5);
        assert_eq!(counts.dispatches(), BTreeMap::from([("a", 4)]));
        assert_eq!(counts.bytes_moved(), 15);
        idle.add_one();
        assert_eq!(counts.dispatches(), BTreeMap::from([("a", 4), ("b", 1)]));
    }
}
