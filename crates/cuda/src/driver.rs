//! Owns the loading of the CUDA driver's library and the meaning of its result codes.

use cudarc::driver::sys::{self, CUresult};
use mettle_gpu::GpuError;
use std::ffi::{CStr, c_char};

/// PTX of version 7.8, which the kernels are, is read by drivers of CUDA 11.8 and later.
const OLDEST_DRIVER: i32 = 11080;

/// Loads and starts the driver, and gives its version: 12040 for CUDA 12.4. A machine without one is told so.
pub fn load() -> Result<i32, GpuError> {
    // The bindings panic where the library or a symbol is missing, so both are looked for first.
    // SAFETY: a library of this name is the driver, whose loading has no effect but its own set-up.
    if !unsafe { sys::is_culib_present() } {
        return Err(not_available(
            "the NVIDIA driver's library (libcuda) is not on this machine",
        ));
    }
    for symbol in [
        "cuInit",
        "cuDriverGetVersion",
        "cuGetErrorName",
        "cuGetErrorString",
    ] {
        // SAFETY: the symbol is only looked for; it is not called under this type.
        let found = unsafe { sys::culib().get::<unsafe extern "C" fn()>(symbol.as_bytes()) };
        if found.is_err() {
            return Err(not_available(format!(
                "the library found as libcuda has no function {symbol}"
            )));
        }
    }
    // SAFETY: the first call into the driver, as it asks for; 0 is the only flag there is.
    told(unsafe { sys::cuInit(0) }).map_err(not_available)?;
    let mut version = 0;
    // SAFETY: the driver writes one int there.
    told(unsafe { sys::cuDriverGetVersion(&mut version) }).map_err(not_available)?;
    if version < OLDEST_DRIVER {
        return Err(not_available(format!(
            "the driver is for CUDA {}, the kernels need {} or later",
            dotted(version),
            dotted(OLDEST_DRIVER)
        )));
    }
    Ok(version)
}

/// `12.4` of 12040.
pub fn dotted(version: i32) -> String {
    format!("{}.{}", version / 1000, version % 1000 / 10)
}

pub fn not_available(why: impl Into<String>) -> GpuError {
    GpuError::NotAvailable {
        device: "cuda",
        why: why.into(),
    }
}

/// An error that says what was being done. After one that a kernel caused, every later call gives the same.
pub fn check(code: CUresult, doing: &str) -> Result<(), GpuError> {
    told(code).map_err(|error| GpuError::Fault(format!("{doing}: {error}")))
}

/// The name and text of an error: `CUDA_ERROR_NO_DEVICE (no CUDA-capable device is detected)`.
pub fn told(code: CUresult) -> Result<(), String> {
    match code {
        CUresult::CUDA_SUCCESS => Ok(()),
        code => Err(name_and_text(code)),
    }
}

fn name_and_text(code: CUresult) -> String {
    let told = |ask: unsafe fn(CUresult, *mut *const c_char) -> CUresult| {
        let mut text: *const c_char = std::ptr::null();
        // SAFETY: the driver stores the address of a static string, or null for a code that it does not know.
        unsafe {
            if ask(code, &mut text) != CUresult::CUDA_SUCCESS || text.is_null() {
                return None;
            }
            Some(CStr::from_ptr(text).to_string_lossy().into_owned())
        }
    };
    let name = told(sys::cuGetErrorName).unwrap_or_else(|| format!("{code:?}"));
    match told(sys::cuGetErrorString) {
        Some(text) => format!("{name} ({text})"),
        None => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_read_as_nvidia_writes_them() {
        assert_eq!(dotted(11080), "11.8");
        assert_eq!(dotted(12040), "12.4");
        assert_eq!(dotted(13000), "13.0");
    }
}
