//! Owns how much of the machine other programs use while something is measured. Linux only; elsewhere nothing is known.

use std::time::Instant;

/// Linux counts processor time for programs in hundredths of a second, whatever its own clock is.
const TICKS_PER_SECOND: f64 = 100.0;

/// Busy cores from which on what is measured means little.
pub const MANY: f64 = 0.5;

/// Processor time so far.
#[derive(Clone, Copy)]
struct Used {
    /// By everybody, on this machine and on others that share its processor.
    all: u64,
    own: u64,
}

/// What was used before, since when.
pub struct Others {
    start: Instant,
    before: Option<Used>,
}

impl Others {
    pub fn watch() -> Others {
        Others {
            start: Instant::now(),
            before: used(),
        }
    }

    /// How many cores other programs, and other machines on the same processor, kept busy since then.
    pub fn busy_cores(&self) -> Option<f64> {
        busy_cores(self.before?, used()?, self.start.elapsed().as_secs_f64())
    }
}

fn busy_cores(before: Used, after: Used, seconds: f64) -> Option<f64> {
    let ticks = |of: fn(&Used) -> u64| of(&after).saturating_sub(of(&before));
    // The two are not read at once.
    let others = ticks(|used| used.all).saturating_sub(ticks(|used| used.own));
    (seconds > 0.0).then(|| others as f64 / TICKS_PER_SECOND / seconds)
}

fn used() -> Option<Used> {
    let read = |path: &str| std::fs::read_to_string(path).ok();
    Some(Used {
        all: all_ticks(&read("/proc/stat")?)?,
        own: own_ticks(&read("/proc/self/stat")?)?,
    })
}

/// Of all processors: all but idle and waiting for a disk; what guests use is counted as a program's.
fn all_ticks(stat: &str) -> Option<u64> {
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let ticks: Result<Vec<u64>, _> = line.split_whitespace().take(8).map(str::parse).collect();
    let [user, nice, system, _, _, irq, softirq, steal] = ticks.ok()?.try_into().ok()?;
    Some(user + nice + system + irq + softirq + steal)
}

/// A program's name, which may hold anything, ends with the last bracket.
fn own_ticks(stat: &str) -> Option<u64> {
    let (_, behind_name) = stat.rsplit_once(')')?;
    let mut fields = behind_name.split_whitespace().skip(11);
    let mut ticks = || fields.next()?.parse::<u64>().ok();
    Some(ticks()? + ticks()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_that_nobody_used_and_guests_twice_are_left_out() {
        let stat = "cpu  1 20 300 4000 50000 600000 7000000 80000000 900000000 1\ncpu0 1 1 1 1\n";
        assert_eq!(all_ticks(stat), Some(87_600_321));
        assert_eq!(all_ticks("cpu  1 2 3\n"), None);
        assert_eq!(all_ticks("intr 1\n"), None);
    }

    #[test]
    fn a_name_may_look_like_fields() {
        let stat = "17 (a) 1 2 (b) S 1 2 3 4 5 6 7 8 9 10 1100 12 13\n";
        assert_eq!(own_ticks(stat), Some(1112));
        assert_eq!(own_ticks("17 (a) S 1 2"), None);
        assert_eq!(own_ticks(""), None);
    }

    #[test]
    fn ones_own_work_does_not_count() {
        let used = |all, own| Used { all, own };
        // In two seconds two cores did 400 ticks, of which 370 were this program's.
        assert_eq!(busy_cores(used(1000, 50), used(1400, 420), 2.0), Some(0.15));
        assert_eq!(busy_cores(used(1000, 50), used(1400, 450), 2.0), Some(0.0));
        assert_eq!(busy_cores(used(1000, 50), used(1400, 451), 2.0), Some(0.0));
        assert_eq!(busy_cores(used(1000, 50), used(1000, 50), 0.0), None);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn linux_says_it() {
        let others = Others::watch();
        while others.start.elapsed().as_millis() < 50 {}
        assert!(others.busy_cores().is_some());
    }
}
