//! Owns marks in a stream that can be waited for, and the time between two of them.

use crate::context::Context;
use crate::driver::check;
use crate::stream::Stream;
use cudarc::driver::sys::{self, CUevent, CUevent_flags};
use mettle_gpu::GpuError;
use std::sync::Arc;

pub struct Event {
    context: Arc<Context>,
    handle: CUevent,
}

// SAFETY: a handle of the driver, which any thread may use.
unsafe impl Send for Event {}

impl Event {
    /// One that `seconds_since` may be asked of.
    pub fn timed(context: &Arc<Context>) -> Result<Event, GpuError> {
        Event::new(context, CUevent_flags::CU_EVENT_DEFAULT)
    }

    /// One that is only waited for, which is cheaper to record.
    pub fn untimed(context: &Arc<Context>) -> Result<Event, GpuError> {
        Event::new(context, CUevent_flags::CU_EVENT_DISABLE_TIMING)
    }

    fn new(context: &Arc<Context>, flags: CUevent_flags) -> Result<Event, GpuError> {
        context.enter()?;
        let mut handle: CUevent = std::ptr::null_mut();
        // SAFETY: the context is current; the event is destroyed in `drop`.
        let code = unsafe { sys::cuEventCreate(&mut handle, flags as u32) };
        check(code, "making an event")?;
        Ok(Event {
            context: Arc::clone(context),
            handle,
        })
    }

    /// Moves the mark behind all that is in the stream now.
    pub fn record(&self, stream: &Stream) -> Result<(), GpuError> {
        // SAFETY: event and stream are alive and of the same context.
        let code = unsafe { sys::cuEventRecord(self.handle, stream.handle()) };
        check(code, "recording an event")
    }

    /// Blocks until the device has reached the mark; not at all for an event never recorded. Reports what went wrong
    /// on the device.
    pub fn synchronize(&self) -> Result<(), GpuError> {
        // SAFETY: the event is alive.
        let code = unsafe { sys::cuEventSynchronize(self.handle) };
        check(code, "waiting for the device")
    }

    /// Both events must be timed and reached.
    pub fn seconds_since(&self, start: &Event) -> Result<f64, GpuError> {
        let mut milliseconds = 0.0;
        // SAFETY: both events are alive; the driver writes one float.
        let code = unsafe { sys::cuEventElapsedTime(&mut milliseconds, start.handle, self.handle) };
        check(code, "asking for the time between two events")?;
        Ok(f64::from(milliseconds) / 1e3)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // After a fault every call fails, and there is nothing left to free.
        if self.context.enter().is_ok() {
            // SAFETY: made in `new`, destroyed once; the driver keeps what an event under way needs.
            let _ = unsafe { sys::cuEventDestroy_v2(self.handle) };
        }
    }
}
