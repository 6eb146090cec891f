//! Owns what stands for the device in a binary that was built without it: a type of which there is no value.

use mettle_gpu::{Argument, Encoder, Finished, Gpu, GpuError};
use mettle_kernels::select::{DeviceProfile, Launch};

/// An NVIDIA GPU, which this binary cannot use. Its emptiness is private, so that callers compile the same, and with the
/// same warnings, as against the real one.
pub struct CudaGpu {
    never: Never,
}

impl CudaGpu {
    /// Always `NotAvailable` in this build.
    pub fn open() -> Result<CudaGpu, GpuError> {
        Err(GpuError::NotAvailable {
            device: "cuda",
            why: "this binary was built without the feature `cuda`".to_string(),
        })
    }
}

/// Buffers, pipelines, encoders and work of a device that is not there.
pub enum Never {}

impl Gpu for CudaGpu {
    type Buffer = Never;
    type Pipeline = Never;
    type Encoder<'a> = Never;
    type Submitted = Never;

    fn name(&self) -> &'static str {
        match self.never {}
    }

    fn describe(&self) -> String {
        match self.never {}
    }

    fn profile(&self) -> DeviceProfile {
        match self.never {}
    }

    fn memory_budget(&self) -> usize {
        match self.never {}
    }

    fn allocate(&mut self, _what: &'static str, _bytes: usize) -> Result<Never, GpuError> {
        match self.never {}
    }

    fn write(&mut self, buffer: &Never, _offset: usize, _bytes: &[u8]) -> Result<(), GpuError> {
        match *buffer {}
    }

    fn pipeline(&mut self, _launch: &Launch) -> Result<Never, GpuError> {
        match self.never {}
    }

    fn encoder(&mut self) -> Result<Never, GpuError> {
        match self.never {}
    }

    fn wait(&mut self, submitted: Never) -> Result<Finished, GpuError> {
        match submitted {}
    }

    fn read(
        &mut self,
        _finished: &Finished,
        buffer: &Never,
        _offset: usize,
        _out: &mut [u8],
    ) -> Result<(), GpuError> {
        match *buffer {}
    }
}

impl Encoder for Never {
    type Buffer = Never;
    type Pipeline = Never;
    type Submitted = Never;

    fn upload(&mut self, buffer: &Never, _offset: usize, _bytes: &[u8]) {
        match *buffer {}
    }

    fn copy(&mut self, from: (&Never, usize), _to: (&Never, usize), _bytes: usize) {
        match *from.0 {}
    }

    fn dispatch(&mut self, pipeline: &Never, _launch: &Launch, _arguments: &[Argument<'_, Never>]) {
        match *pipeline {}
    }

    fn barrier(&mut self) {
        match *self {}
    }

    fn submit(self) -> Result<Never, GpuError> {
        match self {}
    }
}
