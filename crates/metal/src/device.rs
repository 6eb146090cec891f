//! Owns the device: what it is, its one queue, its memory and its compiled kernels.

use crate::commands::MetalEncoder;
use crate::library::{Compiled, MetalPipeline};
use crate::memory::{MetalBuffer, Object, Residency};
use crate::work::Work;
use crate::{NAME, chip, registry};
use mettle_gpu::{Finished, Gpu, GpuError};
use mettle_kernels::select::{DeviceProfile, Launch};
use objc2::rc::autoreleasepool;
use objc2::runtime::ProtocolObject;
use objc2_foundation::{NSOperatingSystemVersion, NSProcessInfo};
use objc2_metal::{
    MTLCommandQueue, MTLCreateSystemDefaultDevice, MTLDevice, MTLFence, MTLGPUFamily,
};
use std::sync::Arc;

// Where a program has no window, `MTLCreateSystemDefaultDevice` finds nothing without it.
#[link(name = "CoreGraphics", kind = "framework")]
unsafe extern "C" {}

/// The system's GPU.
pub struct MetalGpu {
    device: Object<dyn MTLDevice>,
    queue: Object<dyn MTLCommandQueue>,
    fence: Object<dyn MTLFence>,
    pub(crate) fence_was_updated: bool,
    residency: Arc<Residency>,
    compiled: Compiled,
    cores: u32,
    /// One owner more for each encoder and each work not waited for.
    under_way: Arc<()>,
}

impl MetalGpu {
    pub fn open() -> Result<MetalGpu, GpuError> {
        autoreleasepool(|_| open()).map_err(|why| GpuError::NotAvailable { device: NAME, why })
    }

    pub(crate) fn queue(&self) -> &ProtocolObject<dyn MTLCommandQueue> {
        &self.queue
    }

    pub(crate) fn fence(&self) -> &ProtocolObject<dyn MTLFence> {
        &self.fence
    }

    pub(crate) fn under_way(&self) -> Arc<()> {
        Arc::clone(&self.under_way)
    }

    /// Memory that joins the residency set when next nothing is under way.
    pub(crate) fn new_buffer(
        &self,
        what: &'static str,
        bytes: usize,
    ) -> Result<MetalBuffer, GpuError> {
        autoreleasepool(|_| MetalBuffer::new(&self.device, &self.residency, what, bytes))
            .ok_or(GpuError::OutOfMemory { what, bytes })
    }

    fn is_idle(&self) -> bool {
        Arc::strong_count(&self.under_way) == 1
    }
}

fn open() -> Result<MetalGpu, String> {
    let device = MTLCreateSystemDefaultDevice().ok_or("the system has no Metal device")?;
    let name = device.name();
    // The first with matrices in simdgroups and 32 KiB of threadgroup memory for them.
    if !device.supportsFamily(MTLGPUFamily::Apple7) {
        return Err(format!("{name} cannot do what an M1 can (family Apple7)"));
    }
    let needed = NSOperatingSystemVersion {
        majorVersion: 14,
        minorVersion: 0,
        patchVersion: 0,
    };
    if !NSProcessInfo::processInfo().isOperatingSystemAtLeastVersion(needed) {
        return Err("it needs macOS 14, the first with Metal 3.1".to_owned());
    }
    let queue = device.newCommandQueue().ok_or("Metal gives no queue")?;
    let fence = device.newFence().ok_or("Metal gives no fence")?;
    let cores = registry::gpu_cores(device.registryID());
    Ok(MetalGpu {
        residency: Residency::new(&device, &queue),
        cores: cores.unwrap_or_else(|| chip::usual_cores(&name.to_string())),
        device,
        queue,
        fence,
        fence_was_updated: false,
        compiled: Compiled::default(),
        under_way: Arc::new(()),
    })
}

impl Gpu for MetalGpu {
    type Buffer = MetalBuffer;
    type Pipeline = MetalPipeline;
    type Encoder<'a> = MetalEncoder<'a>;
    type Submitted = Work;

    fn name(&self) -> &'static str {
        NAME
    }

    fn describe(&self) -> String {
        let name = autoreleasepool(|_| self.device.name().to_string());
        let gib = self.device.recommendedMaxWorkingSetSize() as f64 / (1u64 << 30) as f64;
        format!("{name}, {} GPU cores, {gib:.1} GiB for the GPU", self.cores)
    }

    fn profile(&self) -> DeviceProfile {
        DeviceProfile::apple(self.cores)
    }

    fn memory_budget(&self) -> usize {
        chip::budget(self.device.recommendedMaxWorkingSetSize())
    }

    fn allocate(&mut self, what: &'static str, bytes: usize) -> Result<MetalBuffer, GpuError> {
        if self.is_idle() && self.residency.has_retired() {
            autoreleasepool(|_| self.residency.apply());
        }
        self.new_buffer(what, bytes)
    }

    fn write(&mut self, buffer: &MetalBuffer, offset: usize, bytes: &[u8]) -> Result<(), GpuError> {
        buffer.write(offset, bytes);
        Ok(())
    }

    fn pipeline(&mut self, launch: &Launch) -> Result<MetalPipeline, GpuError> {
        self.compiled.pipeline(&self.device, launch)
    }

    fn encoder(&mut self) -> Result<MetalEncoder<'_>, GpuError> {
        if self.is_idle() {
            autoreleasepool(|_| self.residency.apply());
        }
        Ok(MetalEncoder::new(self))
    }

    fn wait(&mut self, submitted: Work) -> Result<Finished, GpuError> {
        submitted.finish()
    }

    fn read(
        &mut self,
        _: &Finished,
        buffer: &MetalBuffer,
        offset: usize,
        out: &mut [u8],
    ) -> Result<(), GpuError> {
        buffer.read(offset, out);
        Ok(())
    }
}
