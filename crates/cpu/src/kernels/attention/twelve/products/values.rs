//! Owns the loop that adds values, times their weights, to twelve rows' sums.

use super::super::{OfRows, ROWS};
use crate::kv::TOKENS;
use std::arch::asm;

/// Does something with each row: where its factors are, its two sums, where they belong.
macro_rules! of_each_row {
    ($do:ident, $sums:literal, $two_sums:literal) => {
        concat!(
            $do!(0, "zmm0", "zmm1", "{a}"),
            $do!(4, "zmm2", "zmm3", "{a} + ", $sums, " * {one}"),
            $do!(8, "zmm4", "zmm5", "{a} + ", $two_sums, " * {one}"),
            $do!(12, "zmm6", "zmm7", "{a} + ", $sums, " * {three}"),
            $do!(16, "zmm8", "zmm9", "{b}"),
            $do!(20, "zmm10", "zmm11", "{b} + ", $sums, " * {one}"),
            $do!(24, "zmm12", "zmm13", "{b} + ", $two_sums, " * {one}"),
            $do!(28, "zmm14", "zmm15", "{b} + ", $sums, " * {three}"),
            $do!(32, "zmm16", "zmm17", "{c}"),
            $do!(36, "zmm18", "zmm19", "{c} + ", $sums, " * {one}"),
            $do!(40, "zmm20", "zmm21", "{c} + ", $two_sums, " * {one}"),
            $do!(44, "zmm22", "zmm23", "{c} + ", $sums, " * {three}"),
        )
    };
}

macro_rules! load_sums {
    ($factor:literal, $first:literal, $second:literal, $($at:expr),*) => {
        concat!(
            "vmovups ", $first, ", [", $($at,)* "]\n",
            "vmovups ", $second, ", [", $($at,)* " + 64]\n",
        )
    };
}

macro_rules! store_sums {
    ($factor:literal, $first:literal, $second:literal, $($at:expr),*) => {
        concat!(
            "vmovups [", $($at,)* "], ", $first, "\n",
            "vmovups [", $($at,)* " + 64], ", $second, "\n",
        )
    };
}

/// Sums times a factor, added to what is there times another.
macro_rules! add_sums {
    ($factor:literal, $first:literal, $second:literal, $($at:expr),*) => {
        concat!(
            "vbroadcastss zmm24, dword ptr [{factors} + ", $factor, "]\n",
            "vbroadcastss zmm25, dword ptr [{factors} + 64 + ", $factor, "]\n",
            "vmulps zmm26, zmm24, [", $($at,)* "]\n",
            "vmulps zmm27, zmm24, [", $($at,)* " + 64]\n",
            "vfmadd231ps zmm26, ", $first, ", zmm25\n",
            "vfmadd231ps zmm27, ", $second, ", zmm25\n",
            "vmovups [", $($at,)* "], zmm26\n",
            "vmovups [", $($at,)* " + 64], zmm27\n",
        )
    };
}

macro_rules! shrink_sums {
    ($factor:literal, $first:literal, $second:literal, $($at:expr),*) => {
        concat!(
            "vbroadcastss zmm24, dword ptr [{shrinks} + ",
            $factor,
            "]\n",
            "vmulps ",
            $first,
            ", ",
            $first,
            ", zmm24\n",
            "vmulps ",
            $second,
            ", ",
            $second,
            ", zmm24\n",
        )
    };
}

macro_rules! values {
($kind:ident, $sums:literal, $two_sums:literal) => {
/// Adds to 32 columns of twelve rows of sums, `dim` values apart, what blocks of values, `[32][dim]`, give with their weights. Before a
/// block is added, a row's sums are multiplied with its shrink. Where the columns of each block start is listed, and after them what
/// is read next. With `factors` the sums start from 0 instead, and what is there already, times each row's first factor, grows by them
/// times its second.
///
/// # Safety
/// All of it exists (`factors` if not null), 16 shrinks a block, and a block at least; nobody else touches the sums; the processor has AVX-512.
#[inline]
#[target_feature(enable = "avx512f,avx512vl")]
pub unsafe fn values(
    values: *const *const u8,
    dim: usize,
    weights: *const [[f32; TOKENS]; ROWS],
    shrinks: *const [f32; 16],
    blocks: usize,
    sums: *mut f32,
    factors: *const [OfRows; 2],
) {
    // SAFETY: the caller's promise.
    unsafe {
        asm_of_all_vectors!(
            "test {factors}, {factors}",
            "jz 4f",
            no_sums!(),
            "jmp 5f",
            "4:",
            of_each_row!(load_sums, $sums, $two_sums),
            "2:",
            of_each_row!(shrink_sums, $sums, $two_sums),
            "5:",
            "mov {from}, [{values}]",
            "lea {later}, [{from} + 8 * {one}]",
            "mov {steps:e}, 8",
            "3:",
            step_asking!($kind, "{from}", "{later}", "{weights}" "{weights} + 512" "{weights} + 1024", "128", "256", "384", "0"),
            step_asking!($kind, "{from} + {one}", "{later} + {one}", "{weights}" "{weights} + 512" "{weights} + 1024", "128", "256", "384", "4"),
            step_asking!($kind, "{from} + 2 * {one}", "{later} + 2 * {one}", "{weights}" "{weights} + 512" "{weights} + 1024", "128", "256", "384", "8"),
            step_asking!($kind, "{from} + {three}", "{later} + {three}", "{weights}" "{weights} + 512" "{weights} + 1024", "128", "256", "384", "12"),
            "lea {from}, [{from} + 4 * {one}]",
            "lea {later}, [{later} + 4 * {one}]",
            "add {weights}, 16",
            "cmp {steps:e}, 3",
            "cmove {later}, [{values} + 8]",
            "dec {steps:e}",
            "jnz 3b",
            "add {values}, 8",
            "add {weights}, 1408",
            "add {shrinks}, 64",
            "dec {blocks}",
            "jnz 2b",
            "test {factors}, {factors}",
            "jz 6f",
            of_each_row!(add_sums, $sums, $two_sums),
            "jmp 7f",
            "6:",
            of_each_row!(store_sums, $sums, $two_sums),
            "7:",
            values = inout(reg) values => _,
            from = out(reg) _,
            later = out(reg) _,
            weights = inout(reg) weights => _,
            shrinks = inout(reg) shrinks => _,
            steps = out(reg) _,
            blocks = inout(reg) blocks => _,
            one = in(reg) 4 / $sums * dim,
            three = in(reg) 12 / $sums * dim,
            a = in(reg) sums,
            b = in(reg) sums.add(4 * dim),
            c = in(reg) sums.add(8 * dim),
            factors = in(reg) factors,
        );
    }
}
};
}

pub mod singles {
    use super::*;

    values!(singles, 1, 2);
}

pub mod halves {
    use super::*;

    values!(halves, 2, 4);
}
