//! Owns what the machine can do at the most: bytes read from memory, multiply-adds of floats and of integers, measured in
//! short loops of nothing else.

mod loops;
mod memory;

pub(crate) use loops::sum;

use serde::Serialize;
use std::hint::black_box;
use std::sync::Barrier;
use std::time::{Duration, Instant};

/// Bytes that the threads read together: far more than any cache holds. (Of a quarter of this, 32 MB of cache kept so much
/// that 36 GB/s looked like 46.)
const READ_BYTES: usize = 512 << 20;
/// Passes whose best counts: a pass that another program disturbed does not.
const PASSES: usize = 12;
/// Places of the memory that a thread reads in turn, in the second way.
const STREAMS: usize = 4;
/// Steps of the loop of multiply-adds.
const STEPS: usize = 4_000_000;

/// The machine's ceilings for a number of threads.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Ceilings {
    pub threads: usize,
    pub read_bytes_per_second: f64,
    /// In f32; a multiply-add is two.
    pub flops_per_second: f64,
    /// Of 16-bit integers, summed in 32 bits, as products with quantized weights are; a multiply-add is two.
    pub integer_ops_per_second: f64,
}

/// A backend's own loop over products that are as exact, if it has a faster way than processors' registers.
#[derive(Clone, Copy, Debug)]
pub struct IntegerLoop {
    /// Runs so many steps.
    pub run: fn(steps: usize),
    /// A multiply-add is two.
    pub operations_per_step: usize,
}

impl Ceilings {
    /// Takes about a second.
    pub fn measure(threads: usize, integers: Option<IntegerLoop>) -> Ceilings {
        Ceilings {
            threads,
            read_bytes_per_second: read_bandwidth(threads),
            flops_per_second: multiply_adds(threads),
            integer_ops_per_second: match integers {
                Some(integers) => operations_of(integers, threads),
                None => integer_multiply_adds(threads),
            },
        }
    }

    /// Seconds that something needs at the least which reads `bytes` and computes `operations`, in integers or floats.
    pub fn least_seconds(&self, bytes: f64, operations: f64, in_integers: bool) -> f64 {
        let rate = match in_integers {
            true => self.integer_ops_per_second,
            false => self.flops_per_second,
        };
        (bytes / self.read_bytes_per_second).max(operations / rate)
    }
}

/// By the better of two ways to read: which one feeds a core's prefetchers best differs from one to the next.
fn read_bandwidth(threads: usize) -> f64 {
    let words = READ_BYTES / threads / size_of::<u64>();
    let read_in = |streams: usize| {
        let best = together(threads, PASSES, |thread| {
            // Filled by the thread that reads it, so that it lies in memory near to it.
            let data = memory::filled(words, thread as u64 + 1);
            move || {
                black_box(loops::sum(black_box(&data), streams));
            }
        });
        (words * threads * size_of::<u64>()) as f64 / best
    };
    read_in(1).max(read_in(STREAMS))
}

/// Memory that is read in a few hundredths of a second, to know what it gives right before and after something: on a virtual machine that
/// can change from one second to the next.
#[derive(Debug)]
pub struct MemoryProbe {
    /// Of each thread.
    words: Vec<Vec<u64>>,
}

const PROBE_PASSES: usize = 2;

impl MemoryProbe {
    pub fn new(threads: usize) -> MemoryProbe {
        let words = READ_BYTES / threads / size_of::<u64>();
        MemoryProbe {
            words: (1..=threads as u64)
                .map(|value| memory::filled(words, value))
                .collect(),
        }
    }

    /// What all threads read in a second, by the better of two ways as for `Ceilings`.
    pub fn bytes_per_second(&self) -> f64 {
        let words: usize = self.words.iter().map(Vec::len).sum();
        let read_in = |streams: usize| {
            let best = together(self.words.len(), PROBE_PASSES, |thread| {
                let words = &self.words[thread];
                move || {
                    black_box(loops::sum(black_box(words), streams));
                }
            });
            (words * size_of::<u64>()) as f64 / best
        };
        read_in(1).max(read_in(STREAMS))
    }
}

fn multiply_adds(threads: usize) -> f64 {
    let best = together(threads, PASSES, |_| {
        || {
            black_box(loops::multiply_add(black_box(STEPS), black_box(0.999)));
        }
    });
    (STEPS * loops::flops_per_step() * threads) as f64 / best
}

fn integer_multiply_adds(threads: usize) -> f64 {
    let best = together(threads, PASSES, |_| {
        || {
            black_box(loops::integer_multiply_add(black_box(STEPS), black_box(3)));
        }
    });
    (STEPS * loops::INTEGER_OPS_PER_STEP * threads) as f64 / best
}

fn operations_of(integers: IntegerLoop, threads: usize) -> f64 {
    let steps = STEPS * loops::INTEGER_OPS_PER_STEP / integers.operations_per_step;
    let best = together(threads, PASSES, |_| {
        move || (integers.run)(black_box(steps))
    });
    (steps * integers.operations_per_step * threads) as f64 / best
}

/// The best time in which all threads do their work once, side by side.
fn together<W: FnMut()>(threads: usize, passes: usize, prepare: impl Fn(usize) -> W + Sync) -> f64 {
    let barrier = Barrier::new(threads);
    let times = std::thread::scope(|scope| {
        let (barrier, prepare) = (&barrier, &prepare);
        let spawned: Vec<_> = (0..threads)
            .map(|thread| {
                scope.spawn(move || {
                    let mut work = prepare(thread);
                    work();
                    let mut best = Duration::MAX;
                    for _ in 0..passes {
                        barrier.wait();
                        let start = Instant::now();
                        work();
                        barrier.wait();
                        best = best.min(start.elapsed());
                    }
                    best
                })
            })
            .collect();
        let joined = spawned.into_iter().map(|s| s.join());
        joined
            .map(|time| time.expect("the loops do not panic"))
            .max()
    });
    times.expect("there is a thread").as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ceilings_are_plausible_for_any_machine() {
        let one = Ceilings::measure(1, None);
        // Slower than a disk or faster than any memory: the loop was not what it should be.
        let gigabytes = one.read_bytes_per_second / 1e9;
        assert!((0.5..2000.0).contains(&gigabytes), "{gigabytes} GB/s");
        let gigaflops = one.flops_per_second / 1e9;
        assert!((0.2..2000.0).contains(&gigaflops), "{gigaflops} GFLOP/s");
        let integers = one.integer_ops_per_second / 1e9;
        assert!((0.2..4000.0).contains(&integers), "{integers} Gop/s");
    }

    #[test]
    fn a_probe_reads_what_ceilings_do() {
        for threads in [1, 3] {
            let gigabytes = MemoryProbe::new(threads).bytes_per_second() / 1e9;
            assert!((0.5..2000.0).contains(&gigabytes), "{gigabytes} GB/s");
        }
    }

    #[test]
    fn the_slower_of_memory_and_arithmetic_decides() {
        let ceilings = Ceilings {
            threads: 1,
            read_bytes_per_second: 10.0,
            flops_per_second: 100.0,
            integer_ops_per_second: 200.0,
        };
        assert_eq!(ceilings.least_seconds(50.0, 100.0, false), 5.0);
        assert_eq!(ceilings.least_seconds(10.0, 300.0, false), 3.0);
        assert_eq!(ceilings.least_seconds(10.0, 300.0, true), 1.5);
    }
}
