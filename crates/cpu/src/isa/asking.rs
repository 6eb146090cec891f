//! Owns the question whether memory is asked for far ahead of its use: by it kernels choose where one row's weights and attention's
//! blocks come from.

/// Bytes of a first-level cache that has room for what is asked for beside what is used. Of Zen 5 and of Intel's since Ice Lake.
#[cfg(target_arch = "x86_64")]
const LARGE: usize = 48 << 10;

/// Whether asking thousands of bytes ahead, into the first-level cache, beats the processor's own reading ahead. Where that cache is
/// large (two cores of a Zen 5 that are far apart, best of 2 or 3 in turn: 0.5B decodes 195 instead of 149 tok/s in Q4_K_M, 73 instead
/// of 54 in F16; SmolLM2 600 instead of 520), and on Intel's processors with a small one too (two of a Cascade Lake, medians of 4 or 5
/// in turn: Q4_K_M 48 instead of 40 and 63 instead of 51, Q8_0 38 instead of 33, F16 22.2 instead of 19.6, SmolLM2 185 instead of
/// 160). Not on a Zen 4, which is disturbed by it. The processor is asked, which takes long under a hypervisor: once, not in a step.
pub fn asks_far() -> bool {
    #[cfg(target_arch = "x86_64")]
    return bytes() >= LARGE || super::is_of(b"GenuineIntel");
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// Of the first-level data cache; none if the processor does not say.
#[cfg(target_arch = "x86_64")]
fn bytes() -> usize {
    use std::arch::x86_64::{__cpuid, __cpuid_count};
    const INTEL: u32 = 4;
    const AMD: u32 = 0x8000_001d;
    for leaf in [INTEL, AMD] {
        // The highest of its kind.
        if __cpuid(leaf & 0x8000_0000).eax < leaf {
            continue;
        }
        // All data caches are listed, the first level first; behind the last one there are no more.
        for number in 0..8 {
            let about = __cpuid_count(leaf, number);
            let (kind, level) = (about.eax & 31, about.eax >> 5 & 7);
            if kind == 0 {
                break;
            }
            const INSTRUCTIONS: u32 = 2;
            if level == 1 && kind != INSTRUCTIONS {
                let part =
                    |shift: u32, bits: u32| ((about.ebx >> shift & ((1 << bits) - 1)) + 1) as usize;
                return part(22, 10) * part(12, 10) * part(0, 12) * (about.ecx as usize + 1);
            }
        }
    }
    0
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    /// Linux has it in a file; other systems have none such.
    #[test]
    fn the_system_says_the_same() {
        let file = |name: &str| {
            let path = format!("/sys/devices/system/cpu/cpu0/cache/index0/{name}");
            std::fs::read_to_string(path).ok()
        };
        let (Some(kind), Some(size)) = (file("type"), file("size")) else {
            return;
        };
        assert_eq!(kind.trim(), "Data");
        let kilobytes: usize = size.trim().trim_end_matches('K').parse().unwrap();
        assert_eq!(bytes(), kilobytes << 10);
    }
}
