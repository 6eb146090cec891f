//! Owns blocks of memory aligned to cache lines, and the raw views of them that threads share.

use mettle_plan::BackendError;
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::cell::UnsafeCell;

pub const ALIGNMENT: usize = 64;

/// From this size on, memory comes straight from the system: it is committed a page at a time when first touched (a KV
/// pool is mostly untouched), and goes back when dropped. An allocator in between may commit all of it.
#[cfg(unix)]
const MAPPED: usize = 256 << 10;

/// Zeroed bytes.
pub struct AlignedBytes {
    pointer: *mut u8,
    bytes: usize,
}

// SAFETY: it owns plain bytes; access follows the usual borrow rules of `&self` and `&mut self`.
unsafe impl Send for AlignedBytes {}
// SAFETY: as above; shared writes go through `base()` and are the caller's to order.
unsafe impl Sync for AlignedBytes {}

impl AlignedBytes {
    pub fn zeroed(what: &'static str, bytes: usize) -> Result<AlignedBytes, BackendError> {
        match allocate(bytes) {
            Some(pointer) => Ok(AlignedBytes { pointer, bytes }),
            None => Err(BackendError::OutOfMemory { what, bytes }),
        }
    }

    pub fn len(&self) -> usize {
        self.bytes
    }

    /// The first byte, for views that threads share. Who writes through it sees to it that nobody else touches the
    /// same bytes at that time.
    pub fn base(&self) -> *mut u8 {
        self.pointer
    }

    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: the block is `bytes` long, zeroed at first and so initialized.
        unsafe { std::slice::from_raw_parts(self.pointer, self.bytes) }
    }

    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `&mut self` is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.pointer, self.bytes) }
    }
}

fn allocate(bytes: usize) -> Option<*mut u8> {
    #[cfg(unix)]
    if bytes >= MAPPED {
        // SAFETY: a new private mapping of no file touches nothing that exists.
        let pointer = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANON,
                -1,
                0,
            )
        };
        return (pointer != libc::MAP_FAILED).then_some(pointer.cast());
    }
    let layout = Layout::from_size_align(bytes.max(1), ALIGNMENT).ok()?;
    // SAFETY: the layout is not empty.
    let pointer = unsafe { alloc_zeroed(layout) };
    (!pointer.is_null()).then_some(pointer)
}

impl Drop for AlignedBytes {
    fn drop(&mut self) {
        #[cfg(unix)]
        if self.bytes >= MAPPED {
            // SAFETY: mapped in `allocate` with this length, and nobody can name it any more.
            unsafe { libc::munmap(self.pointer.cast(), self.bytes) };
            return;
        }
        let layout = Layout::from_size_align(self.bytes.max(1), ALIGNMENT)
            .expect("the layout was valid when the block was made");
        // SAFETY: allocated in `allocate` with this layout.
        unsafe { dealloc(self.pointer, layout) }
    }
}

/// Rows of `f32` inside scratch memory: what a plan's slice is at run time.
#[derive(Clone, Copy, Debug)]
pub struct Rows {
    pointer: *mut f32,
    /// Elements from one row to the next.
    stride: usize,
    pub width: usize,
}

// SAFETY: `Rows` is an address and two numbers. Dereferencing is unsafe and ordered by the plan's hazards.
unsafe impl Send for Rows {}
// SAFETY: as above.
unsafe impl Sync for Rows {}

impl Rows {
    /// # Safety
    /// `pointer` starts rows that lie `stride` apart and stay allocated as long as the result is used.
    pub unsafe fn new(pointer: *mut f32, stride: usize, width: usize) -> Rows {
        Rows {
            pointer,
            stride,
            width,
        }
    }

    /// # Safety
    /// The row is inside its buffer and no thread writes it meanwhile.
    pub unsafe fn row<'a>(&self, row: usize) -> &'a [f32] {
        // SAFETY: the caller's promise.
        unsafe { std::slice::from_raw_parts(self.pointer.add(row * self.stride), self.width) }
    }

    /// # Safety
    /// The row is inside its buffer and no other thread touches it meanwhile.
    pub unsafe fn row_mut<'a>(&self, row: usize) -> &'a mut [f32] {
        // SAFETY: the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.pointer.add(row * self.stride), self.width) }
    }

    /// The same rows, columns `start..start + width` of this view.
    #[inline(always)]
    pub fn columns(&self, start: usize, width: usize) -> Rows {
        assert!(start + width <= self.width);
        Rows {
            // SAFETY: stays inside the first row.
            pointer: unsafe { self.pointer.add(start) },
            stride: self.stride,
            width,
        }
    }
}

/// Something that one thread at a time works in, without a lock.
pub struct PerThread<T>(UnsafeCell<T>);

// SAFETY: `get` is unsafe, and its caller promises that only one thread uses the value.
unsafe impl<T: Send> Sync for PerThread<T> {}

impl<T> PerThread<T> {
    pub fn new(value: T) -> PerThread<T> {
        PerThread(UnsafeCell::new(value))
    }

    /// # Safety
    /// Nobody else uses the value while the result lives.
    #[allow(clippy::mut_from_ref)]
    pub unsafe fn get(&self) -> &mut T {
        // SAFETY: the caller's promise.
        unsafe { &mut *self.0.get() }
    }
}
