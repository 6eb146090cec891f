//! Owns device memory: buffers that host and GPU share, and the set that keeps them resident.

use objc2::rc::Retained;
use objc2::runtime::{NSObjectProtocol, ProtocolObject};
use objc2::sel;
use objc2_foundation::NSString;
use objc2_metal::{
    MTLBuffer, MTLCommandQueue, MTLDevice, MTLResidencySet, MTLResidencySetDescriptor, MTLResource,
    MTLResourceOptions,
};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// An object of Metal, of which only the protocol is known.
pub type Object<P> = Retained<ProtocolObject<P>>;

/// Memory that both sides see. Metal tracks no hazards on it: barriers and fences order all uses.
pub struct MetalBuffer {
    memory: Object<dyn MTLBuffer>,
    residency: Arc<Residency>,
}

// SAFETY: Metal's buffers may be used and released on any thread; `trait Gpu` orders the accesses to their contents.
unsafe impl Send for MetalBuffer {}

impl MetalBuffer {
    /// Null from Metal, or a length that it would refuse, is `None`.
    pub fn new(
        device: &ProtocolObject<dyn MTLDevice>,
        residency: &Arc<Residency>,
        label: &str,
        bytes: usize,
    ) -> Option<MetalBuffer> {
        // Metal has no empty buffers.
        let bytes = bytes.max(1);
        if bytes > device.maxBufferLength() {
            return None;
        }
        let options =
            MTLResourceOptions::StorageModeShared | MTLResourceOptions::HazardTrackingModeUntracked;
        let memory = device.newBufferWithLength_options(bytes, options)?;
        memory.setLabel(Some(&NSString::from_str(label)));
        residency.add(&memory);
        Some(MetalBuffer {
            memory,
            residency: Arc::clone(residency),
        })
    }

    pub fn memory(&self) -> &ProtocolObject<dyn MTLBuffer> {
        &self.memory
    }

    /// Fails where the range is not inside: the caller's bug, and the only thing between it and foreign memory.
    pub fn check_range(&self, offset: usize, bytes: usize) {
        let length = self.memory.length();
        let is_inside = offset.checked_add(bytes).is_some_and(|end| end <= length);
        assert!(
            is_inside,
            "bytes {offset}..{offset}+{bytes} of a buffer of {length}"
        );
    }

    pub fn write(&self, offset: usize, bytes: &[u8]) {
        self.check_range(offset, bytes.len());
        // SAFETY: the range lies inside the buffer, whose memory is shared and stays mapped while it lives. By the contract
        // of `trait Gpu` nothing on the device uses it now.
        unsafe {
            let to = self.memory.contents().cast::<u8>().add(offset);
            to.copy_from_nonoverlapping(std::ptr::NonNull::from_ref(bytes).cast(), bytes.len());
        }
    }

    pub fn read(&self, offset: usize, out: &mut [u8]) {
        self.check_range(offset, out.len());
        // SAFETY: as in `write`; `Finished` is the caller's proof that the device is done with it.
        unsafe {
            let from = self.memory.contents().cast::<u8>().add(offset);
            from.copy_to_nonoverlapping(std::ptr::NonNull::from_mut(out).cast(), out.len());
        }
    }
}

impl Drop for MetalBuffer {
    fn drop(&mut self) {
        self.residency.retire(&self.memory);
    }
}

/// The one residency set: all buffers, made resident when they are allocated and not step by step, and kept so while the
/// GPU is idle. macOS 14 has no such sets, and none is needed for correctness: every buffer that a kernel reads is bound by
/// `setBuffer` (none is reached through a pointer in another), and Metal makes those resident by itself.
pub struct Residency {
    members: Mutex<Members>,
}

struct Members {
    set: Option<Object<dyn MTLResidencySet>>,
    is_changed: bool,
    /// Dropped, but still in the set: a set keeps its members resident, not alive.
    retired: Vec<Object<dyn MTLBuffer>>,
}

// SAFETY: the set and the buffers may be used on any thread; the mutex makes it one at a time.
unsafe impl Send for Members {}

impl Residency {
    pub fn new(
        device: &ProtocolObject<dyn MTLDevice>,
        queue: &ProtocolObject<dyn MTLCommandQueue>,
    ) -> Arc<Residency> {
        let has_sets = device.respondsToSelector(sel!(newResidencySetWithDescriptor:error:));
        let new_set = || {
            let descriptor = MTLResidencySetDescriptor::new();
            device.newResidencySetWithDescriptor_error(&descriptor).ok()
        };
        let set = has_sets.then(new_set).flatten();
        if let Some(set) = &set {
            queue.addResidencySet(set);
            // From now on a commit makes what was added resident at once.
            set.requestResidency();
        }
        let members = Members {
            set,
            is_changed: false,
            retired: Vec::new(),
        };
        Arc::new(Residency {
            members: Mutex::new(members),
        })
    }

    fn members(&self) -> MutexGuard<'_, Members> {
        // Nothing in here panics half-way.
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, buffer: &Object<dyn MTLBuffer>) {
        let mut members = self.members();
        if let Some(set) = &members.set {
            set.addAllocation(ProtocolObject::from_ref(&**buffer));
            members.is_changed = true;
        }
    }

    fn retire(&self, buffer: &Object<dyn MTLBuffer>) {
        let mut members = self.members();
        if members.set.is_some() {
            members.retired.push(buffer.clone());
            members.is_changed = true;
        }
    }

    /// Whether dropped buffers still hold memory.
    pub fn has_retired(&self) -> bool {
        !self.members().retired.is_empty()
    }

    /// Puts what was added and retired into effect, and frees the retired. Only while no work is under way: changing a set
    /// below running work is a known way to bring macOS down.
    pub fn apply(&self) {
        let mut members = self.members();
        let Members {
            set,
            is_changed,
            retired,
        } = &mut *members;
        if let Some(set) = set
            && *is_changed
        {
            for buffer in &*retired {
                set.removeAllocation(ProtocolObject::from_ref(&**buffer));
            }
            set.commit();
            retired.clear();
            *is_changed = false;
        }
    }
}

impl Drop for Members {
    fn drop(&mut self) {
        if let Some(set) = &self.set {
            set.endResidency();
            set.removeAllAllocations();
            set.commit();
        }
    }
}
