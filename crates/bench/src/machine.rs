//! Owns what is known of the machine without measuring: processor, cores, instruction sets, memory. Reads
//! Linux's files and, where there are none, asks `sysctl` as macOS has it.

use serde::Serialize;
use std::collections::BTreeSet;
use std::process::Command;

/// Of the many names that systems give, those that kernels care about.
const FEATURES: [&str; 20] = [
    "sse4_1",
    "avx",
    "avx2",
    "fma",
    "f16c",
    "avx_vnni",
    "avx512f",
    "avx512bw",
    "avx512vl",
    "avx512_vnni",
    "avx512_bf16",
    "amx_tile",
    "amx_int8",
    "amx_bf16",
    "asimd",
    "asimdhp",
    "asimddp",
    "i8mm",
    "bf16",
    "sve",
];

/// The same under Apple's names.
const APPLE_FEATURES: [(&str, &str); 4] = [
    ("hw.optional.arm.FEAT_FP16", "asimdhp"),
    ("hw.optional.arm.FEAT_DotProd", "asimddp"),
    ("hw.optional.arm.FEAT_I8MM", "i8mm"),
    ("hw.optional.arm.FEAT_BF16", "bf16"),
];

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Machine {
    pub processor: String,
    pub logical_cores: usize,
    /// Where the system tells.
    pub physical_cores: Option<usize>,
    /// Where some are slower than others: how many are not.
    pub fast_cores: Option<usize>,
    pub features: Vec<String>,
    pub memory_bytes: Option<u64>,
    pub free_memory_bytes: Option<u64>,
    /// How the system sets the clock, where it tells.
    pub governor: Option<String>,
}

impl Machine {
    pub fn look() -> Machine {
        let logical_cores = std::thread::available_parallelism().map_or(1, usize::from);
        let read = |path: &str| std::fs::read_to_string(path).ok();
        match (read("/proc/cpuinfo"), read("/proc/meminfo")) {
            (Some(cpu), Some(memory)) => Machine {
                logical_cores,
                governor: read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
                    .map(|text| text.trim().to_owned()),
                ..from_linux(&cpu, &memory)
            },
            _ => Machine {
                logical_cores,
                ..from_sysctl(sysctl)
            },
        }
    }

    /// One for each fast core that this process may use: two threads on one core share its arithmetic, and slow cores
    /// would be waited for.
    pub fn worthwhile_threads(&self) -> usize {
        let cores = self.fast_cores.or(self.physical_cores);
        cores.map_or(self.logical_cores, |cores| {
            cores.clamp(1, self.logical_cores)
        })
    }
}

fn from_linux(cpu: &str, memory: &str) -> Machine {
    let field = |name: &str| {
        let lines = cpu.lines().filter_map(|line| line.split_once(':'));
        let mut values = lines.filter(|(n, _)| n.trim() == name);
        values.next().map(|(_, value)| value.trim().to_owned())
    };
    let flags = field("flags")
        .or_else(|| field("Features"))
        .unwrap_or_default();
    let flags: BTreeSet<&str> = flags.split_whitespace().collect();
    let kilobytes = |name: &str| {
        let line = memory.lines().find_map(|line| line.strip_prefix(name))?;
        let number = line.trim_start_matches(':').trim().trim_end_matches("kB");
        number.trim().parse::<u64>().ok().map(|kb| kb * 1024)
    };
    Machine {
        processor: field("model name").unwrap_or_else(|| std::env::consts::ARCH.to_owned()),
        physical_cores: physical_cores(cpu),
        features: FEATURES
            .into_iter()
            .filter(|name| flags.contains(name))
            .map(str::to_owned)
            .collect(),
        memory_bytes: kilobytes("MemTotal"),
        free_memory_bytes: kilobytes("MemAvailable"),
        ..Machine::default()
    }
}

/// Different pairs of socket and core.
fn physical_cores(cpu: &str) -> Option<usize> {
    let mut cores = BTreeSet::new();
    for processor in cpu.split("\n\n") {
        let number = |name: &str| {
            let lines = processor.lines().filter_map(|line| line.split_once(':'));
            let mut values = lines.filter(|(n, _)| n.trim() == name);
            values.next()?.1.trim().parse::<u32>().ok()
        };
        cores.extend(number("physical id").zip(number("core id")));
    }
    (!cores.is_empty()).then_some(cores.len())
}

fn from_sysctl(ask: impl Fn(&str) -> Option<String>) -> Machine {
    let number = |name: &str| ask(name)?.parse::<u64>().ok();
    let has = |(name, _): &&(&str, &str)| ask(name).as_deref() == Some("1");
    let apple = APPLE_FEATURES.iter().filter(has);
    Machine {
        processor: ask("machdep.cpu.brand_string")
            .unwrap_or_else(|| std::env::consts::ARCH.to_owned()),
        physical_cores: number("hw.physicalcpu").map(|cores| cores as usize),
        fast_cores: number("hw.perflevel0.physicalcpu").map(|cores| cores as usize),
        features: apple.map(|(_, name)| (*name).to_owned()).collect(),
        memory_bytes: number("hw.memsize"),
        ..Machine::default()
    }
}

fn sysctl(name: &str) -> Option<String> {
    let output = Command::new("sysctl").args(["-n", name]).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let text = text.trim();
    (output.status.success() && !text.is_empty()).then(|| text.to_owned())
}

/// The most memory that this process ever had, where the system tells.
pub fn peak_rss() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"))?;
    let kilobytes: u64 = line.trim().trim_end_matches("kB").trim().parse().ok()?;
    Some(kilobytes * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn linux_files_are_read() {
        let processor = |core: u32| {
            format!(
                "model name\t: A Processor\nphysical id\t: 0\ncore id\t\t: {core}\nflags\t\t: fpu avx2 fma lm\n"
            )
        };
        // Two threads of each of two cores.
        let cpu = [0, 1, 0, 1].map(processor).join("\n");
        let memory = "MemTotal:       1000 kB\nMemFree: 1 kB\nMemAvailable:    500 kB\n";
        let machine = from_linux(&cpu, memory);
        assert_eq!(machine.processor, "A Processor");
        assert_eq!(machine.physical_cores, Some(2));
        assert_eq!(machine.features, ["avx2", "fma"]);
        assert_eq!(machine.memory_bytes, Some(1_024_000));
        assert_eq!(machine.free_memory_bytes, Some(512_000));
        let unknown = from_linux("", "");
        assert_eq!((unknown.physical_cores, unknown.memory_bytes), (None, None));
    }

    #[test]
    fn threads_are_worth_having_for_fast_cores_that_may_be_used() {
        let threads = |logical_cores, physical_cores, fast_cores| {
            let machine = Machine {
                logical_cores,
                physical_cores,
                fast_cores,
                ..Machine::default()
            };
            machine.worthwhile_threads()
        };
        assert_eq!(threads(8, Some(4), None), 4);
        assert_eq!(threads(2, Some(4), None), 2);
        assert_eq!(threads(8, None, None), 8);
        assert_eq!(threads(12, Some(12), Some(8)), 8);
        assert_eq!(threads(4, Some(12), Some(8)), 4);
    }

    #[test]
    fn a_mac_is_asked() {
        let machine = from_sysctl(|name| {
            let value = match name {
                "machdep.cpu.brand_string" => "Apple M9",
                "hw.physicalcpu" => "12",
                "hw.perflevel0.physicalcpu" => "8",
                "hw.memsize" => "1024",
                "hw.optional.arm.FEAT_I8MM" => "1",
                "hw.optional.arm.FEAT_BF16" => "0",
                _ => return None,
            };
            Some(value.to_owned())
        });
        assert_eq!(
            (machine.processor.as_str(), machine.physical_cores),
            ("Apple M9", Some(12))
        );
        assert_eq!(machine.fast_cores, Some(8));
        assert_eq!(
            (machine.memory_bytes, machine.features),
            (Some(1024), vec!["i8mm".to_owned()])
        );
    }
}
