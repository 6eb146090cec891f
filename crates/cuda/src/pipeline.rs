//! Owns compiled kernels: PTX handed to the driver's compiler, once for each kernel and set of function constants.

use crate::context::{Context, Facts};
use crate::driver::told;
use crate::early_start::with_early_start;
use cudarc::driver::sys::{self, CUfunction, CUfunction_attribute, CUjit_option, CUmodule};
use mettle_gpu::GpuError;
use mettle_kernels::select::{Constants, Launch};
use mettle_kernels::{Signature, ptx};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ffi::{CStr, CString, c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The most that a kernel may bind, so that a launch needs no memory but its stack. A test holds every kernel to it.
pub const MOST_ARGUMENTS: usize = 16;
pub const MOST_PARAMS_BYTES: usize = 256;
/// Threadgroup memory that a kernel may use without asking the driver first, on every device.
const SHARED_BYTES_UNASKED: usize = 48 << 10;
const LOG_BYTES: usize = 16 << 10;

/// A kernel ready to run.
pub struct Pipeline {
    module: Arc<Module>,
}

impl Pipeline {
    pub fn function(&self) -> CUfunction {
        self.module.function
    }

    pub fn kernel(&self) -> &'static Signature {
        self.module.kernel
    }

    /// How many arguments a launch binds.
    pub fn arguments(&self) -> usize {
        self.module.arguments
    }

    /// Which of them is the params struct, and its size.
    pub fn params(&self) -> Option<(usize, usize)> {
        self.module.params
    }

    /// Says to the driver that launches will use so much threadgroup memory, where it wants to know: beyond 48 KB.
    pub fn allow_shared_bytes(&self, bytes: usize) -> Result<(), String> {
        if bytes <= self.module.shared_bytes.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.module.context.enter().map_err(|e| e.to_string())?;
        let most = CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        let value = c_int::try_from(bytes).map_err(|e| e.to_string())?;
        // SAFETY: the function is of a loaded module.
        told(unsafe { sys::cuFuncSetAttribute(self.module.function, most, value) })?;
        self.module.shared_bytes.store(bytes, Ordering::Relaxed);
        Ok(())
    }
}

/// Every kernel compiled so far, kept until the device is dropped.
#[derive(Default)]
pub struct Pipelines {
    compiled: HashMap<(&'static str, Constants), Arc<Module>>,
}

impl Pipelines {
    pub fn get(
        &mut self,
        context: &Arc<Context>,
        facts: &Facts,
        launch: &Launch,
    ) -> Result<Pipeline, GpuError> {
        let compile_error = |message: String| GpuError::Compile {
            kernel: launch.kernel.host_name.clone(),
            message,
        };
        if launch.threadgroup_bytes > facts.shared_bytes {
            return Err(compile_error(format!(
                "it asks for {} bytes of threadgroup memory, the device has {}",
                launch.threadgroup_bytes, facts.shared_bytes
            )));
        }
        let key = (launch.kernel.host_name.as_str(), launch.constants);
        let module = match self.compiled.entry(key) {
            Entry::Occupied(entry) => Arc::clone(entry.get()),
            Entry::Vacant(entry) => {
                let module = Module::compile(context, facts, launch).map_err(compile_error)?;
                Arc::clone(entry.insert(Arc::new(module)))
            }
        };
        let pipeline = Pipeline { module };
        pipeline
            .allow_shared_bytes(launch.threadgroup_bytes)
            .map_err(compile_error)?;
        Ok(pipeline)
    }
}

struct Module {
    context: Arc<Context>,
    handle: CUmodule,
    function: CUfunction,
    kernel: &'static Signature,
    arguments: usize,
    params: Option<(usize, usize)>,
    /// Threadgroup memory that a launch may use.
    shared_bytes: AtomicUsize,
}

// SAFETY: handles of the driver, which any thread may use, and several at the same time.
unsafe impl Send for Module {}
// SAFETY: as above.
unsafe impl Sync for Module {}

impl Module {
    fn compile(context: &Arc<Context>, facts: &Facts, launch: &Launch) -> Result<Module, String> {
        let kernel = launch.kernel;
        let text = mettle_kernels::signature(&kernel.host_name)
            .and_then(|(library, _)| {
                ptx::specialized(library, &kernel.host_name, &launch.constants)
            })
            .ok_or("there is no PTX of it in this binary")?;
        let text = match facts.has_early_start {
            true => with_early_start(&text),
            false => text,
        };
        let text = CString::new(text).map_err(|_| "its PTX holds a zero byte")?;
        let handle = load(context, &text)?;
        // From here on dropping it unloads it.
        let mut module = Module {
            context: Arc::clone(context),
            handle,
            function: std::ptr::null_mut(),
            kernel,
            arguments: 0,
            params: None,
            shared_bytes: AtomicUsize::new(SHARED_BYTES_UNASKED),
        };
        let name =
            CString::new(kernel.host_name.as_str()).map_err(|_| "its name holds a zero byte")?;
        // SAFETY: the module is loaded and the name ends with a zero.
        told(unsafe { sys::cuModuleGetFunction(&mut module.function, handle, name.as_ptr()) })?;
        (module.arguments, module.params) = bound(kernel);
        Ok(module)
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        // After a fault every call fails, and the module goes with the process.
        if self.context.enter().is_ok() {
            // SAFETY: loaded once, unloaded once; the device's list keeps every module until its streams have ended.
            let _ = unsafe { sys::cuModuleUnload(self.handle) };
        }
    }
}

/// How many buffers a kernel binds, and which of them is its params struct with how many bytes.
fn bound(kernel: &Signature) -> (usize, Option<(usize, usize)>) {
    let buffers = kernel.buffers();
    let params = buffers
        .iter()
        .enumerate()
        .find_map(|(at, (_, parameter))| Some((at, parameter.params.as_ref()?.bytes)));
    (buffers.len(), params)
}

fn load(context: &Arc<Context>, text: &CStr) -> Result<CUmodule, String> {
    context.enter().map_err(|error| error.to_string())?;
    let mut log = vec![0u8; LOG_BYTES];
    let mut options = [
        CUjit_option::CU_JIT_ERROR_LOG_BUFFER,
        CUjit_option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
    ];
    // The second value is a number in the place of a pointer, as the driver wants it.
    let mut values: [*mut c_void; 2] = [
        log.as_mut_ptr().cast(),
        std::ptr::without_provenance_mut(log.len()),
    ];
    let mut handle: CUmodule = std::ptr::null_mut();
    // SAFETY: the text ends with a zero; options and values are as many as said; the log is as long as said.
    let code = unsafe {
        sys::cuModuleLoadDataEx(
            &mut handle,
            text.as_ptr().cast(),
            options.len() as u32,
            options.as_mut_ptr(),
            values.as_mut_ptr(),
        )
    };
    told(code).map_err(|error| {
        let log = CStr::from_bytes_until_nul(&log).unwrap_or_default();
        match log.to_string_lossy().trim() {
            "" => error,
            log => format!("{error}: {log}"),
        }
    })?;
    Ok(handle)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kernel_fits_what_a_launch_can_bind() {
        for kernel in mettle_kernels::signatures() {
            let (arguments, params) = bound(kernel);
            assert!(arguments <= MOST_ARGUMENTS, "{}", kernel.host_name);
            let (at, bytes) = params.expect("every kernel has params");
            assert!(
                at < arguments && bytes <= MOST_PARAMS_BYTES,
                "{}",
                kernel.host_name
            );
        }
    }
}
