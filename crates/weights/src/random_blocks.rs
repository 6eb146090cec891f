//! Owns the making of random stored blocks of every element type, with a chosen spread and no NaN or infinity.

use half::{bf16, f16};
use mettle_tensor::{DType, TensorInfo};
use sha2::{Digest, Sha256};

/// Standard deviations of evenly spread integers of so many bits, and of -127..=127.
const SPREAD_2_BIT: f32 = 1.1180;
const SPREAD_3_BIT: f32 = 2.2913;
const SPREAD_4_BIT: f32 = 4.6098;
const SPREAD_5_BIT: f32 = 9.2331;
const SPREAD_6_BIT: f32 = 18.4730;
const SPREAD_8_BIT: f32 = 73.8994;
const SPREAD_SIGNED_BYTE: f32 = 73.6116;
/// Root mean squares of the values that a type's numbers stand for: IQ4_NL's, MXFP4's, and those of 8-bit floats, with NaN
/// replaced as below.
const SPREAD_IQ4: f32 = 67.4389;
const SPREAD_FP4: f32 = 2.9262;
const SPREAD_E4M3: f32 = 99.6663;
/// Sub-scales are 8..=15 in K blocks; this is their root mean square.
const SUB_SCALE_RMS: f32 = 11.7260;

/// Makes the blocks of one tensor.
#[derive(Clone, Copy)]
pub struct RandomBlocks {
    dtype: DType,
    mean: f32,
    deviation: f32,
    seed: u64,
}

impl RandomBlocks {
    pub fn new(info: &TensorInfo, seed: u64) -> RandomBlocks {
        let columns = info.shape.last().copied().unwrap_or(1).max(1);
        let (mean, deviation) = match info.shape.len() {
            0 | 1 if !info.dtype.is_quantized() => (1.0, 0.05),
            _ => (0.0, 1.0 / (columns as f32).sqrt()),
        };
        let digest = Sha256::new()
            .chain_update(seed.to_le_bytes())
            .chain_update(info.name.as_bytes())
            .finalize();
        let own = digest.first_chunk::<8>().expect("a digest has 32 bytes");
        RandomBlocks {
            dtype: info.dtype,
            mean,
            deviation,
            seed: u64::from_le_bytes(*own),
        }
    }

    /// Fills chunk `index` of the tensor with whole blocks.
    pub fn fill(&self, index: usize, chunk: &mut [u8]) {
        let mut random = SplitMix(self.seed ^ (index as u64).wrapping_mul(0xd1b5_4a32_d192_ed03));
        match self.dtype {
            DType::F32 => self.dense::<4>(&mut random, chunk, f32::to_le_bytes),
            DType::F16 => self.dense::<2>(&mut random, chunk, |v| f16::from_f32(v).to_le_bytes()),
            DType::BF16 => self.dense::<2>(&mut random, chunk, |v| bf16::from_f32(v).to_le_bytes()),
            quantized => {
                random.fill(chunk);
                for block in chunk.chunks_exact_mut(quantized.block_bytes()) {
                    self.set_scales(&mut random, block);
                }
            }
        }
    }

    /// Draws evenly from 4096 values made once: 5 elements for each random word, and no conversion per element.
    fn dense<const N: usize>(
        &self,
        random: &mut SplitMix,
        chunk: &mut [u8],
        encode: fn(f32) -> [u8; N],
    ) {
        let half_width = 3f32.sqrt() * self.deviation;
        let levels: Vec<[u8; N]> = (0..4096)
            .map(|i| encode(self.mean + half_width * ((i as f32 + 0.5) / 2048.0 - 1.0)))
            .collect();
        let (elements, _) = chunk.as_chunks_mut::<N>();
        for group in elements.chunks_mut(5) {
            let mut word = random.next();
            for element in group {
                *element = levels[(word & 4095) as usize];
                word >>= 12;
            }
        }
    }

    /// One of the two powers of two around the wanted scale, drawn so that the mean square is right.
    fn exponent(&self, word: u64) -> u8 {
        let wanted = self.deviation / SPREAD_FP4;
        let lower = wanted.log2().floor();
        // Between 1 and 4 times the lower one's square.
        let above = ((wanted / lower.exp2()).powi(2) - 1.0) / 3.0;
        let is_upper = (word >> 9 & 0xffff) as f32 / 65536.0 < above;
        (127.0 + lower) as u8 + is_upper as u8
    }

    /// Turns a block of random bytes into a valid one. The sign of the scale is random where the integers are not
    /// symmetric about zero, so that their bias cancels over blocks.
    fn set_scales(&self, random: &mut SplitMix, block: &mut [u8]) {
        let word = random.next();
        let size = self.deviation * (0.75 + (word & 0xff) as f32 / 510.0);
        let signed = if word & 0x100 == 0 { size } else { -size };
        match self.dtype {
            DType::Q4_0 => set_half(block, 0, signed / SPREAD_4_BIT),
            DType::Q4_1 => {
                set_half(block, 0, size / SPREAD_4_BIT);
                set_half(block, 2, -7.5 * size / SPREAD_4_BIT);
            }
            DType::Q5_0 => set_half(block, 0, signed / SPREAD_5_BIT),
            DType::Q5_1 => {
                set_half(block, 0, size / SPREAD_5_BIT);
                set_half(block, 2, -15.5 * size / SPREAD_5_BIT);
            }
            DType::Q8_0 => {
                set_half(block, 0, size / SPREAD_SIGNED_BYTE);
                // Quantizers never write -128, and integer kernels may count on that.
                for quant in &mut block[2..] {
                    *quant = if *quant == 0x80 { 0x81 } else { *quant };
                }
            }
            DType::Q2_K => {
                // Equal sub-scales and sub-minima centre every sub-block on zero.
                for (j, scale) in block[..16].iter_mut().enumerate() {
                    *scale = 0x11 * magnitude(word, j);
                }
                let d = size / (SPREAD_2_BIT * SUB_SCALE_RMS);
                set_half(block, 80, d);
                set_half(block, 82, 1.5 * d);
            }
            DType::Q3_K => {
                set_q3_k_scales(&mut block[96..108], word);
                set_half(block, 108, size / (SPREAD_3_BIT * SUB_SCALE_RMS));
            }
            DType::Q4_K | DType::Q5_K => {
                let (spread, mean) = match self.dtype {
                    DType::Q4_K => (SPREAD_4_BIT, 7.5),
                    _ => (SPREAD_5_BIT, 15.5),
                };
                let d = size / (spread * SUB_SCALE_RMS);
                set_half(block, 0, d);
                set_half(block, 2, mean * d);
                set_equal_scales_and_mins(&mut block[4..16], word);
            }
            DType::Q6_K => {
                for (j, scale) in block[192..208].iter_mut().enumerate() {
                    let size = magnitude(word, j) as i8;
                    *scale = if *scale & 1 == 0 { size } else { -size } as u8;
                }
                set_half(block, 208, size / (SPREAD_6_BIT * SUB_SCALE_RMS));
            }
            DType::IQ4_NL => set_half(block, 0, signed / SPREAD_IQ4),
            DType::IQ4_XS => {
                set_half(block, 0, size / (SPREAD_IQ4 * SUB_SCALE_RMS));
                set_iq4_xs_scales(&mut block[2..8], word);
            }
            DType::MXFP4 => block[0] = self.exponent(word),
            DType::Affine8 => {
                set_half(block, 0, size / SPREAD_8_BIT);
                set_half(block, 2, -127.5 * size / SPREAD_8_BIT);
            }
            DType::Zero4 => {
                set_half(block, 0, size / SPREAD_4_BIT);
                // The mean of all nibbles, on average.
                block[2] = 7 + (word >> 9 & 1) as u8;
            }
            DType::F8 => {
                block[..4].copy_from_slice(&(size / SPREAD_E4M3).to_le_bytes());
                for byte in &mut block[4..] {
                    // All ones would be NaN.
                    *byte ^= ((*byte & 0x7f == 0x7f) as u8) << 6;
                }
            }
            DType::F32 | DType::F16 | DType::BF16 => unreachable!("dense types have no scales"),
        }
    }
}

/// Sub-scale `j` of a block: 8..=15.
fn magnitude(word: u64, j: usize) -> u8 {
    8 + (word >> (9 + 3 * j) & 7) as u8
}

/// The same with a random sign, as the 6 bits that stand for 32 more.
fn six_bits(word: u64, j: usize) -> u8 {
    match word.rotate_left(7) >> j & 1 {
        0 => 32 + magnitude(word, j),
        _ => 32 - magnitude(word, j),
    }
}

/// 16 sub-scales: low nibbles in eight bytes, high bit pairs in four.
fn set_q3_k_scales(packed: &mut [u8], word: u64) {
    packed.fill(0);
    for j in 0..16 {
        packed[j % 8] |= (six_bits(word, j) & 15) << (4 * (j / 8));
        packed[8 + j % 4] |= six_bits(word, j) >> 4 << (2 * (j / 4));
    }
}

/// 8 sub-scales: high bit pairs in two bytes, low nibbles in four.
fn set_iq4_xs_scales(packed: &mut [u8], word: u64) {
    packed.fill(0);
    for j in 0..8 {
        packed[j / 4] |= six_bits(word, j) >> 4 << (2 * (j % 4));
        packed[2 + j / 2] |= (six_bits(word, j) & 15) << (4 * (j % 2));
    }
}

/// Packs 8 sub-scales of 8..=15, each also the sub-minimum, so that every sub-block is centred on zero. They fit
/// in 4 bits, so the bytes that hold the upper bits of sub-blocks 4..8 stay free of them.
fn set_equal_scales_and_mins(packed: &mut [u8], word: u64) {
    let scale = |j: usize| magnitude(word, j);
    for j in 0..4 {
        packed[j] = scale(j);
        packed[j + 4] = scale(j);
        packed[j + 8] = scale(j + 4) | scale(j + 4) << 4;
    }
}

fn set_half(block: &mut [u8], at: usize, value: f32) {
    block[at..at + 2].copy_from_slice(&f16::from_f32(value).to_le_bytes());
}

/// Steele, Lea and Flood's SplitMix64: one multiplication chain a word, any seed is good.
struct SplitMix(u64);

impl SplitMix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&self.next().to_le_bytes()[..chunk.len()]);
        }
    }
}
