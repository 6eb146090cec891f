//! Owns the contract between the plan runner and a device: memory, pipelines, and commands that are recorded, submitted
//! and waited for. An encoder borrows its device, so nothing can be waited for or read back while commands are recorded;
//! a read needs the proof that the work is done.

use crate::error::GpuError;
use mettle_kernels::select::{DeviceProfile, Launch};

pub trait Gpu: Send + 'static {
    /// Memory of the device, freed when dropped. The runner drops none that submitted work still uses.
    type Buffer: Send;
    /// A kernel compiled for one set of function constants.
    type Pipeline: Send;
    type Encoder<'a>: Encoder<Buffer = Self::Buffer, Pipeline = Self::Pipeline, Submitted = Self::Submitted>
    where
        Self: 'a;
    /// Work under way.
    type Submitted: Send;

    /// `metal`, `cuda`, `emulator`.
    fn name(&self) -> &'static str;

    /// One line for people: which device, how large.
    fn describe(&self) -> String;

    fn profile(&self) -> DeviceProfile;

    /// Bytes that may be allocated in all, those already allocated included; `usize::MAX` where it is the machine's memory.
    fn memory_budget(&self) -> usize;

    /// New memory, its contents undefined, at a multiple of 256 bytes.
    fn allocate(&mut self, what: &'static str, bytes: usize) -> Result<Self::Buffer, GpuError>;

    /// Fills a part of a buffer that no work under way uses; done when it returns. For loading.
    fn write(&mut self, buffer: &Self::Buffer, offset: usize, bytes: &[u8])
    -> Result<(), GpuError>;

    /// Compiles `launch.kernel` with `launch.constants`.
    fn pipeline(&mut self, launch: &Launch) -> Result<Self::Pipeline, GpuError>;

    /// Starts recording.
    fn encoder(&mut self) -> Result<Self::Encoder<'_>, GpuError>;

    /// Blocks until the work is done.
    fn wait(&mut self, submitted: Self::Submitted) -> Result<Finished, GpuError>;

    /// Copies to the host what finished work left in a buffer.
    fn read(
        &mut self,
        finished: &Finished,
        buffer: &Self::Buffer,
        offset: usize,
        out: &mut [u8],
    ) -> Result<(), GpuError>;
}

/// Commands being recorded. Without a barrier between them they may run at the same time. An error in one is reported
/// by `submit`, or by `Gpu::wait`. Dropped without `submit`, the commands may or may not have run.
pub trait Encoder {
    type Buffer;
    type Pipeline;
    type Submitted;

    /// Fills a part of a buffer before the dispatches recorded after it. No work submitted earlier may still use it.
    fn upload(&mut self, buffer: &Self::Buffer, offset: usize, bytes: &[u8]);

    /// Copies between buffers, or within one where the ranges do not meet, as a command of its own: ordered by barriers.
    fn copy(&mut self, from: (&Self::Buffer, usize), to: (&Self::Buffer, usize), bytes: usize);

    /// Runs a kernel; `arguments` in the order of the kernel's buffer indices.
    fn dispatch(
        &mut self,
        pipeline: &Self::Pipeline,
        launch: &Launch,
        arguments: &[Argument<'_, Self::Buffer>],
    );

    /// All commands before it are finished, and what they wrote is visible, when those after it start.
    fn barrier(&mut self);

    fn submit(self) -> Result<Self::Submitted, GpuError>;
}

/// What is bound at one buffer index.
#[derive(Debug)]
pub enum Argument<'a, B> {
    /// A buffer from this byte on.
    Buffer(&'a B, usize),
    /// A params struct, copied.
    Bytes(&'a [u8]),
}

/// Proof that work is done, with the time that the device took for it. Only devices make one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Finished {
    pub gpu_seconds: f64,
}
