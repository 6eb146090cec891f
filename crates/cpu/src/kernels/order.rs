//! Owns where the 32 integers of a block of activations lie: as the processor's kernels load them.

use crate::pack::BLOCK;

/// Columns 1 and 2 of every four change places. A register of weights holds four bytes of each row, which widen to the
/// pairs (0, 2) and (1, 3) by a shift and a mask.
#[cfg(not(target_arch = "aarch64"))]
pub const fn place_of(column: usize) -> usize {
    (column & !3) | ((column & 1) << 1) | ((column >> 1) & 1)
}

#[cfg(not(target_arch = "aarch64"))]
pub fn get(integers: &[i16; BLOCK], column: usize) -> i32 {
    integers[place_of(column)] as i32
}

/// The sum of the first 16 columns, which lie first.
#[cfg(not(target_arch = "aarch64"))]
pub fn sum_of_first_half(integers: &[i16; BLOCK]) -> i32 {
    integers[..BLOCK / 2].iter().map(|i| *i as i32).sum()
}

#[cfg(not(target_arch = "aarch64"))]
pub fn set(integers: &mut [i16; BLOCK], column: usize, value: i16) {
    integers[place_of(column)] = value;
}

/// ARM multiplies signed bytes: an integer is `256 * high + low`, split once here and not for every panel of weights.
/// For every eight columns there are eight high bytes, then eight low ones: the two rows of a matrix product, or four
/// times the four columns of a dot product. 15 bits leave at most 64 for the high byte.
#[cfg(target_arch = "aarch64")]
const fn place_of_high(column: usize) -> usize {
    column / 8 * 16 + column % 8
}

#[cfg(target_arch = "aarch64")]
pub fn get(integers: &[i16; BLOCK], column: usize) -> i32 {
    let byte = |place: usize| integers[place / 2].to_le_bytes()[place % 2] as i8 as i32;
    let place = place_of_high(column);
    256 * byte(place) + byte(place + 8)
}

#[cfg(target_arch = "aarch64")]
pub fn sum_of_first_half(integers: &[i16; BLOCK]) -> i32 {
    (0..BLOCK / 2).map(|column| get(integers, column)).sum()
}

#[cfg(target_arch = "aarch64")]
pub fn set(integers: &mut [i16; BLOCK], column: usize, value: i16) {
    let mut write = |place: usize, byte: i16| {
        let mut bytes = integers[place / 2].to_le_bytes();
        bytes[place % 2] = byte as u8;
        integers[place / 2] = i16::from_le_bytes(bytes);
    };
    let place = place_of_high(column);
    write(place, (value + 128) >> 8);
    write(place + 8, value);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_column_has_a_place_of_its_own() {
        let values = |shift: usize| (0..BLOCK).map(move |c| (c * 1049 + shift) as i16 % 16_257);
        for sign in [1, -1] {
            let mut integers = [0; BLOCK];
            for shift in [0, 127, 128, 255] {
                for (column, value) in values(shift).enumerate() {
                    set(&mut integers, column, sign * value);
                }
                for (column, value) in values(shift).enumerate() {
                    assert_eq!(get(&integers, column), (sign * value) as i32, "{column}");
                }
                let first: i32 = values(shift).take(16).map(|v| (sign * v) as i32).sum();
                assert_eq!(sum_of_first_half(&integers), first);
            }
        }
    }
}
