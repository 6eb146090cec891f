//! Owns the primary context of the first visible device, and the facts about that device.

use crate::driver::{self, check, not_available, told};
use crate::early_start;
use cudarc::driver::sys::{self, CUcontext, CUdevice, CUdevice_attribute};
use mettle_gpu::GpuError;
use std::ffi::{CStr, c_int};

/// What the kernels are compiled for; later devices run them too.
const OLDEST_CAPABILITY: (c_int, c_int) = (8, 0);

pub struct Context {
    handle: CUcontext,
    device: CUdevice,
}

// SAFETY: a handle of the driver, which any thread may use, and several at the same time.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

#[derive(Debug, Clone)]
pub struct Facts {
    pub name: String,
    pub memory_bytes: usize,
    pub multiprocessors: u32,
    /// The most threadgroup memory that a kernel may ask for.
    pub shared_bytes: usize,
    /// 12040 for CUDA 12.4.
    pub driver_version: i32,
    /// Kernels may be set up before those in front of them end.
    pub has_early_start: bool,
}

impl Context {
    /// Loads the driver and takes the first device that it shows: it hides those not in `CUDA_VISIBLE_DEVICES`.
    pub fn open() -> Result<(Context, Facts), GpuError> {
        let driver_version = driver::load()?;
        let mut count = 0;
        // SAFETY: the driver is started and writes one int there.
        told(unsafe { sys::cuDeviceGetCount(&mut count) }).map_err(not_available)?;
        if count == 0 {
            return Err(not_available("the driver shows no device"));
        }
        let mut device = 0;
        // SAFETY: as above; there is a device 0.
        told(unsafe { sys::cuDeviceGet(&mut device, 0) }).map_err(not_available)?;
        let facts = Facts::of(device, driver_version).map_err(not_available)?;
        let mut handle: CUcontext = std::ptr::null_mut();
        // SAFETY: the device is one that the driver gave; what is retained here is released in `drop`.
        told(unsafe { sys::cuDevicePrimaryCtxRetain(&mut handle, device) })
            .map_err(not_available)?;
        Ok((Context { handle, device }, facts))
    }

    /// Makes this the calling thread's context, which every other call needs. Costs a store to thread-local memory.
    pub fn enter(&self) -> Result<(), GpuError> {
        // SAFETY: the context is retained as long as this value lives.
        let code = unsafe { sys::cuCtxSetCurrent(self.handle) };
        check(code, "entering the context")
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: retained in `open`, once. An error leaves nothing to do.
        let _ = unsafe { sys::cuDevicePrimaryCtxRelease_v2(self.device) };
    }
}

impl Facts {
    fn of(device: CUdevice, driver_version: i32) -> Result<Facts, String> {
        let attribute = |which: CUdevice_attribute| {
            let mut value = 0;
            // SAFETY: the device is one that the driver gave, which writes one int there.
            told(unsafe { sys::cuDeviceGetAttribute(&mut value, which, device) })?;
            Ok::<c_int, String>(value)
        };
        let mut name = [0u8; 128];
        // SAFETY: the driver writes at most as many bytes as it is told, the closing zero included.
        told(unsafe {
            sys::cuDeviceGetName(name.as_mut_ptr().cast(), name.len() as c_int, device)
        })?;
        let name = CStr::from_bytes_until_nul(&name)
            .map_or_else(|_| "a device".into(), |name| name.to_string_lossy());
        let capability = (
            attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
            attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        );
        if capability < OLDEST_CAPABILITY {
            return Err(format!(
                "{name} has compute capability {}.{}, the kernels need {}.{}",
                capability.0, capability.1, OLDEST_CAPABILITY.0, OLDEST_CAPABILITY.1
            ));
        }
        let mut memory_bytes = 0;
        // SAFETY: as for attributes, one size.
        told(unsafe { sys::cuDeviceTotalMem_v2(&mut memory_bytes, device) })?;
        let multiprocessors =
            attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?;
        let shared_bytes =
            attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?;
        Ok(Facts {
            name: name.into_owned(),
            memory_bytes,
            multiprocessors: multiprocessors.unsigned_abs(),
            shared_bytes: shared_bytes.unsigned_abs() as usize,
            driver_version,
            has_early_start: capability >= early_start::OLDEST_CAPABILITY,
        })
    }
}
