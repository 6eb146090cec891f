//! Owns the planes that quantized weights are read from on GPUs: ggml's blocks are 2-byte aligned, loads want 16.

/// Columns that share a scale.
const BLOCK: usize = 32;

/// Quantized weights, columns in order, 32 of them to a scale.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Planes {
    /// Q8_0: a signed byte a column. Q4_1: a nibble a column, the even one low.
    pub quants: Vec<u8>,
    /// As f16. Q8_0: the scale of each block. Q4_1: scale, then offset.
    pub scales: Vec<u8>,
}

/// From blocks of an f16 scale and 32 signed bytes. Panics where `blocks` is not whole blocks: the loader checked that.
pub fn q8_0(blocks: &[u8]) -> Planes {
    const BYTES: usize = 2 + BLOCK;
    assert!(blocks.len().is_multiple_of(BYTES), "whole Q8_0 blocks");
    let mut planes = Planes {
        quants: Vec::with_capacity(blocks.len() / BYTES * BLOCK),
        scales: Vec::with_capacity(blocks.len() / BYTES * 2),
    };
    for block in blocks.chunks_exact(BYTES) {
        planes.scales.extend_from_slice(&block[..2]);
        planes.quants.extend_from_slice(&block[2..]);
    }
    planes
}

/// From blocks of an f16 scale, an f16 offset and 16 bytes, of which byte i holds columns i (low) and i + 16 (high).
pub fn q4_1(blocks: &[u8]) -> Planes {
    const BYTES: usize = 4 + BLOCK / 2;
    assert!(blocks.len().is_multiple_of(BYTES), "whole Q4_1 blocks");
    let mut planes = Planes {
        quants: Vec::with_capacity(blocks.len() / BYTES * BLOCK / 2),
        scales: Vec::with_capacity(blocks.len() / BYTES * 4),
    };
    for block in blocks.chunks_exact(BYTES) {
        planes.scales.extend_from_slice(&block[..4]);
        let nibbles = &block[4..];
        let low = nibbles.chunks_exact(2).map(|two| two[0] & 15 | two[1] << 4);
        let high = nibbles
            .chunks_exact(2)
            .map(|two| two[0] >> 4 | two[1] & 0xf0);
        planes.quants.extend(low.chain(high));
    }
    planes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_come_in_order() {
        let mut block = vec![1, 2, 3, 4];
        // Column c has the value c % 16, so byte i holds i twice.
        block.extend((0..16).map(|i| i << 4 | i));
        let planes = q4_1(&block);
        let columns: Vec<u8> = planes
            .quants
            .iter()
            .flat_map(|b| [b & 15, b >> 4])
            .collect();
        let expected: Vec<u8> = (0..32).map(|c| c % 16).collect();
        assert_eq!(columns, expected);
        assert_eq!(planes.scales, [1, 2, 3, 4]);
        // The two halves are told apart.
        let mut block = vec![0; 4];
        block.extend([0xa1; 16]);
        let planes = q4_1(&block);
        assert_eq!(planes.quants[..8], [0x11; 8]);
        assert_eq!(planes.quants[8..], [0xaa; 8]);
    }

    #[test]
    fn bytes_keep_their_order() {
        let block: Vec<u8> = (0..34).collect();
        let planes = q8_0(&block);
        assert_eq!(planes.scales, [0, 1]);
        assert_eq!(planes.quants, (2..34).collect::<Vec<u8>>());
    }
}
