//! Owns blocks of memory aligned to cache lines, and the raw views of them that threads share.

#[cfg(unix)]
use crate::system::advise_large_pages;
use mettle_plan::BackendError;
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

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

    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: the block is `bytes` long, zeroed at first and so initialized, and `&mut self` is exclusive.
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
        if pointer == libc::MAP_FAILED {
            return None;
        }
        // Keys and values of a step lie in thousands of small pages, more than the processor remembers the places of.
        // SAFETY: the mapping was made above with this length.
        unsafe { advise_large_pages(pointer.cast(), bytes) };
        return Some(pointer.cast());
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

/// Singles from a cache line's start on, so that no register that is loaded from a multiple of its width lies in two lines.
pub struct AlignedSingles {
    lines: Vec<Line>,
    count: usize,
}

#[derive(Clone)]
#[repr(C, align(64))]
struct Line([f32; ALIGNMENT / 4]);

impl AlignedSingles {
    pub fn zeroed(count: usize) -> AlignedSingles {
        let none = Line([0.0; ALIGNMENT / 4]);
        AlignedSingles {
            lines: vec![none; count.div_ceil(ALIGNMENT / 4)],
            count,
        }
    }
}

impl Deref for AlignedSingles {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        // SAFETY: lines are singles and nothing else, and these are not more than the lines have.
        unsafe { std::slice::from_raw_parts(self.lines.as_ptr().cast(), self.count) }
    }
}

impl DerefMut for AlignedSingles {
    fn deref_mut(&mut self) -> &mut [f32] {
        // SAFETY: as above, and `&mut self` is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.lines.as_mut_ptr().cast(), self.count) }
    }
}

/// Room that is handed out piece by piece, so that small pieces lie in large pages too.
#[derive(Default)]
pub struct Shelf {
    board: Option<Arc<AlignedBytes>>,
    used: usize,
}

/// One piece of a shelf's room, which nobody else has.
pub struct Piece {
    board: Arc<AlignedBytes>,
    start: usize,
    bytes: usize,
}

impl Shelf {
    /// What the system is asked for at a time; what is not used of it is never committed.
    const BOARD: usize = 64 << 20;

    pub fn take(&mut self, what: &'static str, bytes: usize) -> Result<Piece, BackendError> {
        let board = match &self.board {
            Some(board) if board.len() - self.used >= bytes => board.clone(),
            _ => {
                let board = Arc::new(AlignedBytes::zeroed(what, bytes.max(Shelf::BOARD))?);
                self.used = 0;
                self.board.insert(board).clone()
            }
        };
        let start = self.used;
        self.used = (start + bytes).next_multiple_of(ALIGNMENT).min(board.len());
        Ok(Piece {
            board,
            start,
            bytes,
        })
    }
}

impl Piece {
    pub fn len(&self) -> usize {
        self.bytes
    }

    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: inside the board, zeroed at first, and written only by this piece's owner.
        unsafe { std::slice::from_raw_parts(self.board.base().add(self.start), self.bytes) }
    }

    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: inside the board, and no other piece has these bytes.
        unsafe { std::slice::from_raw_parts_mut(self.board.base().add(self.start), self.bytes) }
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

    /// Where a value lies: an address only.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    pub fn address(&self, row: usize, column: usize) -> *const f32 {
        self.pointer.wrapping_add(row * self.stride + column)
    }

    /// The rows from `first` on.
    pub fn rows_behind(&self, first: usize) -> Rows {
        Rows {
            // An address only: whoever uses a row promises that it exists.
            pointer: self.pointer.wrapping_add(first * self.stride),
            ..*self
        }
    }

    /// Whether these are the same columns of the same buffer.
    pub fn same(&self, other: &Rows) -> bool {
        self.pointer == other.pointer && self.width == other.width
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

    /// # Safety
    /// Nobody writes the value while the result lives.
    pub unsafe fn read(&self) -> &T
    where
        T: Sync,
    {
        // SAFETY: the caller's promise.
        unsafe { &*self.0.get() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_of_a_shelf_are_aligned_and_apart() {
        let mut shelf = Shelf::default();
        let sizes = [
            1,
            64,
            65,
            0,
            4096,
            Shelf::BOARD - 8192,
            5000,
            Shelf::BOARD + 1,
            3,
        ];
        let mut pieces: Vec<Piece> = sizes
            .iter()
            .map(|bytes| shelf.take("test", *bytes).unwrap())
            .collect();
        for (number, piece) in pieces.iter_mut().enumerate() {
            assert!(piece.as_slice().as_ptr().addr().is_multiple_of(ALIGNMENT));
            assert!(piece.as_slice().iter().all(|byte| *byte == 0));
            piece.as_mut_slice().fill(number as u8 + 1);
        }
        for (number, (piece, bytes)) in pieces.iter().zip(sizes).enumerate() {
            assert_eq!(piece.len(), bytes);
            assert!(
                piece
                    .as_slice()
                    .iter()
                    .all(|byte| *byte == number as u8 + 1)
            );
        }
    }
}
