//! Owns commands on their way to the device: each goes into the stream at once.

use crate::driver::told;
use crate::event::Event;
use crate::gpu::CudaGpu;
use crate::memory::Buffer;
use crate::pipeline::{MOST_ARGUMENTS, MOST_PARAMS_BYTES, Pipeline};
use cudarc::driver::sys::{
    self, CUdeviceptr, CUlaunchAttribute, CUlaunchAttributeID, CUlaunchConfig,
};
use mettle_gpu::{Argument, Encoder, GpuError};
use mettle_kernels::select::Launch;
use std::ffi::c_void;
use std::marker::PhantomData;

pub struct CudaEncoder<'a> {
    gpu: &'a mut CudaGpu,
    timer: Timer,
    /// The first error; what comes after it is not run.
    failed: Option<GpuError>,
    /// Stays on its thread, whose context was set when recording began.
    not_send: PhantomData<*mut ()>,
}

/// Marks before and behind the commands of one submission.
pub struct Timer {
    pub start: Event,
    pub end: Event,
}

/// Work under way.
pub struct Submitted {
    pub(crate) timer: Timer,
}

impl<'a> CudaEncoder<'a> {
    /// The device's context is current.
    pub(crate) fn new(gpu: &'a mut CudaGpu, timer: Timer) -> Result<CudaEncoder<'a>, GpuError> {
        timer.start.record(&gpu.compute)?;
        Ok(CudaEncoder {
            gpu,
            timer,
            failed: None,
            not_send: PhantomData,
        })
    }

    fn unless_failed(&mut self, command: impl FnOnce(&mut CudaGpu) -> Result<(), GpuError>) {
        if self.failed.is_none() {
            self.failed = command(self.gpu).err();
        }
    }
}

impl Encoder for CudaEncoder<'_> {
    type Buffer = Buffer;
    type Pipeline = Pipeline;
    type Submitted = Submitted;

    fn upload(&mut self, buffer: &Buffer, offset: usize, bytes: &[u8]) {
        let to = buffer.part(offset, bytes.len());
        // SAFETY: `part` has checked that the bytes are inside; uploads go through the compute stream alone.
        self.unless_failed(|gpu| unsafe { gpu.uploads.send(&gpu.compute, to, bytes) });
    }

    fn copy(&mut self, from: (&Buffer, usize), to: (&Buffer, usize), bytes: usize) {
        let from = from.0.part(from.1, bytes);
        let to = to.0.part(to.1, bytes);
        if bytes == 0 {
            return;
        }
        assert!(
            from.abs_diff(to) >= bytes as CUdeviceptr,
            "a copy of {bytes} bytes onto itself"
        );
        // SAFETY: `part` has checked that both ranges are inside, and they do not meet.
        self.unless_failed(|gpu| unsafe { gpu.compute.copy_within(to, from, bytes) });
    }

    fn dispatch(
        &mut self,
        pipeline: &Pipeline,
        launch: &Launch,
        arguments: &[Argument<'_, Buffer>],
    ) {
        self.unless_failed(|gpu| run(gpu, pipeline, launch, arguments));
    }

    /// Nothing to do: a stream runs its commands one after the other, each seeing what those before it wrote (kernels that
    /// start early wait for that themselves).
    fn barrier(&mut self) {}

    fn submit(self) -> Result<Submitted, GpuError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        self.timer.end.record(&self.gpu.compute)?;
        Ok(Submitted { timer: self.timer })
    }
}

fn run(
    gpu: &CudaGpu,
    pipeline: &Pipeline,
    launch: &Launch,
    arguments: &[Argument<'_, Buffer>],
) -> Result<(), GpuError> {
    let name = &pipeline.kernel().host_name;
    assert_eq!(&launch.kernel.host_name, name);
    // The driver reads as many values as the kernel has parameters, so their number and sizes must be right.
    assert_eq!(arguments.len(), pipeline.arguments(), "arguments of {name}");
    // An empty grid, which the driver refuses.
    if launch.threadgroups.contains(&0) {
        return Ok(());
    }
    let mut addresses: [CUdeviceptr; MOST_ARGUMENTS] = [0; MOST_ARGUMENTS];
    let mut params = Params([0; MOST_PARAMS_BYTES]);
    let mut values: [*mut c_void; MOST_ARGUMENTS] = [std::ptr::null_mut(); MOST_ARGUMENTS];
    for (at, argument) in arguments.iter().enumerate() {
        values[at] = match argument {
            Argument::Buffer(buffer, offset) => {
                let takes_bytes = pipeline.params().is_some_and(|(index, _)| index == at);
                assert!(!takes_bytes, "{name} takes its params as argument {at}");
                addresses[at] = buffer.part(*offset, 0);
                (&raw mut addresses[at]).cast()
            }
            Argument::Bytes(bytes) => {
                assert_eq!(
                    Some((at, bytes.len())),
                    pipeline.params(),
                    "params of {name}"
                );
                params.0[..bytes.len()].copy_from_slice(bytes);
                (&raw mut params).cast()
            }
        };
    }
    let [x, y, z] = launch.threadgroups;
    let failed = |message: String| {
        GpuError::Fault(format!(
            "launching {name}, {x} x {y} x {z} threadgroups of {} threads and {} bytes: {message}",
            launch.threads, launch.threadgroup_bytes,
        ))
    };
    // A runner knows a pipeline by kernel and constants, so this launch may want more than that which it was made for.
    pipeline
        .allow_shared_bytes(launch.threadgroup_bytes)
        .map_err(failed)?;
    // The attribute's other fields are a union as large as its largest; this one is an int.
    // SAFETY: all zeros is a valid value of these plain structs.
    let mut early_start: CUlaunchAttribute = unsafe { std::mem::zeroed() };
    early_start.id = CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
    early_start.value.programmaticStreamSerializationAllowed = 1;
    let config = CUlaunchConfig {
        gridDimX: x,
        gridDimY: y,
        gridDimZ: z,
        blockDimX: launch.threads,
        blockDimY: 1,
        blockDimZ: 1,
        sharedMemBytes: launch.threadgroup_bytes as u32,
        hStream: gpu.compute.handle(),
        attrs: &raw mut early_start,
        numAttrs: u32::from(gpu.facts.has_early_start),
    };
    // SAFETY: the function is of a loaded module, the stream alive; each value is as large as the kernel's parameter.
    // What the kernel does with its buffers is the runner's concern: bindings are checked against the source. A kernel
    // that may start early waits inside before it touches memory.
    let code = unsafe {
        sys::cuLaunchKernelEx(
            &config,
            pipeline.function(),
            values.as_mut_ptr(),
            std::ptr::null_mut(),
        )
    };
    told(code).map_err(failed)
}

/// Aligned for every field that a params struct may have.
#[repr(C, align(16))]
struct Params([u8; MOST_PARAMS_BYTES]);
