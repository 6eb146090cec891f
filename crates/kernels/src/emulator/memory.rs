//! Owns memory of the emulated GPU: its end lies against a page that may not be touched, so that an overrun faults.

use std::cell::Cell;
use std::ptr::NonNull;

/// Device memory. Reads and writes copy, since kernels change it behind any reference.
#[derive(Debug)]
pub struct Buffer {
    map: NonNull<u8>,
    map_bytes: usize,
    start: NonNull<u8>,
    bytes: usize,
    /// Two host threads must not dispatch on the same buffer at once.
    _not_sync: Cell<()>,
}

// SAFETY: the mapping belongs to the buffer alone.
unsafe impl Send for Buffer {}

impl Buffer {
    /// Filled with ones: NaN in every float type.
    pub fn new(bytes: usize) -> Buffer {
        // SAFETY: asks for a number.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
        let body = bytes.max(1).next_multiple_of(page);
        let map_bytes = body + 2 * page;
        // SAFETY: a new private mapping, of which only the pages between the two guards become accessible.
        let map = unsafe {
            let map = libc::mmap(
                std::ptr::null_mut(),
                map_bytes,
                libc::PROT_NONE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            );
            assert!(map != libc::MAP_FAILED, "no room to map {map_bytes} bytes");
            let access = libc::PROT_READ | libc::PROT_WRITE;
            let opened = libc::mprotect(map.byte_add(page), body, access);
            assert_eq!(opened, 0, "mprotect of {body} bytes");
            NonNull::new(map.cast::<u8>()).expect("a mapping is not at 0")
        };
        // Vector loads need 16 bytes of alignment, so up to 15 bytes behind the end are not guarded.
        let offset = page + body - bytes.next_multiple_of(16);
        // SAFETY: inside the mapping.
        let start = unsafe { map.add(offset) };
        let buffer = Buffer {
            map,
            map_bytes,
            start,
            bytes,
            _not_sync: Cell::new(()),
        };
        // SAFETY: from start to the end of the accessible pages.
        unsafe { start.write_bytes(0xff, bytes.next_multiple_of(16)) };
        buffer
    }

    pub fn from_bytes(bytes: &[u8]) -> Buffer {
        let buffer = Buffer::new(bytes.len());
        buffer.write(0, bytes);
        buffer
    }

    pub fn len(&self) -> usize {
        self.bytes
    }

    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    pub fn write(&self, offset: usize, bytes: &[u8]) {
        assert!(offset + bytes.len() <= self.bytes, "write past the end");
        // SAFETY: inside the buffer, and no dispatch runs while the host holds it: it is not Sync.
        unsafe {
            std::ptr::copy_nonoverlapping(
                bytes.as_ptr(),
                self.start.as_ptr().add(offset),
                bytes.len(),
            )
        }
    }

    pub fn read(&self, offset: usize, bytes: &mut [u8]) {
        assert!(offset + bytes.len() <= self.bytes, "read past the end");
        // SAFETY: as in write.
        unsafe {
            std::ptr::copy_nonoverlapping(
                self.start.as_ptr().add(offset),
                bytes.as_mut_ptr(),
                bytes.len(),
            )
        }
    }

    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.bytes];
        self.read(0, &mut bytes);
        bytes
    }

    pub(super) fn address(&self) -> usize {
        self.start.as_ptr() as usize
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `new`, unmapped once.
        unsafe { libc::munmap(self.map.as_ptr().cast(), self.map_bytes) };
    }
}
