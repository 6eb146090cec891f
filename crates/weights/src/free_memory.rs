//! Owns the question how much memory could be had without pushing other programs out.

/// Bytes; `None` where the system does not say (only Linux does).
pub fn free_memory() -> Option<u64> {
    let meminfo = std::fs::read_to_string("/proc/meminfo").ok()?;
    available(&meminfo)
}

fn available(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find(|l| l.starts_with("MemAvailable:"))?;
    let kilobytes: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    kilobytes.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_memory_is_read_from_the_system() {
        let text = "MemTotal:       24576000 kB\nMemAvailable:   1000 kB\n";
        assert_eq!(available(text), Some(1_024_000));
        assert_eq!(available("MemTotal: 1 kB"), None);
        assert_eq!(available("MemAvailable: 18446744073709551615 kB"), None);
        if cfg!(target_os = "linux") {
            assert!(free_memory().is_some_and(|bytes| bytes > 0));
        }
    }
}
