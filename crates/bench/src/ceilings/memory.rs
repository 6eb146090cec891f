//! Owns memory to be read: in huge pages where the system gives them, so that no time goes into finding pages.

/// `words` times this value.
pub fn filled(words: usize, value: u64) -> Vec<u64> {
    let mut memory = Vec::with_capacity(words);
    ask_for_huge_pages(&mut memory);
    memory.resize(words, value);
    memory
}

#[cfg(target_os = "linux")]
fn ask_for_huge_pages(memory: &mut Vec<u64>) {
    const PAGE: usize = 4096;
    let start = (memory.as_mut_ptr() as usize).next_multiple_of(PAGE);
    let end = memory.as_mut_ptr() as usize + memory.capacity() * size_of::<u64>();
    if start < end {
        // SAFETY: the range lies inside the vector's own memory, and the advice changes nothing that is stored there. A
        // refusal leaves pages as they are.
        unsafe { libc::madvise(start as *mut _, end - start, libc::MADV_HUGEPAGE) };
    }
}

#[cfg(not(target_os = "linux"))]
fn ask_for_huge_pages(_memory: &mut Vec<u64>) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_filled_whatever_its_size() {
        for words in [0, 1, 511, 512, 1 << 20] {
            let memory = filled(words, 7);
            assert_eq!(memory.len(), words);
            assert!(memory.iter().all(|word| *word == 7));
        }
    }
}
