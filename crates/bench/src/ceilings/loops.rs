//! Owns the loops themselves: a sum over memory and chains of multiply-adds of floats and of integers, with AVX2 and AVX-512
//! where they are, else as the compiler writes them.

/// Independent chains: enough to hide the latency of a multiply-add (4 or 5 steps, 2 a step) on the cores we know.
const CHAINS: usize = 10;
/// Words that are summed side by side.
const CHUNK: usize = 32;
/// Numbers in a vector.
const LANES: usize = 8;

/// In a step of [`multiply_add`].
pub fn flops_per_step() -> usize {
    2 * CHAINS * lanes()
}

/// Numbers in a vector of the widest kind.
fn lanes() -> usize {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx512f") {
        return 2 * LANES;
    }
    LANES
}

/// Integers of 16 bits in a vector of the widest kind.
const INTEGERS: usize = 32;
/// In a step of [`integer_multiply_add`], whatever the vectors.
pub const INTEGER_OPS_PER_STEP: usize = 2 * CHAINS * INTEGERS;

/// The sum of all words, read at `streams` places in turn.
pub fn sum(words: &[u64], streams: usize) -> u64 {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has AVX2.
        return unsafe { avx2::sum(words, streams) };
    }
    let mut sums = [0_u64; CHUNK];
    let (chunks, rest) = words.as_chunks::<CHUNK>();
    let length = chunks.len().div_ceil(streams).max(1);
    for step in 0..length {
        for chunk in chunks[step.min(chunks.len())..].iter().step_by(length) {
            for (sum, word) in sums.iter_mut().zip(chunk) {
                *sum = sum.wrapping_add(*word);
            }
        }
    }
    let all = sums.iter().chain(rest);
    all.fold(0, |sum, word| sum.wrapping_add(*word))
}

/// `steps` times a multiply-add in each lane of each chain; gives a number that depends on them all.
pub fn multiply_add(steps: usize, factor: f32) -> f32 {
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx512f") {
            // SAFETY: the processor has it.
            return unsafe { avx512::multiply_add(steps, factor) };
        }
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
            // SAFETY: the processor has AVX2 and FMA.
            return unsafe { avx2::multiply_add(steps, factor) };
        }
    }
    let mut chains = [[1.0_f32; LANES]; CHAINS];
    for _ in 0..steps {
        for chain in &mut chains {
            for lane in chain {
                *lane = fused(*lane, factor);
            }
        }
    }
    chains.iter().flatten().sum()
}

/// `steps` times the products of 16-bit integers, neighbours added to a 32-bit sum in each lane of each chain; gives a number
/// that depends on them all.
pub fn integer_multiply_add(steps: usize, factor: i16) -> i32 {
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx512vnni") && is_x86_feature_detected!("avx512f") {
            // SAFETY: the processor has them.
            return unsafe { avx512::integer_multiply_add(steps, factor) };
        }
        if is_x86_feature_detected!("avxvnni") {
            // SAFETY: the processor has it, and AVX2 with it.
            return unsafe { avx2::integer_multiply_add_at_once(steps, factor) };
        }
        if is_x86_feature_detected!("avx2") {
            // SAFETY: the processor has AVX2.
            return unsafe { avx2::integer_multiply_add(steps, factor) };
        }
    }
    let mut chains = [[0_i32; INTEGERS / 2]; CHAINS];
    for _ in 0..steps {
        // Else the compiler would multiply by the number of steps.
        let factor = i32::from(std::hint::black_box(factor));
        for lane in chains.iter_mut().flatten() {
            *lane = lane.wrapping_add(factor * factor + factor * factor);
        }
    }
    let all = chains.iter().flatten();
    all.fold(0, |sum, lane| sum.wrapping_add(*lane))
}

/// Without FMA instructions a fused multiply-add is a slow library call: there the two steps are taken apart.
fn fused(value: f32, factor: f32) -> f32 {
    match cfg!(any(target_arch = "aarch64", target_feature = "fma")) {
        true => value.mul_add(factor, 0.5),
        false => value * factor + 0.5,
    }
}

#[cfg(target_arch = "x86_64")]
mod avx512 {
    use super::CHAINS;
    use std::arch::x86_64::*;

    #[target_feature(enable = "avx512f")]
    pub fn multiply_add(steps: usize, factor: f32) -> f32 {
        let factor = _mm512_set1_ps(factor);
        let half = _mm512_set1_ps(0.5);
        let mut chains = [_mm512_set1_ps(1.0); CHAINS];
        for _ in 0..steps {
            for chain in &mut chains {
                *chain = _mm512_fmadd_ps(*chain, factor, half);
            }
        }
        let sums = chains.map(|chain| _mm512_reduce_add_ps(chain));
        sums.into_iter().sum()
    }

    #[target_feature(enable = "avx512f,avx512vnni")]
    pub fn integer_multiply_add(steps: usize, factor: i16) -> i32 {
        let factor = _mm512_set1_epi16(factor);
        let mut chains = [_mm512_setzero_si512(); CHAINS];
        for _ in 0..steps {
            for chain in &mut chains {
                // SAFETY: it only computes.
                unsafe {
                    // With the intrinsic the compiler may multiply apart, once for all steps, and only add.
                    std::arch::asm!(
                        "vpdpwssd {chain}, {factor}, {factor}",
                        chain = inout(zmm_reg) *chain,
                        factor = in(zmm_reg) factor,
                        options(pure, nomem, nostack, preserves_flags),
                    );
                }
            }
        }
        let sums = chains.map(|chain| _mm512_reduce_add_epi32(chain));
        sums.into_iter().fold(0, i32::wrapping_add)
    }
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use super::{CHAINS, CHUNK, INTEGERS, LANES};
    use std::arch::x86_64::*;

    #[target_feature(enable = "avx2")]
    pub fn sum(words: &[u64], streams: usize) -> u64 {
        let mut sums = [_mm256_setzero_si256(); CHUNK / 4];
        let (chunks, rest) = words.as_chunks::<CHUNK>();
        let length = chunks.len().div_ceil(streams).max(1);
        for step in 0..length {
            for chunk in chunks[step.min(chunks.len())..].iter().step_by(length) {
                for (number, sum) in sums.iter_mut().enumerate() {
                    let place = chunk[number * 4..].as_ptr();
                    // SAFETY: a chunk has 32 words, and 4 are read from `number * 4` on, with `number` below 8.
                    let loaded = unsafe { _mm256_loadu_si256(place.cast()) };
                    *sum = _mm256_add_epi64(*sum, loaded);
                }
            }
        }
        let mut all = 0_u64;
        for sum in sums {
            let mut lanes = [0_u64; 4];
            // SAFETY: `lanes` holds the 32 bytes of a vector.
            unsafe { _mm256_storeu_si256(lanes.as_mut_ptr().cast(), sum) };
            all = lanes.iter().fold(all, |all, lane| all.wrapping_add(*lane));
        }
        rest.iter().fold(all, |all, word| all.wrapping_add(*word))
    }

    /// Vectors in which a step's integers lie.
    const HALVES: usize = INTEGERS / 16;

    #[target_feature(enable = "avx2,avxvnni")]
    pub fn integer_multiply_add_at_once(steps: usize, factor: i16) -> i32 {
        let factor = _mm256_set1_epi16(factor);
        let mut chains = [_mm256_setzero_si256(); CHAINS];
        for _ in 0..steps * HALVES {
            for chain in &mut chains {
                // SAFETY: it only computes.
                unsafe {
                    // As with AVX-512.
                    std::arch::asm!(
                        "{{vex}} vpdpwssd {chain}, {factor}, {factor}",
                        chain = inout(ymm_reg) *chain,
                        factor = in(ymm_reg) factor,
                        options(pure, nomem, nostack, preserves_flags),
                    );
                }
            }
        }
        sum_of_integers(chains)
    }

    #[target_feature(enable = "avx2")]
    pub fn integer_multiply_add(steps: usize, factor: i16) -> i32 {
        let factor = _mm256_set1_epi16(factor);
        let factors = [factor; CHAINS];
        let mut chains = [_mm256_setzero_si256(); CHAINS];
        for _ in 0..steps * HALVES {
            // Products that do not change would be computed once, could the compiler see that they do not.
            let factors = std::hint::black_box(&factors);
            for (chain, other) in chains.iter_mut().zip(factors) {
                *chain = _mm256_add_epi32(*chain, _mm256_madd_epi16(factor, *other));
            }
        }
        sum_of_integers(chains)
    }

    #[target_feature(enable = "avx2")]
    fn sum_of_integers(chains: [__m256i; CHAINS]) -> i32 {
        let mut all = 0_i32;
        for chain in chains {
            let mut lanes = [0_i32; LANES];
            // SAFETY: `lanes` holds the 32 bytes of a vector.
            unsafe { _mm256_storeu_si256(lanes.as_mut_ptr().cast(), chain) };
            all = lanes.iter().fold(all, |all, lane| all.wrapping_add(*lane));
        }
        all
    }

    #[target_feature(enable = "avx2,fma")]
    pub fn multiply_add(steps: usize, factor: f32) -> f32 {
        let factor = _mm256_set1_ps(factor);
        let half = _mm256_set1_ps(0.5);
        let mut chains = [_mm256_set1_ps(1.0); CHAINS];
        for _ in 0..steps {
            for chain in &mut chains {
                *chain = _mm256_fmadd_ps(*chain, factor, half);
            }
        }
        let mut all = 0.0;
        for chain in chains {
            let mut lanes = [0.0_f32; LANES];
            // SAFETY: `lanes` holds the 32 bytes of a vector.
            unsafe { _mm256_storeu_ps(lanes.as_mut_ptr(), chain) };
            all += lanes.iter().sum::<f32>();
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_is_read() {
        let words: Vec<u64> = (0..1000).collect();
        for length in [0, 1, 31, 32, 33, 64, 160, 999] {
            let wanted: u64 = words[..length].iter().sum();
            for streams in [1, 2, 4] {
                assert_eq!(sum(&words[..length], streams), wanted);
            }
        }
    }

    #[test]
    fn every_lane_of_every_chain_is_computed() {
        // 1 -> 1 * 0.5 + 0.5 stays 1.
        assert_eq!(multiply_add(10, 0.5), (CHAINS * lanes()) as f32);
        assert_eq!(multiply_add(1, 2.5), (CHAINS * lanes()) as f32 * 3.0);
        for steps in [0, 1, 3] {
            let products = (steps * CHAINS * INTEGERS) as i32;
            assert_eq!(integer_multiply_add(steps, 5), 25 * products);
            #[cfg(target_arch = "x86_64")]
            if is_x86_feature_detected!("avx2") {
                // SAFETY: the processor has AVX2.
                let narrow = unsafe { avx2::integer_multiply_add(steps, 5) };
                assert_eq!(narrow, 25 * products);
            }
            #[cfg(target_arch = "x86_64")]
            if is_x86_feature_detected!("avxvnni") {
                // SAFETY: the processor has it, and AVX2 with it.
                let at_once = unsafe { avx2::integer_multiply_add_at_once(steps, 5) };
                assert_eq!(at_once, 25 * products);
            }
        }
    }
}
