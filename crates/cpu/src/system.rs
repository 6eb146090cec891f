//! Owns what only some operating systems have: large pages, and state of the processor that a process must ask for.

/// Of x86-64 and most 64-bit ARM.
#[cfg(target_os = "linux")]
const LARGE_PAGE: usize = 2 << 20;

/// Asks for a mapping to lie in large pages. Only advice: without it everything is as right.
///
/// # Safety
/// The mapping is there, of this length.
#[cfg(unix)]
pub unsafe fn advise_large_pages(mapping: *mut u8, bytes: usize) {
    #[cfg(target_os = "linux")]
    if bytes >= LARGE_PAGE {
        // SAFETY: the caller's promise.
        let _ = unsafe { libc::madvise(mapping.cast(), bytes, libc::MADV_HUGEPAGE) };
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (mapping, bytes);
}

/// Asks for a state of the processor to be saved for this process, by its number, so that it may be used.
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
pub fn allow_state(number: u32) -> bool {
    const ARCH_REQ_XCOMP_PERM: libc::c_ulong = 0x1023;
    let number = libc::c_ulong::from(number);
    // SAFETY: it changes nothing but what this process may use; kernels that do not know it say so.
    unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, number) == 0 }
}

/// No other system is known to let a process ask, or to need it.
#[cfg(all(target_arch = "x86_64", not(target_os = "linux")))]
pub fn allow_state(_number: u32) -> bool {
    false
}
