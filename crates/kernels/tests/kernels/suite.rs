//! Owns the runs of the kernel suite on the emulator: guard pages behind every buffer, orders that hunt races.

use mettle_kernels::emulator::SuiteEmulator;
use mettle_kernels::select::{self, DeviceProfile};
use mettle_kernels::suite::{self, SuiteArgument, SuiteDevice};

/// Lockstep, and five orders that hunt races.
pub const SEEDS: [u32; 6] = [0, 1, 2, 3, 4, 5];

fn passes(seed: u32, profile: DeviceProfile) -> SuiteEmulator {
    let mut device = SuiteEmulator::new(seed, profile);
    let report = suite::run(&mut device, "", 1, &mut |_| ());
    assert_eq!(report.failed, [], "seed {seed}");
    assert!(report.passed > 300);
    device
}

#[test]
fn every_case_passes_in_lockstep_and_no_kernel_is_left_out() {
    let used = passes(0, DeviceProfile::nvidia(132)).used;
    let all: Vec<_> = mettle_kernels::signatures().collect();
    let unused: Vec<_> = (all.iter().map(|s| s.host_name.as_str()))
        .filter(|name| !used.contains(name))
        .collect();
    assert!(unused.is_empty(), "not run: {unused:?}");
}

#[test]
fn every_case_passes_in_the_first_order() {
    passes(1, DeviceProfile::apple(10));
}

#[test]
fn every_case_passes_in_the_second_order() {
    passes(2, DeviceProfile::apple(40));
}

#[test]
fn every_case_passes_in_the_third_order() {
    passes(3, DeviceProfile::nvidia(132));
}

#[test]
fn every_case_passes_in_the_fourth_order() {
    passes(4, DeviceProfile::nvidia(132));
}

#[test]
fn every_case_passes_in_the_fifth_order() {
    passes(5, DeviceProfile::nvidia(16));
}

/// Writes something else each time.
struct Fickle(u8);

impl SuiteDevice for Fickle {
    fn profile(&self) -> DeviceProfile {
        DeviceProfile::apple(10)
    }

    fn run(&mut self, _: &select::Launch, arguments: &mut [SuiteArgument]) -> Result<(), String> {
        self.0 += 1;
        for argument in arguments {
            if let SuiteArgument::Out(bytes) | SuiteArgument::InOut(bytes) = argument {
                bytes.fill(self.0);
            }
        }
        Ok(())
    }
}

#[test]
fn a_wrong_result_and_one_that_changes_are_both_found() {
    let failure = |repeats| {
        let mut seen = Vec::new();
        let report = suite::run(&mut Fickle(0), "once/add_f16", repeats, &mut |progress| {
            seen.push((progress.name.to_string(), progress.done, progress.of));
        });
        assert_eq!(seen, [("once/add_f16".to_string(), 1, 1)]);
        assert_eq!((report.passed, report.failed.len()), (0, 1));
        report.failed[0].1.clone()
    };
    assert!(failure(1).starts_with("out: [0] is"), "{}", failure(1));
    assert_eq!(failure(2), "add_f16: repeat 1 differs from the first run");
}
