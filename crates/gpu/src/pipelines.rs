//! Owns the kernels that a device has compiled for an executable, each with its counter.

use crate::device::Gpu;
use crate::error::GpuError;
use mettle_kernels::select::{Constants, Launch};
use mettle_plan::{Counts, KernelCount};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

pub struct Pipelines<P> {
    compiled: Vec<Compiled<P>>,
    /// Looked up for every dispatch of every step.
    numbers: HashMap<Key, usize, BuildHasherDefault<Mixer>>,
    counts: Arc<Counts>,
}

struct Compiled<P> {
    pipeline: P,
    dispatches: KernelCount,
}

/// A kernel by its place in static memory, and the values of its function constants: their names and order are its own.
type Key = (usize, [u32; Constants::MOST]);

impl<P> Pipelines<P> {
    pub fn new(counts: Arc<Counts>) -> Pipelines<P> {
        Pipelines {
            compiled: Vec::new(),
            numbers: HashMap::default(),
            counts,
        }
    }

    /// The number of the pipeline that a launch needs, compiled if it was not before.
    pub fn find<G: Gpu<Pipeline = P>>(
        &mut self,
        gpu: &mut G,
        launch: &Launch,
    ) -> Result<usize, GpuError> {
        let mut values = [0; Constants::MOST];
        for (value, (_, given)) in values.iter_mut().zip(launch.constants.iter()) {
            *value = *given;
        }
        let key = (std::ptr::from_ref(launch.kernel) as usize, values);
        if let Some(&number) = self.numbers.get(&key) {
            return Ok(number);
        }
        self.compiled.push(Compiled {
            pipeline: gpu.pipeline(launch)?,
            dispatches: self.counts.kernel(&launch.kernel.host_name),
        });
        let number = self.compiled.len() - 1;
        self.numbers.insert(key, number);
        Ok(number)
    }

    /// A pipeline that is about to be dispatched.
    pub fn count(&self, number: usize) -> &P {
        let compiled = &self.compiled[number];
        compiled.dispatches.add_one();
        &compiled.pipeline
    }
}

/// Mixes the few words of a key; nobody chooses keys to collide.
#[derive(Default)]
struct Mixer(u64);

impl Hasher for Mixer {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn write_usize(&mut self, word: usize) {
        self.write_u64(word as u64);
    }
}
