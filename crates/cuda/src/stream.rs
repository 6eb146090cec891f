//! Owns a queue of the device, whose commands run one after the other, and the copies put into it.

use crate::context::Context;
use crate::driver::check;
use cudarc::driver::sys::{self, CUdeviceptr, CUstream, CUstream_flags};
use mettle_gpu::GpuError;
use std::ffi::c_void;
use std::sync::Arc;

pub struct Stream {
    context: Arc<Context>,
    handle: CUstream,
}

// SAFETY: a handle of the driver, which any thread may use.
unsafe impl Send for Stream {}

impl Stream {
    /// One that waits for no other stream of the process, not even the default one.
    pub fn new(context: &Arc<Context>) -> Result<Stream, GpuError> {
        context.enter()?;
        let mut handle: CUstream = std::ptr::null_mut();
        let flags = CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
        // SAFETY: the context is current; the stream is destroyed in `drop`.
        let code = unsafe { sys::cuStreamCreate(&mut handle, flags) };
        check(code, "making a stream")?;
        Ok(Stream {
            context: Arc::clone(context),
            handle,
        })
    }

    pub fn handle(&self) -> CUstream {
        self.handle
    }

    /// Blocks until all commands are done.
    pub fn synchronize(&self) -> Result<(), GpuError> {
        // SAFETY: the stream is alive.
        let code = unsafe { sys::cuStreamSynchronize(self.handle) };
        check(code, "waiting for the stream")
    }

    /// Queues a copy to the device.
    ///
    /// # Safety
    /// `bytes` bytes are allocated on both sides; those at `from` are pinned, and nobody changes them until the copy is
    /// done.
    pub unsafe fn copy_in(
        &self,
        to: CUdeviceptr,
        from: *const u8,
        bytes: usize,
    ) -> Result<(), GpuError> {
        // SAFETY: the caller's promise.
        let code =
            unsafe { sys::cuMemcpyHtoDAsync_v2(to, from.cast::<c_void>(), bytes, self.handle) };
        check(code, "copying to the device")
    }

    /// Queues a copy to the host.
    ///
    /// # Safety
    /// `bytes` bytes are allocated on both sides; those at `to` are pinned, and nobody touches them until the copy is done.
    pub unsafe fn copy_out(
        &self,
        to: *mut u8,
        from: CUdeviceptr,
        bytes: usize,
    ) -> Result<(), GpuError> {
        // SAFETY: the caller's promise.
        let code =
            unsafe { sys::cuMemcpyDtoHAsync_v2(to.cast::<c_void>(), from, bytes, self.handle) };
        check(code, "copying to the host")
    }

    /// Queues a copy on the device.
    ///
    /// # Safety
    /// `bytes` bytes are allocated on both sides, and the ranges do not meet.
    pub unsafe fn copy_within(
        &self,
        to: CUdeviceptr,
        from: CUdeviceptr,
        bytes: usize,
    ) -> Result<(), GpuError> {
        // SAFETY: the caller's promise.
        let code = unsafe { sys::cuMemcpyDtoDAsync_v2(to, from, bytes, self.handle) };
        check(code, "copying on the device")
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // What is queued may still use pinned memory, which the owner frees next. After a fault every call fails, and
        // there is nothing left to wait for.
        if self.context.enter().is_ok() {
            let _ = self.synchronize();
            // SAFETY: made in `new`, destroyed once.
            let _ = unsafe { sys::cuStreamDestroy_v2(self.handle) };
        }
    }
}
