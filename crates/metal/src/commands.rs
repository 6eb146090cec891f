//! Owns the recording of commands: passes, command buffers and the fence that orders them.
//!
//! Dispatches go to a compute pass in which all may run at the same time; a barrier is a memory barrier of the pass. Metal
//! orders nothing between passes that use untracked memory, whether they are in one command buffer or in two of the same
//! queue. So every pass first waits for the device's one fence and last updates it, which makes a chain of all passes in the
//! order of their commits. (Waiting for a fence after updating it is not allowed within a pass; this way round it is.)

use crate::device::MetalGpu;
use crate::library::MetalPipeline;
use crate::memory::{MetalBuffer, Object};
use crate::work::Work;
use mettle_gpu::{Argument, Encoder, GpuError};
use mettle_kernels::select::Launch;
use objc2::rc::autoreleasepool;
use objc2::runtime::ProtocolObject;
use objc2_metal::{
    MTLBarrierScope, MTLBlitCommandEncoder, MTLCommandBuffer, MTLCommandEncoder, MTLCommandQueue,
    MTLComputeCommandEncoder, MTLDispatchType, MTLFence, MTLSize,
};
use std::ptr::NonNull;

/// A command buffer is committed at the first barrier after so many dispatches, so that the GPU starts while later ones are
/// still being recorded, ...
const DISPATCHES: usize = 50;
/// ... or so many threadgroups: 8192 tiles of 64 x 64 x 4096 are 0.3 TFLOP, a tenth of a second on the smallest chip. The
/// system kills command buffers that run for seconds.
const THREADGROUPS: u64 = 8192;
/// What Metal takes by `setBytes`.
const MOST_BYTES: usize = 4096;

/// A pass that takes commands. It ends when dropped: Metal stops the process where a pass is released unended.
enum Pass {
    Compute(Object<dyn MTLComputeCommandEncoder>),
    Copy(Object<dyn MTLBlitCommandEncoder>),
}

impl Pass {
    fn wait_for(&self, fence: &ProtocolObject<dyn MTLFence>) {
        match self {
            Pass::Compute(pass) => pass.waitForFence(fence),
            Pass::Copy(pass) => pass.waitForFence(fence),
        }
    }

    fn update(&self, fence: &ProtocolObject<dyn MTLFence>) {
        match self {
            Pass::Compute(pass) => pass.updateFence(fence),
            Pass::Copy(pass) => pass.updateFence(fence),
        }
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        match self {
            Pass::Compute(pass) => pass.endEncoding(),
            Pass::Copy(pass) => pass.endEncoding(),
        }
    }
}

/// Commands being recorded, in as many command buffers as their number asks for.
pub struct MetalEncoder<'a> {
    // In this order when dropped: the pass ends before its command buffer goes.
    pass: Option<Pass>,
    buffer: Option<Object<dyn MTLCommandBuffer>>,
    work: Work,
    gpu: &'a mut MetalGpu,
    /// Whether a pass before this one updates the fence; nobody says what waiting for one never updated does.
    follows: bool,
    has_commands: bool,
    /// Of the current command buffer.
    dispatches: usize,
    threadgroups: u64,
    error: Option<GpuError>,
}

impl<'a> MetalEncoder<'a> {
    pub fn new(gpu: &'a mut MetalGpu) -> MetalEncoder<'a> {
        MetalEncoder {
            pass: None,
            buffer: None,
            work: Work::new(gpu.under_way()),
            follows: gpu.fence_was_updated,
            gpu,
            has_commands: false,
            dispatches: 0,
            threadgroups: 0,
            error: None,
        }
    }

    fn fail(&mut self, error: GpuError) {
        self.error.get_or_insert(error);
    }

    /// Opens a pass of the other kind, or the first one.
    fn open(
        &mut self,
        new: impl FnOnce(&ProtocolObject<dyn MTLCommandBuffer>) -> Option<Pass>,
    ) -> Option<()> {
        self.close();
        // Both come autoreleased, and this thread may have no pool of its own.
        let opened = autoreleasepool(|_| {
            if self.buffer.is_none() {
                // Unretained, which spares a retain for each binding: `trait Gpu` promises that buffers outlive the work, the
                // device keeps all pipelines, and `Work` the staging. Blocks while 64 others are unfinished; all of them are
                // committed, so that they do finish.
                let queue = self.gpu.queue();
                self.buffer = queue.commandBufferWithUnretainedReferences();
            }
            new(self.buffer.as_ref()?)
        });
        let Some(pass) = opened else {
            self.fail(GpuError::Fault("Metal gives no command buffer".to_owned()));
            return None;
        };
        if self.follows {
            pass.wait_for(self.gpu.fence());
        }
        self.pass = Some(pass);
        Some(())
    }

    /// The pass that takes dispatches; none after a failure.
    fn compute(&mut self) -> Option<&ProtocolObject<dyn MTLComputeCommandEncoder>> {
        if self.error.is_some() {
            return None;
        }
        if !matches!(self.pass, Some(Pass::Compute(_))) {
            let kind = MTLDispatchType::Concurrent;
            self.open(|buffer| {
                let pass = buffer.computeCommandEncoderWithDispatchType(kind);
                pass.map(Pass::Compute)
            })?;
        }
        match &self.pass {
            Some(Pass::Compute(pass)) => Some(pass),
            _ => None,
        }
    }

    /// The pass that takes copies; none after a failure.
    fn blit(&mut self) -> Option<&ProtocolObject<dyn MTLBlitCommandEncoder>> {
        if self.error.is_some() {
            return None;
        }
        if !matches!(self.pass, Some(Pass::Copy(_))) {
            self.open(|buffer| buffer.blitCommandEncoder().map(Pass::Copy))?;
        }
        match &self.pass {
            Some(Pass::Copy(pass)) => Some(pass),
            _ => None,
        }
    }

    /// Ends the pass. What comes next comes after it.
    fn close(&mut self) {
        if let Some(pass) = self.pass.take() {
            autoreleasepool(|_| {
                pass.update(self.gpu.fence());
                drop(pass);
            });
            self.follows = true;
        }
    }

    fn commit(&mut self) {
        self.close();
        if let Some(buffer) = self.buffer.take() {
            autoreleasepool(|_| buffer.commit());
            self.gpu.fence_was_updated = true;
            self.work.add(buffer);
        }
        self.dispatches = 0;
        self.threadgroups = 0;
    }
}

impl Encoder for MetalEncoder<'_> {
    type Buffer = MetalBuffer;
    type Pipeline = MetalPipeline;
    type Submitted = Work;

    fn upload(&mut self, buffer: &MetalBuffer, offset: usize, bytes: &[u8]) {
        if !self.has_commands {
            return buffer.write(offset, bytes);
        }
        // What was recorded before has still to read what is there now. A pass of its own comes after all of that.
        self.close();
        match self.gpu.new_buffer("upload", bytes.len()) {
            Ok(staging) => {
                staging.write(0, bytes);
                self.copy((&staging, 0), (buffer, offset), bytes.len());
                self.close();
                self.work.keep(staging);
            }
            Err(error) => self.fail(error),
        }
    }

    fn copy(&mut self, from: (&MetalBuffer, usize), to: (&MetalBuffer, usize), bytes: usize) {
        from.0.check_range(from.1, bytes);
        to.0.check_range(to.1, bytes);
        if bytes == 0 {
            return;
        }
        self.has_commands = true;
        let Some(pass) = self.blit() else { return };
        // SAFETY: both ranges lie inside their buffers, which outlive the work by the contract of `trait Gpu`.
        unsafe {
            pass.copyFromBuffer_sourceOffset_toBuffer_destinationOffset_size(
                from.0.memory(),
                from.1,
                to.0.memory(),
                to.1,
                bytes,
            );
        }
    }

    fn dispatch(
        &mut self,
        pipeline: &MetalPipeline,
        launch: &Launch,
        arguments: &[Argument<'_, MetalBuffer>],
    ) {
        let name = &launch.kernel.host_name;
        let indices = &pipeline.indices;
        assert_eq!(arguments.len(), indices.len(), "arguments of {name}");
        if let Some(why) = pipeline.refusal(launch) {
            return self.fail(GpuError::Fault(format!("{name}: {why}")));
        }
        if launch.threadgroups.contains(&0) {
            return;
        }
        let Some(pass) = self.compute() else { return };
        pass.setComputePipelineState(&pipeline.state);
        for (argument, &index) in arguments.iter().zip(&**indices) {
            bind(pass, index, argument);
        }
        if launch.threadgroup_bytes > 0 {
            let bytes = launch.threadgroup_bytes.next_multiple_of(16);
            // SAFETY: every kernel with threadgroup memory has it at index 0.
            unsafe { pass.setThreadgroupMemoryLength_atIndex(bytes, 0) };
        }
        let [width, height, depth] = launch.threadgroups.map(|n| n as usize);
        let threadgroups = MTLSize {
            width,
            height,
            depth,
        };
        let threads = MTLSize {
            width: launch.threads as usize,
            height: 1,
            depth: 1,
        };
        pass.dispatchThreadgroups_threadsPerThreadgroup(threadgroups, threads);
        self.has_commands = true;
        self.dispatches += 1;
        self.threadgroups += (width * height * depth) as u64;
    }

    fn barrier(&mut self) {
        let is_full = self.dispatches >= DISPATCHES || self.threadgroups >= THREADGROUPS;
        match &self.pass {
            // The fence between the two is the barrier.
            _ if is_full => self.commit(),
            Some(Pass::Compute(pass)) => pass.memoryBarrierWithScope(MTLBarrierScope::Buffers),
            // Within a pass of copies there is none.
            Some(Pass::Copy(_)) => self.close(),
            None => {}
        }
    }

    fn submit(mut self) -> Result<Work, GpuError> {
        match self.error.take() {
            Some(error) => Err(error),
            None => {
                self.commit();
                Ok(self.work)
            }
        }
    }
}

fn bind(
    pass: &ProtocolObject<dyn MTLComputeCommandEncoder>,
    index: usize,
    argument: &Argument<'_, MetalBuffer>,
) {
    match argument {
        Argument::Buffer(buffer, offset) => {
            buffer.check_range(*offset, 0);
            // SAFETY: the offset lies inside the buffer, the index is the kernel's own, and the buffer outlives the work by the
            // contract of `trait Gpu`.
            unsafe { pass.setBuffer_offset_atIndex(Some(buffer.memory()), *offset, index) };
        }
        Argument::Bytes(bytes) => {
            assert!((1..=MOST_BYTES).contains(&bytes.len()), "{}", bytes.len());
            // SAFETY: the bytes are copied now; the index is the kernel's own.
            unsafe {
                pass.setBytes_length_atIndex(NonNull::from_ref(*bytes).cast(), bytes.len(), index)
            };
        }
    }
}
