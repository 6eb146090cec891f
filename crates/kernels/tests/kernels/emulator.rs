//! Owns the tests of the emulator itself: it must run what is right and name what is wrong.

use crate::suite::SEEDS;
use mettle_kernels::emulator::{Argument, Buffer, Fault, Kernel, Launch};

const THREADS: usize = 64;

fn run(kernel: &str, seed: u32) -> Result<Vec<f32>, String> {
    let out = Buffer::new(THREADS * 4);
    let params = (THREADS as u32).to_le_bytes();
    let launch = Launch {
        threadgroups: [1, 1, 1],
        threads: [THREADS as u32, 1, 1],
        threadgroup_bytes: THREADS * 4,
        seed,
    };
    let arguments = [Argument::Buffer(&out, 0), Argument::Bytes(&params)];
    Kernel::find(kernel)
        .expect("a self test")
        .dispatch(&arguments, &[], &launch)
        .map_err(|fault| fault.to_string())?;
    let floats = out.to_vec();
    let float = |b: &[u8]| f32::from_le_bytes(b.try_into().unwrap());
    Ok(floats.chunks_exact(4).map(float).collect())
}

fn reversed(values: &[f32], add: f32) -> bool {
    (values.iter().enumerate()).all(|(i, &v)| v == (THREADS - 1 - i) as f32 + add)
}

#[test]
fn a_right_kernel_gives_the_same_in_every_order() {
    for seed in SEEDS {
        assert!(
            reversed(&run("fault_none", seed).unwrap(), 0.0),
            "seed {seed}"
        );
    }
}

#[test]
fn unwritten_threadgroup_memory_is_nan() {
    for seed in SEEDS {
        let values = run("fault_no_barrier", seed).unwrap();
        assert!(values.iter().any(|v| v.is_nan()), "seed {seed}");
    }
}

#[test]
fn asynchronous_copies_are_seen_after_a_wait_and_a_barrier() {
    for seed in SEEDS {
        let values = run("fault_async_none", seed).unwrap();
        assert!(reversed(&values, 0.0), "seed {seed}");
        for kernel in [
            "fault_async_no_barrier",
            "fault_async_short_wait",
            "fault_async_early",
        ] {
            let values = run(kernel, seed).unwrap();
            assert!(values.iter().any(|v| v.is_nan()), "{kernel} seed {seed}");
        }
        let error = run("fault_async_no_wait", seed).unwrap_err();
        assert!(
            error.contains("returned with 1 asynchronous copies under way"),
            "{error}"
        );
        let error = run("fault_async_alignment", seed).unwrap_err();
        assert!(error.contains("off its 16-byte boundary"), "{error}");
    }
}

#[test]
fn a_race_hidden_by_lockstep_shows_with_seeds() {
    let kernel = "fault_one_barrier_short";
    let right = |seed| {
        let sums = run(kernel, seed).unwrap();
        (sums.iter().enumerate()).all(|(i, &v)| v == (4 * (THREADS - 1 - i) + 6) as f32)
    };
    assert!(right(0), "lockstep hides it");
    assert!((1..=5).all(|seed| !right(seed)));
}

#[test]
fn faults_are_errors_that_name_the_line() {
    let expected = [
        ("fault_bounds", "out of bounds: access to address"),
        (
            "fault_threadgroup_bounds",
            "out of bounds: access to address",
        ),
        (
            "fault_divergent",
            "barrier divergence: another thread is at selftest.metal:",
        ),
        ("fault_early_return", "after a lane has returned"),
        (
            "fault_flags",
            "selftest.metal:76: threadgroup memory was written before a barrier without mem_threadgroup",
        ),
    ];
    for (kernel, message) in expected {
        for seed in SEEDS {
            let error = run(kernel, seed).unwrap_err();
            let early =
                kernel == "fault_early_return" && error.contains("returned while other lanes wait");
            assert!(
                error.contains(message) || early,
                "{kernel} seed {seed}: {error}"
            );
        }
    }
    for seed in SEEDS {
        let error = run("fault_deadlock", seed).unwrap_err();
        assert!(
            error.contains("deadlock: thread") && error.contains("selftest.metal:"),
            "{error}"
        );
    }
}

#[test]
fn after_a_fault_the_emulator_works_on() {
    run("fault_bounds", 1).unwrap_err();
    assert!(reversed(&run("fault_none", 1).unwrap(), 0.0));
}

#[test]
fn wrong_arguments_are_refused_before_anything_runs() {
    let kernel = Kernel::find("fault_none").unwrap();
    let out = Buffer::new(THREADS * 4);
    let launch = Launch {
        threadgroups: [1, 1, 1],
        threads: [THREADS as u32, 1, 1],
        threadgroup_bytes: THREADS * 4,
        seed: 0,
    };
    let params = 64_u32.to_le_bytes();
    let good = [Argument::Buffer(&out, 0), Argument::Bytes(&params)];
    let refuse = |arguments: &[Argument], launch: &Launch, constants: &[(&str, u32)]| match kernel
        .dispatch(arguments, constants, launch)
    {
        Err(Fault::Arguments { message, .. }) => message,
        other => panic!("{other:?}"),
    };
    assert_eq!(refuse(&good[..1], &launch, &[]), "2 buffers, 1 given");
    let short = [Argument::Buffer(&out, 0), Argument::Bytes(&params[..2])];
    assert_eq!(
        refuse(&short, &launch, &[]),
        "the params at buffer(1) have 4 bytes, 2 given"
    );
    let swapped = [Argument::Bytes(&params), Argument::Buffer(&out, 0)];
    assert_eq!(
        refuse(&swapped, &launch, &[]),
        "buffer(0) is written, bytes are not"
    );
    let none = Launch {
        threadgroup_bytes: 0,
        ..launch
    };
    assert!(refuse(&good, &none, &[]).contains("threadgroup memory"));
    assert!(refuse(&good, &launch, &[("fast", 1)]).contains("no function constant fast"));
}
