//! Owns compiled kernels: one Metal library for each `.metal` file, one pipeline for each kernel and set of constants.

use crate::memory::Object;
use mettle_gpu::GpuError;
use mettle_kernels::select::{Constants, Launch};
use mettle_kernels::{FunctionConstant, Library};
use objc2::rc::{Retained, autoreleasepool};
use objc2::runtime::{NSObjectProtocol, ProtocolObject};
use objc2::sel;
use objc2_foundation::{NSError, NSString};
use objc2_metal::{
    MTLCompileOptions, MTLComputePipelineState, MTLDataType, MTLDevice, MTLFunctionConstantValues,
    MTLLanguageVersion, MTLLibrary, MTLMathFloatingPointFunctions, MTLMathMode,
};
use std::collections::HashMap;
use std::ptr::NonNull;
use std::sync::Arc;

/// A kernel that the device can run.
#[derive(Clone)]
pub struct MetalPipeline {
    pub state: Object<dyn MTLComputePipelineState>,
    /// Metal's index of each argument, in the arguments' order.
    pub indices: Arc<[usize]>,
    most_threads: usize,
    /// Bytes of threadgroup memory that are left to a launch.
    threadgroup_limit: usize,
}

impl MetalPipeline {
    /// Why the device cannot run it so, if it cannot.
    pub fn refusal(&self, launch: &Launch) -> Option<String> {
        let (threads, most) = (launch.threads as usize, self.most_threads);
        if threads > most {
            return Some(format!(
                "{threads} threads a threadgroup, at most {most} fit"
            ));
        }
        let (bytes, most) = (launch.threadgroup_bytes, self.threadgroup_limit);
        (bytes > most)
            .then(|| format!("{bytes} bytes of threadgroup memory, at most {most} are left"))
    }
}

/// Pipelines by kernel and constants.
type Pipelines = HashMap<(&'static str, Constants), MetalPipeline>;

/// What has been compiled so far. It is never let go of, so that no command buffer has to keep its pipelines alive.
#[derive(Default)]
pub struct Compiled {
    libraries: HashMap<&'static str, Object<dyn MTLLibrary>>,
    pipelines: Pipelines,
}

impl Compiled {
    pub fn pipeline(
        &mut self,
        device: &ProtocolObject<dyn MTLDevice>,
        launch: &Launch,
    ) -> Result<MetalPipeline, GpuError> {
        let name = launch.kernel.host_name.as_str();
        let refused = |message: String| GpuError::Compile {
            kernel: name.to_owned(),
            message,
        };
        let key = (name, launch.constants);
        let pipeline = match self.pipelines.get(&key) {
            Some(pipeline) => pipeline.clone(),
            None => {
                let compiled = autoreleasepool(|_| self.compile(device, launch));
                let pipeline = compiled.map_err(refused)?;
                self.pipelines.insert(key, pipeline.clone());
                pipeline
            }
        };
        match pipeline.refusal(launch) {
            Some(why) => Err(refused(why)),
            None => Ok(pipeline),
        }
    }

    fn compile(
        &mut self,
        device: &ProtocolObject<dyn MTLDevice>,
        launch: &Launch,
    ) -> Result<MetalPipeline, String> {
        let name = launch.kernel.host_name.as_str();
        let (source, signature) =
            mettle_kernels::signature(name).ok_or("no source has this kernel")?;
        let values = constants(&source.interface.constants, &launch.constants)?;
        let function = self
            .library(device, source)?
            .newFunctionWithName_constantValues_error(&NSString::from_str(name), &values)
            .map_err(message)?;
        let state = device
            .newComputePipelineStateWithFunction_error(&function)
            .map_err(message)?;
        let threadgroup_limit = device
            .maxThreadgroupMemoryLength()
            .saturating_sub(state.staticThreadgroupMemoryLength());
        let indices = signature.buffers();
        Ok(MetalPipeline {
            most_threads: state.maxTotalThreadsPerThreadgroup(),
            state,
            indices: indices.iter().map(|(index, _)| *index as usize).collect(),
            threadgroup_limit,
        })
    }

    fn library(
        &mut self,
        device: &ProtocolObject<dyn MTLDevice>,
        source: &'static Library,
    ) -> Result<Object<dyn MTLLibrary>, String> {
        let file = source.source.name;
        if let Some(library) = self.libraries.get(file) {
            return Ok(library.clone());
        }
        let text = NSString::from_str(&source.text);
        let library = device
            .newLibraryWithSource_options_error(&text, Some(&options()))
            .map_err(message)?;
        self.libraries.insert(file, library.clone());
        Ok(library)
    }
}

/// MSL 3.1 is the first with bfloat. Arithmetic as it is written, functions at full precision: a kernel names the fast ones
/// that it wants, and gives the numbers that the emulator gives.
fn options() -> Retained<MTLCompileOptions> {
    let options = MTLCompileOptions::new();
    options.setLanguageVersion(MTLLanguageVersion::Version3_1);
    if options.respondsToSelector(sel!(setMathMode:)) {
        options.setMathMode(MTLMathMode::Safe);
        options.setMathFloatingPointFunctions(MTLMathFloatingPointFunctions::Precise);
    } else {
        // macOS 14 has only this switch, which means both.
        #[allow(deprecated)]
        options.setFastMathEnabled(false);
    }
    options
}

/// The values by the index that the source gives to each name.
fn constants(
    declared: &[FunctionConstant],
    given: &[(&'static str, u32)],
) -> Result<Retained<MTLFunctionConstantValues>, String> {
    let values = MTLFunctionConstantValues::new();
    for (name, value) in given {
        let constant = declared.iter().find(|constant| constant.name == *name);
        let constant = constant.ok_or_else(|| format!("there is no function constant {name}"))?;
        let (mut flag, mut number) = (u8::from(*value != 0), *value);
        let (place, kind) = match constant.type_name.as_str() {
            "bool" => (NonNull::from_mut(&mut flag).cast(), MTLDataType::Bool),
            "uint" => (NonNull::from_mut(&mut number).cast(), MTLDataType::UInt),
            "int" => (NonNull::from_mut(&mut number).cast(), MTLDataType::Int),
            other => return Err(format!("function constant {name} is of the type {other}")),
        };
        // SAFETY: `place` points to a live value of that type, which is copied.
        unsafe { values.setConstantValue_type_atIndex(place, kind, constant.index as usize) };
    }
    Ok(values)
}

pub fn message(error: Retained<NSError>) -> String {
    error.localizedDescription().to_string()
}
