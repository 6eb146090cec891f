//! Owns how much of the machine other programs use while something is measured. Linux only; elsewhere nothing is known.

use std::time::Instant;

/// Linux counts processor time for programs in hundredths of a second, whatever its own clock is.
const TICKS_PER_SECOND: f64 = 100.0;

/// Busy cores from which on what is measured means little.
pub const MANY: f64 = 0.5;

/// What others used before, since when.
pub struct Others {
    start: Instant,
    used: Option<u64>,
}

impl Others {
    pub fn watch() -> Others {
        Others {
            start: Instant::now(),
            used: used_by_others(),
        }
    }

    /// How many cores other programs, and other machines on the same processor, kept busy since then.
    pub fn busy_cores(&self) -> Option<f64> {
        let ticks = used_by_others()?.saturating_sub(self.used?);
        let seconds = self.start.elapsed().as_secs_f64();
        (seconds > 0.0).then(|| ticks as f64 / TICKS_PER_SECOND / seconds)
    }
}

fn used_by_others() -> Option<u64> {
    let read = |path: &str| std::fs::read_to_string(path).ok();
    let everybody = all_ticks(&read("/proc/stat")?)?;
    Some(everybody.saturating_sub(own_ticks(&read("/proc/self/stat")?)?))
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

    /// Its own work is not others': however busy they are, it is no core more.
    #[test]
    #[cfg(target_os = "linux")]
    fn ones_own_work_does_not_count() {
        let others = Others::watch();
        while others.start.elapsed().as_millis() < 200 {}
        let cores = std::thread::available_parallelism().unwrap().get();
        let busy = others.busy_cores().unwrap();
        assert!(busy >= 0.0 && busy <= cores as f64 + 0.5, "{busy}");
    }
}
