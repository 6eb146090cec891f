//! Owns the steps that unpacking is made of: parts of a packed block as registers of bytes, and bytes as 16-bit integers.
//!
//! A pair of registers holds eight columns as bytes: the first has columns 0 to 3 of each row, the second columns 4 to 7.

use super::registers::Register;
use crate::pack::PANEL;

pub type Pair<R> = [<R as Register>::Integers; 2];

/// Eight columns in 16 bits, in the pairs that activations are in.
pub type Columns<R> = [<R as Register>::Integers; 4];

/// Masks that leave only the even or only the odd bytes.
pub const EVEN: i32 = 0x8000_8000_u32 as i32;
const ODD: i32 = 0x0080_0080;

/// Functions of registers or of memory that the caller promised to be there.
macro_rules! steps {
    ($($(#[$doc:meta])* fn $name:ident<R: Register $(, const $n:ident: $t:ty)?>($($arg:ident: $type:ty),*) -> $out:ty $body:block)*) => {
        $($(#[$doc])*
        ///
        /// # Safety
        /// What pointers point at is there; the processor has the register's instructions.
        #[inline(always)]
        pub unsafe fn $name<R: Register $(, const $n: $t)?>($($arg: $type),*) -> $out {
            // SAFETY: the caller's promise.
            unsafe { $body }
        })*
    };
}

steps! {
    /// A byte of each row, widened.
    fn unsigned_bytes<R: Register>(p: *const u8) -> R::Floats {
        R::floats(R::unsigned(p))
    }

    fn signed_bytes<R: Register>(p: *const u8) -> R::Floats {
        R::floats(R::signed(p))
    }

    /// The sub-scales of all rows and a half of the columns.
    fn sub_scale_of_half<R: Register>(block: *const u8, half: usize) -> R::Integers {
        R::signed(block.add(PANEL * half))
    }

    /// The 4-bit values of chunk `c`, each in 16 bits.
    fn nibbles<R: Register>(chunks: *const u8, c: usize) -> Columns<R> {
        let bytes = R::chunk(chunks, c);
        let mask = R::of_words(15);
        [
            R::and(bytes, mask),
            R::and(R::right::<8>(bytes), mask),
            R::and(R::right::<4>(bytes), mask),
            R::right::<12>(bytes),
        ]
    }

    /// The same, each in a byte.
    fn nibble_pair<R: Register>(chunks: *const u8, c: usize) -> Pair<R> {
        let bytes = R::chunk(chunks, c);
        let mask = R::of_bytes(15);
        [R::and(bytes, mask), R::and(R::right::<4>(bytes), mask)]
    }

    /// Bytes 8c to 8c + 8 of each row.
    fn byte_pair<R: Register>(chunks: *const u8, c: usize) -> Pair<R> {
        [R::chunk(chunks, 2 * c), R::chunk(chunks, 2 * c + 1)]
    }

    /// Signed bytes as unsigned ones that are 128 higher.
    fn raise<R: Register>(values: Pair<R>) -> Pair<R> {
        let highest = R::of_bytes(i8::MIN);
        [R::xor(values[0], highest), R::xor(values[1], highest)]
    }

    /// 2-bit values, each in a byte.
    fn bit_pairs<R: Register>(chunks: *const u8, c: usize) -> Pair<R> {
        let bytes = R::chunk(chunks, c / 2);
        let mask = R::of_bytes(3);
        let (first, second) = match c % 2 {
            0 => (bytes, R::right::<2>(bytes)),
            _ => (R::right::<4>(bytes), R::right::<6>(bytes)),
        };
        [R::and(first, mask), R::and(second, mask)]
    }

    /// 3-bit values, each in a byte.
    fn triples<R: Register, const C: usize>(chunks: *const u8) -> Pair<R> {
        let mask = R::of_bytes(7);
        if C < 3 {
            let bytes = R::chunk(chunks, C);
            return [R::and(bytes, mask), R::and(R::right::<3>(bytes), mask)];
        }
        let (low, high) = (R::of_bytes(3), R::of_bytes(4));
        let highest = R::chunk(chunks, 1);
        or::<R>(
            [
                R::and(R::right::<6>(R::chunk(chunks, 0)), low),
                R::and(R::right::<6>(R::chunk(chunks, 2)), low),
            ],
            [
                R::and(R::right::<4>(highest), high),
                R::and(R::right::<5>(highest), high),
            ],
        )
    }

    /// Single bits, each at bit 4 of a byte; what crosses into the next byte is masked.
    fn bits<R: Register, const C: usize>(chunk: *const u8) -> Pair<R> {
        let bytes = R::chunk(chunk, 0);
        let (first, second) = match C {
            0 => (R::left::<4>(bytes), R::left::<3>(bytes)),
            1 => (R::left::<2>(bytes), R::left::<1>(bytes)),
            2 => (bytes, R::right::<1>(bytes)),
            _ => (R::right::<2>(bytes), R::right::<3>(bytes)),
        };
        let mask = R::of_bytes(0x10);
        [R::and(first, mask), R::and(second, mask)]
    }

    /// 5-bit values, each in a byte: nibbles and their highest bits.
    fn fives<R: Register, const C: usize>(block: *const u8, nibbles: usize, highest: usize) -> Pair<R> {
        or::<R>(nibble_pair::<R>(block.add(nibbles), C), bits::<R, C>(block.add(highest)))
    }

    /// 6-bit values, each in a byte: nibbles and their two highest bits.
    fn sixes<R: Register>(nibbles: *const u8, highest: *const u8, c: usize) -> Pair<R> {
        let [first, second] = bit_pairs::<R>(highest, c);
        or::<R>(
            nibble_pair::<R>(nibbles, c),
            [R::left::<4>(first), R::left::<4>(second)],
        )
    }

    fn or<R: Register>(a: Pair<R>, b: Pair<R>) -> Pair<R> {
        [R::or(a[0], b[0]), R::or(a[1], b[1])]
    }

    fn minus<R: Register>(values: Pair<R>, offset: i8) -> Pair<R> {
        let offset = R::of_bytes(offset);
        [R::bytes_minus(values[0], offset), R::bytes_minus(values[1], offset)]
    }

    /// What numbers below 16 stand for.
    fn look_up<R: Register>(values: &[i8; 16], numbers: Pair<R>) -> Pair<R> {
        [R::look_up(values, numbers[0]), R::look_up(values, numbers[1])]
    }

    /// The sub-scales for columns 8c to 8c + 8, to be spread.
    fn sub_scales<R: Register>(block: *const u8, c: usize) -> R::Integers {
        R::to_spread(block.add(PANEL * (c / 2)))
    }

    fn low_nibbles<R: Register>(bytes: R::Integers) -> R::Integers {
        R::and(bytes, R::of_bytes(15))
    }

    fn widen_unsigned<R: Register>(values: Pair<R>) -> Columns<R> {
        let even = R::of_words(0xff);
        [
            R::and(values[0], even),
            R::right::<8>(values[0]),
            R::and(values[1], even),
            R::right::<8>(values[1]),
        ]
    }

    /// Multiplying adds neighbouring bytes, one of them times zero: that is widening in one instruction.
    fn widen_signed<R: Register>(values: Pair<R>) -> Columns<R> {
        even_and_odd::<R>([R::of_words(1), R::of_words(0x100)], values)
    }

    /// Unsigned factors of the even and of the odd bytes times signed values.
    fn even_and_odd<R: Register>(factors: [R::Integers; 2], values: Pair<R>) -> Columns<R> {
        [
            R::byte_products(factors[0], values[0]),
            R::byte_products(factors[1], values[0]),
            R::byte_products(factors[0], values[1]),
            R::byte_products(factors[1], values[1]),
        ]
    }

    /// Unsigned values times signed scales.
    fn widen_scaled<R: Register>(values: Pair<R>, scales: R::Integers) -> Columns<R> {
        let (even, odd) = (R::spread(scales, EVEN), R::spread(scales, ODD));
        [
            R::byte_products(values[0], even),
            R::byte_products(values[0], odd),
            R::byte_products(values[1], even),
            R::byte_products(values[1], odd),
        ]
    }

    /// Signed values (not -128) times signed scales: the scale's sign moves to the value.
    fn widen_signed_scaled<R: Register>(values: Pair<R>, scales: R::Integers) -> Columns<R> {
        let (size, signs) = (R::byte_sizes(scales), R::spread(scales, 0));
        let values = [R::with_signs(values[0], signs), R::with_signs(values[1], signs)];
        even_and_odd::<R>([R::spread(size, EVEN), R::spread(size, ODD)], values)
    }
}
