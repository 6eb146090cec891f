//! Owns the loop that adds values, times their weights, to twelve rows' sums.

use super::super::{OfRows, ROWS};
use crate::kv::TOKENS;
use std::arch::asm;

/// A row's two sums times a factor, added to what is there times another.
macro_rules! total {
    ($before:literal, $now:literal, $first:literal, $second:literal, $($to:expr),*) => {
        concat!(
            "vbroadcastss zmm24, dword ptr [{factors} + ", $before, "]\n",
            "vbroadcastss zmm25, dword ptr [{factors} + ", $now, "]\n",
            "vmulps zmm26, zmm24, [", $($to,)* "]\n",
            "vmulps zmm27, zmm24, [", $($to,)* " + 64]\n",
            "vfmadd231ps zmm26, ", $first, ", zmm25\n",
            "vfmadd231ps zmm27, ", $second, ", zmm25\n",
            "vmovups [", $($to,)* "], zmm26\n",
            "vmovups [", $($to,)* " + 64], zmm27",
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
            "jz 7f",
            "vpxord zmm0, zmm0, zmm0",
            "vpxord zmm1, zmm1, zmm1",
            "vpxord zmm2, zmm2, zmm2",
            "vpxord zmm3, zmm3, zmm3",
            "vpxord zmm4, zmm4, zmm4",
            "vpxord zmm5, zmm5, zmm5",
            "vpxord zmm6, zmm6, zmm6",
            "vpxord zmm7, zmm7, zmm7",
            "vpxord zmm8, zmm8, zmm8",
            "vpxord zmm9, zmm9, zmm9",
            "vpxord zmm10, zmm10, zmm10",
            "vpxord zmm11, zmm11, zmm11",
            "vpxord zmm12, zmm12, zmm12",
            "vpxord zmm13, zmm13, zmm13",
            "vpxord zmm14, zmm14, zmm14",
            "vpxord zmm15, zmm15, zmm15",
            "vpxord zmm16, zmm16, zmm16",
            "vpxord zmm17, zmm17, zmm17",
            "vpxord zmm18, zmm18, zmm18",
            "vpxord zmm19, zmm19, zmm19",
            "vpxord zmm20, zmm20, zmm20",
            "vpxord zmm21, zmm21, zmm21",
            "vpxord zmm22, zmm22, zmm22",
            "vpxord zmm23, zmm23, zmm23",
            "jmp 4f",
            "7:",
            "vmovups zmm0, [{a}]",
            "vmovups zmm1, [{a} + 64]",
            concat!("vmovups zmm2, [{a} + ", $sums, " * {one}]"),
            concat!("vmovups zmm3, [{a} + ", $sums, " * {one} + 64]"),
            concat!("vmovups zmm4, [{a} + ", $two_sums, " * {one}]"),
            concat!("vmovups zmm5, [{a} + ", $two_sums, " * {one} + 64]"),
            concat!("vmovups zmm6, [{a} + ", $sums, " * {three}]"),
            concat!("vmovups zmm7, [{a} + ", $sums, " * {three} + 64]"),
            "vmovups zmm8, [{b}]",
            "vmovups zmm9, [{b} + 64]",
            concat!("vmovups zmm10, [{b} + ", $sums, " * {one}]"),
            concat!("vmovups zmm11, [{b} + ", $sums, " * {one} + 64]"),
            concat!("vmovups zmm12, [{b} + ", $two_sums, " * {one}]"),
            concat!("vmovups zmm13, [{b} + ", $two_sums, " * {one} + 64]"),
            concat!("vmovups zmm14, [{b} + ", $sums, " * {three}]"),
            concat!("vmovups zmm15, [{b} + ", $sums, " * {three} + 64]"),
            "vmovups zmm16, [{c}]",
            "vmovups zmm17, [{c} + 64]",
            concat!("vmovups zmm18, [{c} + ", $sums, " * {one}]"),
            concat!("vmovups zmm19, [{c} + ", $sums, " * {one} + 64]"),
            concat!("vmovups zmm20, [{c} + ", $two_sums, " * {one}]"),
            concat!("vmovups zmm21, [{c} + ", $two_sums, " * {one} + 64]"),
            concat!("vmovups zmm22, [{c} + ", $sums, " * {three}]"),
            concat!("vmovups zmm23, [{c} + ", $sums, " * {three} + 64]"),
            "2:",
            "vbroadcastss zmm24, dword ptr [{shrinks} + 0]",
            "vmulps zmm0, zmm0, zmm24",
            "vmulps zmm1, zmm1, zmm24",
            "vbroadcastss zmm25, dword ptr [{shrinks} + 4]",
            "vmulps zmm2, zmm2, zmm25",
            "vmulps zmm3, zmm3, zmm25",
            "vbroadcastss zmm26, dword ptr [{shrinks} + 8]",
            "vmulps zmm4, zmm4, zmm26",
            "vmulps zmm5, zmm5, zmm26",
            "vbroadcastss zmm27, dword ptr [{shrinks} + 12]",
            "vmulps zmm6, zmm6, zmm27",
            "vmulps zmm7, zmm7, zmm27",
            "vbroadcastss zmm28, dword ptr [{shrinks} + 16]",
            "vmulps zmm8, zmm8, zmm28",
            "vmulps zmm9, zmm9, zmm28",
            "vbroadcastss zmm29, dword ptr [{shrinks} + 20]",
            "vmulps zmm10, zmm10, zmm29",
            "vmulps zmm11, zmm11, zmm29",
            "vbroadcastss zmm30, dword ptr [{shrinks} + 24]",
            "vmulps zmm12, zmm12, zmm30",
            "vmulps zmm13, zmm13, zmm30",
            "vbroadcastss zmm31, dword ptr [{shrinks} + 28]",
            "vmulps zmm14, zmm14, zmm31",
            "vmulps zmm15, zmm15, zmm31",
            "vbroadcastss zmm24, dword ptr [{shrinks} + 32]",
            "vmulps zmm16, zmm16, zmm24",
            "vmulps zmm17, zmm17, zmm24",
            "vbroadcastss zmm25, dword ptr [{shrinks} + 36]",
            "vmulps zmm18, zmm18, zmm25",
            "vmulps zmm19, zmm19, zmm25",
            "vbroadcastss zmm26, dword ptr [{shrinks} + 40]",
            "vmulps zmm20, zmm20, zmm26",
            "vmulps zmm21, zmm21, zmm26",
            "vbroadcastss zmm27, dword ptr [{shrinks} + 44]",
            "vmulps zmm22, zmm22, zmm27",
            "vmulps zmm23, zmm23, zmm27",
            "4:",
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
            "jz 5f",
            total!(0, 64, "zmm0", "zmm1", "{a}"),
            total!(4, 68, "zmm2", "zmm3", "{a} + ", $sums, " * {one}"),
            total!(8, 72, "zmm4", "zmm5", "{a} + ", $two_sums, " * {one}"),
            total!(12, 76, "zmm6", "zmm7", "{a} + ", $sums, " * {three}"),
            total!(16, 80, "zmm8", "zmm9", "{b}"),
            total!(20, 84, "zmm10", "zmm11", "{b} + ", $sums, " * {one}"),
            total!(24, 88, "zmm12", "zmm13", "{b} + ", $two_sums, " * {one}"),
            total!(28, 92, "zmm14", "zmm15", "{b} + ", $sums, " * {three}"),
            total!(32, 96, "zmm16", "zmm17", "{c}"),
            total!(36, 100, "zmm18", "zmm19", "{c} + ", $sums, " * {one}"),
            total!(40, 104, "zmm20", "zmm21", "{c} + ", $two_sums, " * {one}"),
            total!(44, 108, "zmm22", "zmm23", "{c} + ", $sums, " * {three}"),
            "jmp 6f",
            "5:",
            "vmovups [{a}], zmm0",
            "vmovups [{a} + 64], zmm1",
            concat!("vmovups [{a} + ", $sums, " * {one}], zmm2"),
            concat!("vmovups [{a} + ", $sums, " * {one} + 64], zmm3"),
            concat!("vmovups [{a} + ", $two_sums, " * {one}], zmm4"),
            concat!("vmovups [{a} + ", $two_sums, " * {one} + 64], zmm5"),
            concat!("vmovups [{a} + ", $sums, " * {three}], zmm6"),
            concat!("vmovups [{a} + ", $sums, " * {three} + 64], zmm7"),
            "vmovups [{b}], zmm8",
            "vmovups [{b} + 64], zmm9",
            concat!("vmovups [{b} + ", $sums, " * {one}], zmm10"),
            concat!("vmovups [{b} + ", $sums, " * {one} + 64], zmm11"),
            concat!("vmovups [{b} + ", $two_sums, " * {one}], zmm12"),
            concat!("vmovups [{b} + ", $two_sums, " * {one} + 64], zmm13"),
            concat!("vmovups [{b} + ", $sums, " * {three}], zmm14"),
            concat!("vmovups [{b} + ", $sums, " * {three} + 64], zmm15"),
            "vmovups [{c}], zmm16",
            "vmovups [{c} + 64], zmm17",
            concat!("vmovups [{c} + ", $sums, " * {one}], zmm18"),
            concat!("vmovups [{c} + ", $sums, " * {one} + 64], zmm19"),
            concat!("vmovups [{c} + ", $two_sums, " * {one}], zmm20"),
            concat!("vmovups [{c} + ", $two_sums, " * {one} + 64], zmm21"),
            concat!("vmovups [{c} + ", $sums, " * {three}], zmm22"),
            concat!("vmovups [{c} + ", $sums, " * {three} + 64], zmm23"),
            "6:",
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
