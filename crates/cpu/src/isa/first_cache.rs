//! Owns the size of the first-level cache: by it kernels choose to which cache the memory that they ask for comes.

/// Of Zen 5 and of Intel's since Ice Lake. Processors before have 32 KB.
#[cfg(target_arch = "x86_64")]
const LARGE: usize = 48 << 10;

/// Whether what is asked for thousands of bytes ahead has room in the first-level cache beside what is used: then it is best brought
/// there (two cores of a Zen 5 that are far apart, best of 2 or 3 in turn: 0.5B decodes 195 instead of 149 tok/s in Q4_K_M, 73 instead
/// of 54 in F16; SmolLM2 600 instead of 520). The processor is asked, which takes long under a hypervisor: once, not in a step.
pub fn has_large_first_cache() -> bool {
    #[cfg(target_arch = "x86_64")]
    return bytes() >= LARGE;
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
