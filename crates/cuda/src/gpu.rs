//! Owns the device: its streams, its staging memory, its compiled kernels.

use crate::context::{Context, Facts};
use crate::driver::{dotted, not_available};
use crate::encoder::{CudaEncoder, Submitted, Timer};
use crate::event::Event;
use crate::memory::Buffer;
use crate::pipeline::{Pipeline, Pipelines};
use crate::staging::Staging;
use crate::stream::Stream;
use mettle_gpu::{Finished, Gpu, GpuError};
use mettle_kernels::select::{DeviceProfile, Launch};
use std::sync::Arc;

/// Slots of 1 MiB. Uploads of a step are kilobytes, so several steps may be under way.
const UPLOAD_SLOTS: usize = 8;
const TRANSFER_SLOTS: usize = 4;
/// Memory left to the driver and to code that it compiles.
const MARGIN_BYTES: usize = 1 << 30;

/// The first NVIDIA GPU that the driver shows.
pub struct CudaGpu {
    /// Kernels, and uploads between them. Streams come first: dropping one waits for what uses the memory below.
    pub(crate) compute: Stream,
    /// Loading and reading back, which need not wait for kernels of other work.
    copies: Stream,
    pub(crate) uploads: Staging,
    transfers: Staging,
    pipelines: Pipelines,
    /// Events of work that was waited for, to be used again.
    timers: Vec<Timer>,
    pub(crate) facts: Facts,
    context: Arc<Context>,
}

impl CudaGpu {
    /// Loads the driver and takes its first device; `NotAvailable` says why there is none.
    pub fn open() -> Result<CudaGpu, GpuError> {
        let (context, facts) = Context::open()?;
        CudaGpu::on(Arc::new(context), facts).map_err(|error| match error {
            GpuError::Fault(why) => not_available(why),
            other => other,
        })
    }

    fn on(context: Arc<Context>, facts: Facts) -> Result<CudaGpu, GpuError> {
        Ok(CudaGpu {
            compute: Stream::new(&context)?,
            copies: Stream::new(&context)?,
            uploads: Staging::new(&context, UPLOAD_SLOTS)?,
            transfers: Staging::new(&context, TRANSFER_SLOTS)?,
            pipelines: Pipelines::default(),
            timers: Vec::new(),
            facts,
            context,
        })
    }
}

impl Gpu for CudaGpu {
    type Buffer = Buffer;
    type Pipeline = Pipeline;
    type Encoder<'a> = CudaEncoder<'a>;
    type Submitted = Submitted;

    fn name(&self) -> &'static str {
        "cuda"
    }

    fn describe(&self) -> String {
        format!(
            "{}, {:.1} GiB, {} multiprocessors, driver for CUDA {}",
            self.facts.name,
            self.facts.memory_bytes as f64 / (1u64 << 30) as f64,
            self.facts.multiprocessors,
            dotted(self.facts.driver_version)
        )
    }

    fn profile(&self) -> DeviceProfile {
        DeviceProfile::nvidia(self.facts.multiprocessors)
    }

    fn memory_budget(&self) -> usize {
        self.facts.memory_bytes.saturating_sub(MARGIN_BYTES)
    }

    fn allocate(&mut self, what: &'static str, bytes: usize) -> Result<Buffer, GpuError> {
        Buffer::new(&self.context, what, bytes)
    }

    fn write(&mut self, buffer: &Buffer, offset: usize, bytes: &[u8]) -> Result<(), GpuError> {
        self.context.enter()?;
        let to = buffer.part(offset, bytes.len());
        // SAFETY: `part` has checked that the bytes are inside; transfers go through the stream of copies alone.
        unsafe { self.transfers.send(&self.copies, to, bytes) }?;
        self.copies.synchronize()
    }

    fn pipeline(&mut self, launch: &Launch) -> Result<Pipeline, GpuError> {
        self.pipelines.get(&self.context, &self.facts, launch)
    }

    fn encoder(&mut self) -> Result<CudaEncoder<'_>, GpuError> {
        self.context.enter()?;
        let timer = match self.timers.pop() {
            Some(timer) => timer,
            None => Timer {
                start: Event::timed(&self.context)?,
                end: Event::timed(&self.context)?,
            },
        };
        CudaEncoder::new(self, timer)
    }

    fn wait(&mut self, submitted: Submitted) -> Result<Finished, GpuError> {
        self.context.enter()?;
        let timer = submitted.timer;
        timer.end.synchronize()?;
        let gpu_seconds = timer.end.seconds_since(&timer.start)?;
        self.timers.push(timer);
        Ok(Finished { gpu_seconds })
    }

    fn read(
        &mut self,
        _finished: &Finished,
        buffer: &Buffer,
        offset: usize,
        out: &mut [u8],
    ) -> Result<(), GpuError> {
        self.context.enter()?;
        let from = buffer.part(offset, out.len());
        // SAFETY: `part` has checked that the bytes are inside; transfers go through the stream of copies alone.
        unsafe { self.transfers.receive(&self.copies, from, out) }
    }
}
