//! Owns all device buffers of an executable, by number, and keeps count of their bytes.

use crate::device::Gpu;
use crate::error::GpuError;
use crate::place::{BufferIndex, Place};

pub struct Memory<B> {
    buffers: Vec<B>,
    sizes: Vec<usize>,
}

impl<B> Memory<B> {
    pub fn new() -> Memory<B> {
        Memory {
            buffers: Vec::new(),
            sizes: Vec::new(),
        }
    }

    /// A buffer of its own.
    pub fn allocate<G: Gpu<Buffer = B>>(
        &mut self,
        gpu: &mut G,
        what: &'static str,
        bytes: usize,
        element: &'static str,
    ) -> Result<Place, GpuError> {
        let bytes = bytes.max(16);
        self.buffers.push(gpu.allocate(what, bytes)?);
        self.sizes.push(bytes);
        let index = BufferIndex(self.buffers.len() as u32 - 1);
        Ok(Place::new(index, 0, element))
    }

    /// Replaces a buffer by a larger one; its contents are lost. No work may be under way.
    pub fn grow<G: Gpu<Buffer = B>>(
        &mut self,
        gpu: &mut G,
        what: &'static str,
        index: BufferIndex,
        bytes: usize,
    ) -> Result<(), GpuError> {
        let size = &mut self.sizes[index.0 as usize];
        if bytes > *size {
            // Half as much again, so that a growing batch does not come back every step.
            let larger = bytes + bytes / 2;
            self.buffers[index.0 as usize] = gpu.allocate(what, larger)?;
            *size = larger;
        }
        Ok(())
    }

    pub fn write<G: Gpu<Buffer = B>>(
        &self,
        gpu: &mut G,
        index: BufferIndex,
        offset: usize,
        bytes: &[u8],
    ) -> Result<(), GpuError> {
        gpu.write(self.get(index), offset, bytes)
    }

    pub fn get(&self, index: BufferIndex) -> &B {
        &self.buffers[index.0 as usize]
    }

    pub fn total(&self) -> usize {
        self.sizes.iter().sum()
    }
}
