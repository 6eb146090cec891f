//! Owns pinned memory through which bytes go to and from the device: slots used in turn, each free again when the device
//! has passed the event behind its last copy. So the host fills one slot while the device copies another.

use crate::context::Context;
use crate::event::Event;
use crate::memory::Pinned;
use crate::stream::Stream;
use cudarc::driver::sys::CUdeviceptr;
use mettle_gpu::GpuError;
use std::sync::Arc;

pub const SLOT_BYTES: usize = 1 << 20;
/// Where the next upload into a slot may start.
const ALIGNMENT: usize = 256;

pub struct Staging {
    slots: Vec<Slot>,
    /// The slot being filled, and how much of it is.
    current: usize,
    used: usize,
}

struct Slot {
    memory: Pinned,
    copied: Event,
}

impl Staging {
    pub fn new(context: &Arc<Context>, slots: usize) -> Result<Staging, GpuError> {
        let slot = |_| {
            Ok(Slot {
                memory: Pinned::new(context, SLOT_BYTES)?,
                copied: Event::untimed(context)?,
            })
        };
        Ok(Staging {
            slots: (0..slots).map(slot).collect::<Result<_, GpuError>>()?,
            current: 0,
            used: 0,
        })
    }

    /// Queues the copying of `bytes` to the device; they may change when this returns. Blocks only where all slots
    /// wait for the device.
    ///
    /// # Safety
    /// As many bytes are allocated at `to`. All uses of this value are with the same stream.
    pub unsafe fn send(
        &mut self,
        stream: &Stream,
        to: CUdeviceptr,
        bytes: &[u8],
    ) -> Result<(), GpuError> {
        let mut sent = 0;
        while sent < bytes.len() {
            if self.used == SLOT_BYTES {
                let next = (self.current + 1) % self.slots.len();
                self.slots[next].copied.synchronize()?;
                (self.current, self.used) = (next, 0);
            }
            let slot = &self.slots[self.current];
            let part = &bytes[sent..][..(bytes.len() - sent).min(SLOT_BYTES - self.used)];
            // SAFETY: the part fits behind what is used, where no copy under way reads.
            let from = unsafe { slot.memory.start().add(self.used) };
            // SAFETY: as above, and `bytes` is not in memory of ours.
            unsafe { from.copy_from_nonoverlapping(part.as_ptr(), part.len()) };
            // SAFETY: the caller's promise for `to`; `from` is pinned and used again only after the event.
            unsafe { stream.copy_in(to + sent as CUdeviceptr, from, part.len()) }?;
            slot.copied.record(stream)?;
            sent += part.len();
            self.used = (self.used + part.len()).next_multiple_of(ALIGNMENT);
        }
        Ok(())
    }

    /// Copies from the device to `out`; done when it returns.
    ///
    /// # Safety
    /// As many bytes are allocated at `from`. All uses of this value are with the same stream.
    pub unsafe fn receive(
        &mut self,
        stream: &Stream,
        from: CUdeviceptr,
        out: &mut [u8],
    ) -> Result<(), GpuError> {
        let count = out.len().div_ceil(SLOT_BYTES);
        // So many copies are queued before the first is taken out of its slot.
        let ahead = self.slots.len() - 1;
        for step in 0..count + ahead {
            if step < count {
                let start = step * SLOT_BYTES;
                let bytes = SLOT_BYTES.min(out.len() - start);
                let slot = &self.slots[step % self.slots.len()];
                slot.copied.synchronize()?;
                // SAFETY: the caller's promise for `from`; no copy uses the slot, and it is read after the event.
                unsafe {
                    stream.copy_out(slot.memory.start(), from + start as CUdeviceptr, bytes)
                }?;
                slot.copied.record(stream)?;
            }
            if let Some(done) = step.checked_sub(ahead) {
                let slot = &self.slots[done % self.slots.len()];
                slot.copied.synchronize()?;
                let start = done * SLOT_BYTES;
                let part = &mut out[start..];
                let bytes = SLOT_BYTES.min(part.len());
                // SAFETY: the copy into the slot is done, and `out` is not in memory of ours.
                unsafe {
                    part.as_mut_ptr()
                        .copy_from_nonoverlapping(slot.memory.start(), bytes);
                }
            }
        }
        Ok(())
    }
}
