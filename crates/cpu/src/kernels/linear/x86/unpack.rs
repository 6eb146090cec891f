//! Quantized weights as registers of 16-bit integers: one implementation per type, for few and for many rows alike.
//!
//! A register holds two columns of each of its rows of a panel, in the pairs that `place_of` puts side by side in
//! the activations. 16 bits hold every type's integers multiplied by their sub-scale (at most 128 * 32), and `madd` adds
//! products with 15-bit activations in 32 bits: all exact.

use super::pieces::*;
use super::registers::Register;
use crate::pack::PANEL;
use crate::pack::layout::{
    Affine8, Iq4Nl, Iq4Xs, Layout, Mxfp4, Q2K, Q3K, Q4_0, Q4_1, Q4K, Q5_0, Q5_1, Q5K, Q6K, Q8_0,
    Zero4,
};
use mettle_tensor::blocks::{iq4_nl, mxfp4};

/// A type's values as unsigned bytes.
pub struct ByteValues {
    /// How large they are.
    pub bits: u32,
    /// What is to be taken from each.
    pub less: i32,
    /// How many times too high the last half's are, and sums of all, sub-scales multiplied in.
    pub times: u32,
}

impl ByteValues {
    /// How large those of a half are.
    pub const fn bits_of_half(&self, half: usize) -> u32 {
        match half {
            0 => self.bits - self.times.ilog2(),
            _ => self.bits,
        }
    }
}

pub trait Unpack: Layout {
    const BYTES: ByteValues;

    /// Columns `8C..8C + 8` of a block as `BYTES` says.
    ///
    /// # Safety
    /// As for `eight`.
    unsafe fn bytes<R: Register, const C: usize>(block: *const u8) -> Pair<R>;

    /// For types that have 4-bit values and no others: where they lie in a block, and what each stands for.
    const NIBBLES: Option<(usize, [i8; 16])> = None;

    /// Whether each half of the columns of a block of `BYTES` has a sub-scale.
    const SUB_SCALED: bool = false;

    /// Sub-scales of the rows and a half of the columns.
    ///
    /// # Safety
    /// As for `offsets`.
    unsafe fn sub_scale<R: Register>(_: *const u8, _half: usize) -> R::Integers {
        unreachable!("{} has no sub-scales", Self::DTYPE)
    }

    /// Scales of the rows.
    ///
    /// # Safety
    /// `group` is a whole group in this type's layout and `block` one of its blocks; the processor has the register's
    /// instructions (so for all).
    unsafe fn scales<R: Register>(group: *const u8, block: *const u8) -> R::Floats;

    /// Offsets of the rows.
    ///
    /// # Safety
    /// As for `scales`.
    unsafe fn offsets<R: Register>(_: *const u8, _: *const u8) -> R::Floats {
        unreachable!("{} has no offset of a block", Self::DTYPE)
    }

    /// Where in a group its 16 offsets lie, as two chunks of nibbles.
    const NIBBLES_OF_OFFSETS: usize = 0;

    /// What those are multiples of.
    ///
    /// # Safety
    /// As for `scales`.
    unsafe fn offset_units<R: Register>(_: *const u8) -> R::Floats {
        unreachable!("{} has no units of offsets", Self::DTYPE)
    }

    /// Columns `8C..8C + 8` of a block in the pairs (0, 2), (1, 3), (4, 6), (5, 7). A constant, since loops over it are not
    /// always unrolled, and shifts by what is known only at run time cost much.
    ///
    /// # Safety
    /// As for `scales`, and `C < 4`.
    unsafe fn eight<R: Register, const C: usize>(block: *const u8) -> Columns<R>;
}

/// 4-bit values that stand for themselves, and those that stand for eight less.
const UNSIGNED: [i8; 16] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];
const EIGHT_LESS: [i8; 16] = [-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7];

/// Values as unsigned bytes that are so much higher.
const fn raised(values: &[i8; 16], by: u8) -> [i8; 16] {
    let mut raised = *values;
    let mut i = 0;
    while i < 16 {
        raised[i] = (values[i] as u8).wrapping_add(by) as i8;
        i += 1;
    }
    raised
}

/// The methods of a type, each the caller's promise handed on.
macro_rules! unpack {
    ($type:ident, $r:ident {
        scales: |$g:pat_param, $b:pat_param| $scales:expr,
        $(offsets: |$og:pat_param, $ob:pat_param| $offsets:expr,)?
        $(offsets_at: $at:expr, units: |$ug:ident| $units:expr,)?
        eight: |$block:ident, $c:ident| $eight:expr,
        bytes: $bits:literal less $less:literal $(times $times:literal)? |$bb:ident, $bc:ident| $bytes:expr,
        $(sub_scale: |$sb:ident, $sh:ident| $sub_scale:expr,)?
        $(nibbles: $nibbles:expr, $values:expr,)?
    }) => {
        impl Unpack for $type {
            const BYTES: ByteValues = ByteValues {
                bits: $bits,
                less: $less,
                times: 1 $(* $times)?,
            };

            #[inline(always)]
            unsafe fn bytes<$r: Register, const $bc: usize>($bb: *const u8) -> Pair<$r> {
                // SAFETY: the caller's promise.
                unsafe { $bytes }
            }

            $(const NIBBLES: Option<(usize, [i8; 16])> = Some(($nibbles, $values));)?

            $(const SUB_SCALED: bool = true;

            #[inline(always)]
            unsafe fn sub_scale<$r: Register>($sb: *const u8, $sh: usize) -> $r::Integers {
                // SAFETY: the caller's promise.
                unsafe { $sub_scale }
            })?

            #[inline(always)]
            unsafe fn scales<$r: Register>($g: *const u8, $b: *const u8) -> $r::Floats {
                // SAFETY: the caller's promise.
                unsafe { $scales }
            }

            $(#[inline(always)]
            unsafe fn offsets<$r: Register>($og: *const u8, $ob: *const u8) -> $r::Floats {
                // SAFETY: the caller's promise.
                unsafe { $offsets }
            })?

            $(const NIBBLES_OF_OFFSETS: usize = $at;

            #[inline(always)]
            unsafe fn offset_units<$r: Register>($ug: *const u8) -> $r::Floats {
                // SAFETY: the caller's promise.
                unsafe { $units }
            })?

            #[inline(always)]
            unsafe fn eight<$r: Register, const $c: usize>($block: *const u8) -> Columns<$r> {
                // SAFETY: the caller's promise.
                unsafe { $eight }
            }
        }
    };
}

unpack!(Q4_0, R {
    scales: |_, block| R::halves(block),
    eight: |block, C| widen_signed::<R>(minus::<R>(nibble_pair::<R>(block.add(Q4_0::NIBBLES), C), 8)),
    bytes: 4 less 8 |block, C| nibble_pair::<R>(block.add(Q4_0::NIBBLES), C),
    nibbles: Q4_0::NIBBLES, EIGHT_LESS,
});

unpack!(Q4_1, R {
    scales: |_, block| R::halves(block),
    offsets: |_, block| R::halves(block.add(2 * PANEL)),
    eight: |block, C| nibbles::<R>(block.add(Q4_1::NIBBLES), C),
    bytes: 4 less 0 |block, C| nibble_pair::<R>(block.add(Q4_1::NIBBLES), C),
    nibbles: Q4_1::NIBBLES, UNSIGNED,
});

unpack!(Q5_0, R {
    scales: |_, block| R::halves(block),
    eight: |block, C| widen_signed::<R>(minus::<R>(fives::<R, C>(block, Q5_0::NIBBLES, Q5_0::BITS), 16)),
    bytes: 5 less 16 |block, C| fives::<R, C>(block, Q5_0::NIBBLES, Q5_0::BITS),
});

unpack!(Q5_1, R {
    scales: |_, block| R::halves(block),
    offsets: |_, block| R::halves(block.add(2 * PANEL)),
    eight: |block, C| widen_unsigned::<R>(fives::<R, C>(block, Q5_1::NIBBLES, Q5_1::BITS)),
    bytes: 5 less 0 |block, C| fives::<R, C>(block, Q5_1::NIBBLES, Q5_1::BITS),
});

unpack!(Q8_0, R {
    scales: |_, block| R::halves(block),
    eight: |block, C| widen_signed::<R>(byte_pair::<R>(block.add(Q8_0::VALUES), C)),
    bytes: 8 less 128 |block, C| raise::<R>(byte_pair::<R>(block.add(Q8_0::VALUES), C)),
});

unpack!(Affine8, R {
    scales: |_, block| R::halves(block),
    offsets: |_, block| {
        let lowered = R::mul(R::halves(block), R::of_floats(128.0));
        R::add(lowered, R::halves(block.add(2 * PANEL)))
    },
    eight: |block, C| widen_signed::<R>(byte_pair::<R>(block.add(Affine8::VALUES), C)),
    bytes: 8 less 128 |block, C| raise::<R>(byte_pair::<R>(block.add(Affine8::VALUES), C)),
});

unpack!(Zero4, R {
    scales: |_, block| R::halves(block),
    offsets: |_, block| {
        let zeros = unsigned_bytes::<R>(block.add(Zero4::ZEROS));
        R::negative(R::mul(R::halves(block), zeros))
    },
    eight: |block, C| nibbles::<R>(block.add(Zero4::NIBBLES), C),
    bytes: 4 less 0 |block, C| nibble_pair::<R>(block.add(Zero4::NIBBLES), C),
    nibbles: Zero4::NIBBLES, UNSIGNED,
});

unpack!(Q2K, R {
    scales: |group, _| R::halves(group),
    offsets_at: Q2K::MINS, units: |group| R::negative(R::halves(group.add(2 * PANEL))),
    eight: |block, C| {
        let scales = R::to_spread(block.add(Q2K::SCALES));
        let bytes = R::chunk(block, C % 2);
        let (scales, first, second) = match C / 2 {
            0 => (R::right::<4>(scales), bytes, R::right::<2>(bytes)),
            _ => (scales, R::right::<4>(bytes), R::right::<6>(bytes)),
        };
        let mask = R::of_bytes(3);
        let values = [R::and(first, mask), R::and(second, mask)];
        widen_scaled::<R>(values, low_nibbles::<R>(scales))
    },
    bytes: 6 less 0 times 16 |block, C| {
        let bytes = R::chunk(block, C % 2);
        let mask = R::of_bytes(if C < 2 { 3 } else { 3 << 4 });
        [R::and(bytes, mask), R::and(R::right::<2>(bytes), mask)]
    },
    sub_scale: |block, half| {
        let mask = if half == 0 { 15 << 4 } else { 15 };
        R::and(R::unsigned(block.add(Q2K::SCALES)), R::of_integers(mask))
    },
});

unpack!(Q3K, R {
    scales: |group, _| R::halves(group),
    eight: |block, C| {
        let values = triples::<R, C>(block.add(Q3K::TRIPLES));
        widen_signed_scaled::<R>(minus::<R>(values, 4), sub_scales::<R>(block, C))
    },
    bytes: 3 less 4 |block, C| triples::<R, C>(block.add(Q3K::TRIPLES)),
    sub_scale: |block, half| sub_scale_of_half::<R>(block, half),
});

unpack!(Q4K, R {
    scales: |group, block| R::mul(R::halves(group), unsigned_bytes::<R>(block)),
    offsets: |group, block| {
        let mins = unsigned_bytes::<R>(block.add(PANEL));
        R::mul(R::negative(R::halves(group.add(2 * PANEL))), mins)
    },
    eight: |block, C| nibbles::<R>(block.add(Q4K::NIBBLES), C),
    bytes: 4 less 0 |block, C| nibble_pair::<R>(block.add(Q4K::NIBBLES), C),
    nibbles: Q4K::NIBBLES, UNSIGNED,
});

unpack!(Q5K, R {
    scales: |group, block| Q4K::scales::<R>(group, block),
    offsets: |group, block| Q4K::offsets::<R>(group, block),
    eight: |block, C| widen_unsigned::<R>(fives::<R, C>(block, Q5K::NIBBLES, Q5K::BITS)),
    bytes: 5 less 0 |block, C| fives::<R, C>(block, Q5K::NIBBLES, Q5K::BITS),
});

unpack!(Q6K, R {
    scales: |group, _| R::halves(group),
    eight: |block, C| {
        let values = sixes::<R>(block.add(Q6K::NIBBLES), block.add(Q6K::PAIRS), C);
        widen_signed_scaled::<R>(minus::<R>(values, 32), sub_scales::<R>(block, C))
    },
    bytes: 6 less 32 |block, C| sixes::<R>(block.add(Q6K::NIBBLES), block.add(Q6K::PAIRS), C),
    sub_scale: |block, half| sub_scale_of_half::<R>(block, half),
});

unpack!(Iq4Nl, R {
    scales: |_, block| R::halves(block),
    eight: |block, C| {
        let numbers = nibble_pair::<R>(block.add(Iq4Nl::NIBBLES), C);
        widen_signed::<R>(look_up::<R>(&iq4_nl::VALUES, numbers))
    },
    bytes: 8 less 128 |block, C| look_up::<R>(const { &raised(&iq4_nl::VALUES, 128) }, nibble_pair::<R>(block.add(Iq4Nl::NIBBLES), C)),
    nibbles: Iq4Nl::NIBBLES, iq4_nl::VALUES,
});

unpack!(Iq4Xs, R {
    scales: |group, block| R::mul(R::halves(group), signed_bytes::<R>(block)),
    eight: |block, C| {
        let numbers = nibble_pair::<R>(block.add(Iq4Xs::NIBBLES), C);
        widen_signed::<R>(look_up::<R>(&iq4_nl::VALUES, numbers))
    },
    bytes: 8 less 128 |block, C| look_up::<R>(const { &raised(&iq4_nl::VALUES, 128) }, nibble_pair::<R>(block.add(Iq4Xs::NIBBLES), C)),
    nibbles: Iq4Xs::NIBBLES, iq4_nl::VALUES,
});

unpack!(Mxfp4, R {
    scales: |_, block| R::brain_halves(block),
    eight: |block, C| {
        let numbers = nibble_pair::<R>(block.add(Mxfp4::NIBBLES), C);
        widen_signed::<R>(look_up::<R>(&mxfp4::DOUBLED, numbers))
    },
    bytes: 5 less 16 |block, C| look_up::<R>(const { &raised(&mxfp4::DOUBLED, 16) }, nibble_pair::<R>(block.add(Mxfp4::NIBBLES), C)),
    nibbles: Mxfp4::NIBBLES, mxfp4::DOUBLED,
});
