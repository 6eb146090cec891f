//! Owns memory: of the device, and pinned memory of the host, which the device copies from and to by itself.

use crate::context::Context;
use crate::driver::check;
use cudarc::driver::sys::{self, CUdeviceptr, CUresult};
use mettle_gpu::GpuError;
use std::ffi::c_void;
use std::sync::Arc;

/// Memory of the device.
pub struct Buffer {
    context: Arc<Context>,
    address: CUdeviceptr,
    bytes: usize,
}

impl Buffer {
    pub fn new(
        context: &Arc<Context>,
        what: &'static str,
        bytes: usize,
    ) -> Result<Buffer, GpuError> {
        context.enter()?;
        let mut address: CUdeviceptr = 0;
        // The driver refuses to allocate nothing, and aligns what it allocates to 256 bytes at least.
        // SAFETY: the context is current; the memory is freed in `drop`.
        let code = unsafe { sys::cuMemAlloc_v2(&mut address, bytes.max(1)) };
        if code == CUresult::CUDA_ERROR_OUT_OF_MEMORY {
            return Err(GpuError::OutOfMemory { what, bytes });
        }
        check(code, "allocating memory of the device")?;
        Ok(Buffer {
            context: Arc::clone(context),
            address,
            bytes,
        })
    }

    /// The address of a part, which must lie inside.
    pub fn part(&self, offset: usize, bytes: usize) -> CUdeviceptr {
        assert!(
            offset
                .checked_add(bytes)
                .is_some_and(|end| end <= self.bytes),
            "{bytes} bytes at {offset} of a buffer of {}",
            self.bytes
        );
        self.address + offset as CUdeviceptr
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // After a fault every call fails, and the memory goes with the process.
        if self.context.enter().is_ok() {
            // SAFETY: allocated in `new`, freed once; no work under way uses it, as `trait Gpu` demands.
            let _ = unsafe { sys::cuMemFree_v2(self.address) };
        }
    }
}

/// Pinned memory of the host.
pub struct Pinned {
    context: Arc<Context>,
    start: *mut u8,
}

// SAFETY: memory that this value alone owns.
unsafe impl Send for Pinned {}

impl Pinned {
    pub fn new(context: &Arc<Context>, bytes: usize) -> Result<Pinned, GpuError> {
        context.enter()?;
        let mut start: *mut c_void = std::ptr::null_mut();
        // SAFETY: the context is current; the memory is freed in `drop`.
        let code = unsafe { sys::cuMemHostAlloc(&mut start, bytes, 0) };
        check(code, "allocating pinned memory")?;
        Ok(Pinned {
            context: Arc::clone(context),
            start: start.cast(),
        })
    }

    pub fn start(&self) -> *mut u8 {
        self.start
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        if self.context.enter().is_ok() {
            // SAFETY: allocated in `new`, freed once; its owner has waited for the copies that use it.
            let _ = unsafe { sys::cuMemFreeHost(self.start.cast()) };
        }
    }
}
