//! Owns the question whether this process may use AMX. Its tiles are 8 KB of state that Linux saves only for processes that
//! asked for them: without that their first use is an illegal instruction.

use crate::system::allow_state;
use std::arch::x86_64::{__cpuid, __cpuid_count, _xgetbv};
use std::sync::LazyLock;

/// What the tiles take, if a process may have them: eight of 16 rows of 64 bytes. Kernels load no other palette.
const TILE_BYTES: u32 = 8 * 16 * 64;

/// The number of the tiles' state among those that a processor can save.
const TILE_DATA: u32 = 18;

/// Whether the processor has tiles of bf16 and the system lets this process use them. Asks once.
pub fn is_allowed() -> bool {
    static IS_ALLOWED: LazyLock<bool> = LazyLock::new(|| has_tiles() && allow_state(TILE_DATA));
    *IS_ALLOWED
}

fn has_tiles() -> bool {
    const BF16_AND_TILES: u32 = 1 << 22 | 1 << 24;
    const SAVES_TILES: u64 = 0b11 << 17;
    const HAS_XGETBV: u32 = 1 << 27;
    if __cpuid(0).eax < 0xd || __cpuid(1).ecx & HAS_XGETBV == 0 {
        return false;
    }
    // Virtual machines may hide the leaf that describes the palettes (0x1d), and have the instructions all the same: the
    // size of the state says as much.
    __cpuid_count(7, 0).edx & BF16_AND_TILES == BF16_AND_TILES
        && __cpuid_count(0xd, TILE_DATA).eax == TILE_BYTES
        // SAFETY: the processor was just asked for the instruction.
        && unsafe { enabled_states() } & SAVES_TILES == SAVES_TILES
}

/// # Safety
/// The system has enabled XGETBV.
#[target_feature(enable = "xsave")]
unsafe fn enabled_states() -> u64 {
    // SAFETY: the caller's promise.
    unsafe { _xgetbv(0) }
}
