//! Owns one run of the kernel suite against one mutant: `mutants list`, or `mutants run NUMBER`, which ends with 0 if the
//! mutant survived. `cargo xtask mutate` runs them all, each in a process of its own: a mutant may hang or crash.

use mettle_kernels::emulator::{SuiteEmulator, choose_mutant, mutants};
use mettle_kernels::select::DeviceProfile;
use mettle_kernels::suite;
use std::process::ExitCode;

/// Orders and devices under which a mutant must be caught: the same as in the tests.
const RUNS: [(u32, DeviceProfile); 6] = [
    (0, DeviceProfile::nvidia(132)),
    (1, DeviceProfile::apple(10)),
    (2, DeviceProfile::apple(40)),
    (3, DeviceProfile::nvidia(132)),
    (4, DeviceProfile::nvidia(132)),
    (5, DeviceProfile::nvidia(16)),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["list"] => {
            for (number, (file, line, change)) in mutants().iter().enumerate() {
                println!("{number}\t{file}:{line}\t{change}");
            }
            ExitCode::SUCCESS
        }
        ["run", number] => {
            let number: usize = number.parse().expect("a mutant's number");
            choose_mutant(number);
            let file = mutants()[number].0;
            let cases = suite::cases();
            let relevant = cases.iter().filter(|case| concerns(file, &case.name));
            for (seed, profile) in RUNS {
                let mut device = SuiteEmulator::new(seed, profile);
                for case in relevant.clone() {
                    if let Err(message) = case.run(&mut device, 1) {
                        println!("caught by {} under seed {seed}: {message}", case.name);
                        return ExitCode::FAILURE;
                    }
                }
            }
            println!("survived");
            ExitCode::SUCCESS
        }
        _ => {
            eprintln!("mutants list | mutants run NUMBER");
            ExitCode::from(2)
        }
    }
}

/// Whether a case may run code of a file. Headers are shared by products and attention.
fn concerns(file: &str, case: &str) -> bool {
    let kernel = case.strip_prefix("once/").unwrap_or(case);
    let is = |family: &str| kernel.starts_with(family);
    match file {
        _ if file.starts_with("linear") || file.starts_with("common/linear") => is("linear"),
        _ if file.starts_with("attention") || file.starts_with("common/attention") => {
            is("attention")
        }
        "top_k.metal" => is("top_k"),
        "common/quantized.h" | "common/element.h" => is("linear") || is("rms_norm"),
        "common/lane.h" => is("attention"),
        "common/pages.h" => is("attention") || is("rope"),
        "common/stage.h" | "common/fragment.h" => is("linear") || is("attention"),
        _ => !(is("linear") || is("attention") || is("top_k")),
    }
}
