//! Owns work under way: the command buffers that were committed, until the last is done.

use crate::library::message;
use crate::memory::{MetalBuffer, Object};
use mettle_gpu::{Finished, GpuError};
use objc2::rc::autoreleasepool;
use objc2_metal::{MTLCommandBuffer, MTLCommandBufferStatus};
use std::sync::Arc;

/// Command buffers that run. Dropped, it waits for them: what is freed after it is in use no more.
pub struct Work {
    committed: Vec<Object<dyn MTLCommandBuffer>>,
    /// What uploads between dispatches are copied from.
    staging: Vec<MetalBuffer>,
    /// Counted by the device to know whether anything is under way.
    _under_way: Arc<()>,
}

// SAFETY: a committed command buffer is only waited for and asked for its state, which Metal allows on any thread.
unsafe impl Send for Work {}

impl Work {
    pub fn new(under_way: Arc<()>) -> Work {
        Work {
            committed: Vec::new(),
            staging: Vec::new(),
            _under_way: under_way,
        }
    }

    pub fn add(&mut self, committed: Object<dyn MTLCommandBuffer>) {
        self.committed.push(committed);
    }

    pub fn keep(&mut self, staging: MetalBuffer) {
        self.staging.push(staging);
    }

    /// Waits; the time is that of the GPU.
    pub fn finish(self) -> Result<Finished, GpuError> {
        autoreleasepool(|_| {
            let mut gpu_seconds = 0.0;
            let mut last_end = 0.0_f64;
            for buffer in &self.committed {
                buffer.waitUntilCompleted();
                if buffer.status() == MTLCommandBufferStatus::Error {
                    let message = buffer.error().map(message);
                    let unknown = || "Metal reports an error without a message".to_owned();
                    return Err(GpuError::Fault(message.unwrap_or_else(unknown)));
                }
                // One may count as started while it waits for the fence of the one before.
                gpu_seconds += buffer.GPUEndTime() - buffer.GPUStartTime().max(last_end);
                last_end = buffer.GPUEndTime();
            }
            Ok(Finished { gpu_seconds })
        })
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        for buffer in &self.committed {
            buffer.waitUntilCompleted();
        }
    }
}
