//! Owns the two loops of multiply-adds of twelve rows, in assembly: with intrinsics the compiler keeps constants of the exponentials in
//! registers and sums in memory.

use super::{OfRows, ROWS};
use crate::kernels::exp::{LN2_HIGH, LN2_LOW, LOG2_E, LOWEST, POLYNOMIAL};
use crate::kv::TOKENS;
use std::arch::asm;

/// What an exponential is made of, in the order of its steps; then what is below every score.
static CONSTANTS: [f32; 12] = [
    LOG2_E,
    LOWEST,
    -LN2_HIGH,
    -LN2_LOW,
    POLYNOMIAL[0],
    POLYNOMIAL[1],
    POLYNOMIAL[2],
    POLYNOMIAL[3],
    POLYNOMIAL[4],
    POLYNOMIAL[5],
    1.0,
    f32::NEG_INFINITY,
];

/// A factor for all lanes, times the two registers of elements, added to a row's two sums, and what is done beside it.
macro_rules! row {
    ($factor:expr, $first:literal, $second:literal, $beside:expr) => {
        concat!(
            "vbroadcastss zmm26, dword ptr [",
            $factor,
            "]\n",
            "vfmadd231ps ",
            $first,
            ", zmm24, zmm26\n",
            "vfmadd231ps ",
            $second,
            ", zmm25, zmm26\n",
            $beside,
            "\n",
        )
    };
}

/// A step's two registers of elements, singles or halves.
macro_rules! load {
    (singles, $elements:expr) => {
        concat!(
            "vmovups zmm24, [",
            $elements,
            "]\nvmovups zmm25, [",
            $elements,
            " + 64]\n"
        )
    };
    (halves, $elements:expr) => {
        concat!(
            "vcvtph2ps zmm24, ymmword ptr [",
            $elements,
            "]\nvcvtph2ps zmm25, ymmword ptr [",
            $elements,
            " + 32]\n"
        )
    };
}

/// Asks for the lines of cache that a step's elements fill.
macro_rules! ask {
    (singles, $elements:expr) => {
        concat!(
            "prefetcht0 [",
            $elements,
            "]\nprefetcht0 [",
            $elements,
            " + 64]\n"
        )
    };
    (halves, $elements:expr) => {
        concat!("prefetcht0 [", $elements, "]\n")
    };
}

/// Bytes of an element.
macro_rules! bytes {
    (singles) => {
        "4"
    };
    (halves) => {
        "2"
    };
}

/// Where a step's elements are, 32 a step.
macro_rules! key {
    ($kind:ident, $from:literal, $step:literal) => {
        concat!($from, " + 32 * ", $step, " * ", bytes!($kind))
    };
}

/// One step of all rows: where its elements are, each row's factor, four rows from each of three places, `$one`, `$two` and `$three`
/// on, and what is done beside each row.
macro_rules! step {
    (
        $kind:ident, $elements:expr, $a:literal $b:literal $c:literal, $one:literal, $two:literal, $three:literal, $offset:literal;
        $beside0:expr, $beside1:expr, $beside2:expr, $beside3:expr, $beside4:expr, $beside5:expr,
        $beside6:expr, $beside7:expr, $beside8:expr, $beside9:expr, $beside10:expr, $beside11:expr
    ) => {
        concat!(
            load!($kind, $elements),
            row!(concat!($a, " + ", $offset), "zmm0", "zmm1", $beside0),
            row!(
                concat!($a, " + ", $one, " + ", $offset),
                "zmm2",
                "zmm3",
                $beside1
            ),
            row!(
                concat!($a, " + ", $two, " + ", $offset),
                "zmm4",
                "zmm5",
                $beside2
            ),
            row!(
                concat!($a, " + ", $three, " + ", $offset),
                "zmm6",
                "zmm7",
                $beside3
            ),
            row!(concat!($b, " + ", $offset), "zmm8", "zmm9", $beside4),
            row!(
                concat!($b, " + ", $one, " + ", $offset),
                "zmm10",
                "zmm11",
                $beside5
            ),
            row!(
                concat!($b, " + ", $two, " + ", $offset),
                "zmm12",
                "zmm13",
                $beside6
            ),
            row!(
                concat!($b, " + ", $three, " + ", $offset),
                "zmm14",
                "zmm15",
                $beside7
            ),
            row!(concat!($c, " + ", $offset), "zmm16", "zmm17", $beside8),
            row!(
                concat!($c, " + ", $one, " + ", $offset),
                "zmm18",
                "zmm19",
                $beside9
            ),
            row!(
                concat!($c, " + ", $two, " + ", $offset),
                "zmm20",
                "zmm21",
                $beside10
            ),
            row!(
                concat!($c, " + ", $three, " + ", $offset),
                "zmm22",
                "zmm23",
                $beside11
            ),
        )
    };
}

/// A step beside which elements that are needed later are asked for.
macro_rules! step_asking {
    ($kind:ident, $elements:expr, $later:expr, $a:literal $b:literal $c:literal, $one:literal, $two:literal, $three:literal, $offset:literal) => {
        step!(
            $kind, $elements, $a $b $c, $one, $two, $three, $offset;
            ask!($kind, $later), "", "", "", "", "", "", "", "", "", "", ""
        )
    };
}

/// Twelve rows' sums at 0.
macro_rules! no_sums {
    () => {
        concat!(
            "vpxord zmm0, zmm0, zmm0\n",
            "vpxord zmm1, zmm1, zmm1\n",
            "vpxord zmm2, zmm2, zmm2\n",
            "vpxord zmm3, zmm3, zmm3\n",
            "vpxord zmm4, zmm4, zmm4\n",
            "vpxord zmm5, zmm5, zmm5\n",
            "vpxord zmm6, zmm6, zmm6\n",
            "vpxord zmm7, zmm7, zmm7\n",
            "vpxord zmm8, zmm8, zmm8\n",
            "vpxord zmm9, zmm9, zmm9\n",
            "vpxord zmm10, zmm10, zmm10\n",
            "vpxord zmm11, zmm11, zmm11\n",
            "vpxord zmm12, zmm12, zmm12\n",
            "vpxord zmm13, zmm13, zmm13\n",
            "vpxord zmm14, zmm14, zmm14\n",
            "vpxord zmm15, zmm15, zmm15\n",
            "vpxord zmm16, zmm16, zmm16\n",
            "vpxord zmm17, zmm17, zmm17\n",
            "vpxord zmm18, zmm18, zmm18\n",
            "vpxord zmm19, zmm19, zmm19\n",
            "vpxord zmm20, zmm20, zmm20\n",
            "vpxord zmm21, zmm21, zmm21\n",
            "vpxord zmm22, zmm22, zmm22\n",
            "vpxord zmm23, zmm23, zmm23\n",
        )
    };
}

/// Declares that all vector registers are written.
macro_rules! asm_of_all_vectors {
    ($($argument:tt)*) => {
        asm!(
            $($argument)*
            out("zmm0") _, out("zmm1") _, out("zmm2") _, out("zmm3") _,
            out("zmm4") _, out("zmm5") _, out("zmm6") _, out("zmm7") _,
            out("zmm8") _, out("zmm9") _, out("zmm10") _, out("zmm11") _,
            out("zmm12") _, out("zmm13") _, out("zmm14") _, out("zmm15") _,
            out("zmm16") _, out("zmm17") _, out("zmm18") _, out("zmm19") _,
            out("zmm20") _, out("zmm21") _, out("zmm22") _, out("zmm23") _,
            out("zmm24") _, out("zmm25") _, out("zmm26") _, out("zmm27") _,
            out("zmm28") _, out("zmm29") _, out("zmm30") _, out("zmm31") _,
            options(nostack),
        )
    };
}

/// What [`scores`] computes meanwhile, if there are rows: the largest scores with these, of those with all before, which lie one
/// place before `largest`; and exponentials, in place.
pub struct Beside {
    pub scores: *mut [f32; TOKENS],
    pub largest: *mut OfRows,
    pub eighths: *mut [f32; 8],
    pub rows: usize,
}

/// A row's larger scores of two halves; NaN is less than all. First the one half.
macro_rules! one_half {
    ($row:literal, $to:literal) => {
        concat!(
            "vmovups ",
            $to,
            ", [{row} + 128 * ",
            $row,
            "]\nvmaxps ",
            $to,
            ", ",
            $to,
            ", dword ptr [rip + {constants} + 44]{{1to16}}"
        )
    };
}

/// Then the other.
macro_rules! other_half {
    ($row:literal, $to:literal, $temporary:literal) => {
        concat!(
            "vmovups ",
            $temporary,
            ", [{row} + 128 * ",
            $row,
            " + 64]\nvmaxps ",
            $to,
            ", ",
            $temporary,
            ", ",
            $to
        )
    };
}

/// Two steps beside which four rows' largest scores are found, one of each in every fourth of `zmm27`, and what is done then.
macro_rules! steps_of_four {
    (
        $kind:ident, $step:literal $offset:literal, $next:literal $next_offset:literal, $a:literal $b:literal $c:literal $d:literal;
        $then0:expr, $then1:expr, $then2:expr
    ) => {
        concat!(
            step!(
                $kind, key!($kind, "{keys}", $step), "{a}" "{b}" "{c}", "{one}", "2 * {one}", "{three}", $offset;
                one_half!($a, "zmm27"),
                other_half!($a, "zmm27", "zmm28"),
                one_half!($b, "zmm28"),
                other_half!($b, "zmm28", "zmm29"),
                "vunpcklps zmm29, zmm27, zmm28",
                "vunpckhps zmm30, zmm27, zmm28",
                "vmaxps zmm27, zmm29, zmm30",
                one_half!($c, "zmm28"),
                other_half!($c, "zmm28", "zmm29"),
                one_half!($d, "zmm29"),
                other_half!($d, "zmm29", "zmm30"),
                ""
            ),
            step!(
                $kind, key!($kind, "{keys}", $next), "{a}" "{b}" "{c}", "{one}", "2 * {one}", "{three}", $next_offset;
                "vunpcklps zmm30, zmm28, zmm29",
                "vunpckhps zmm28, zmm28, zmm29",
                "vmaxps zmm28, zmm30, zmm28",
                "",
                "vunpcklpd zmm29, zmm27, zmm28",
                "vunpckhpd zmm30, zmm27, zmm28",
                "vmaxps zmm27, zmm29, zmm30",
                "",
                $then0,
                $then1,
                "",
                $then2
            ),
        )
    };
}

/// Four steps on.
macro_rules! advance {
    ($kind:ident) => {
        concat!(
            "add {keys}, 4 * 32 * ",
            bytes!($kind),
            "\nadd {a}, 16\nadd {b}, 16\nadd {c}, 16\n"
        )
    };
}

macro_rules! scores {
($kind:ident) => {
/// The scores of twelve rows of queries, `dim` values each, with a block of keys, `[dim][32]`. Beside it goes as much of `beside` as
/// there is time for: the number of rows that are left is the result. Then what is read `next` is asked for.
///
/// # Safety
/// All of it exists, nobody else touches what is written, `dim` is a multiple of four and twelve at least; the processor has AVX-512.
#[inline]
#[target_feature(enable = "avx512f,avx512vl")]
pub unsafe fn scores(
    queries: *const f32,
    dim: usize,
    keys: *const u8,
    next: *const u8,
    beside: Beside,
    scores: *mut [[f32; TOKENS]; ROWS],
) -> usize {
    let left;
    // SAFETY: the caller's promise.
    unsafe {
        asm_of_all_vectors!(
            no_sums!(),
            "test {left}, {left}",
            "jz 3f",
            steps_of_four!($kind, "0" "0", "1" "4", "0" "1" "2" "3"; "vmovaps zmm31, zmm27", "", ""),
            steps_of_four!(
                $kind, "2" "8", "3" "12", "4" "5" "6" "7";
                "vshuff32x4 zmm28, zmm31, zmm27, 0x88", "vshuff32x4 zmm29, zmm31, zmm27, 0xdd", "vmaxps zmm31, zmm28, zmm29"
            ),
            advance!($kind),
            steps_of_four!(
                $kind, "0" "0", "1" "4", "8" "9" "10" "11";
                "vshuff32x4 zmm28, zmm27, zmm27, 0x88", "vshuff32x4 zmm29, zmm27, zmm27, 0xdd", "vmaxps zmm27, zmm28, zmm29"
            ),
            step!(
                $kind, key!($kind, "{keys}", "2"), "{a}" "{b}" "{c}", "{one}", "2 * {one}", "{three}", "8";
                "vshuff32x4 zmm28, zmm31, zmm27, 0x88", "vshuff32x4 zmm29, zmm31, zmm27, 0xdd", "", "vmaxps zmm28, zmm28, zmm29",
                "", "", "vmaxps zmm28, zmm28, [{largest} - 64]", "", "", "vmovups [{largest}], zmm28", "", ""
            ),
            step!(
                $kind, key!($kind, "{keys}", "3"), "{a}" "{b}" "{c}", "{one}", "2 * {one}", "{three}", "12";
                "", "", "", "", "", "", "", "", "", "", "", ""
            ),
            advance!($kind),
            "sub {steps}, 2",
            "2:",
            // One row's exponentials, of 16 and 16: scores less the largest, times log2 e, rounded; which of them are not too low.
            step!(
                $kind, key!($kind, "{keys}", "0"), "{a}" "{b}" "{c}", "{one}", "2 * {one}", "{three}", "0";
                "vbroadcastss zmm31, dword ptr [{largest}]\nvmovups zmm27, [{row}]",
                "vmovups zmm28, [{row} + 64]",
                "vsubps zmm27, zmm27, zmm31",
                "vsubps zmm28, zmm28, zmm31",
                "vbroadcastss zmm31, dword ptr [rip + {constants}]",
                "vmulps zmm29, zmm27, zmm31",
                "vmulps zmm30, zmm28, zmm31",
                "vbroadcastss zmm31, dword ptr [rip + {constants} + 4]",
                "vcmpps k1, zmm27, zmm31, 5\nvcmpps k2, zmm28, zmm31, 5",
                "vrndscaleps zmm29, zmm29, 8",
                "vrndscaleps zmm30, zmm30, 8",
                "vbroadcastss zmm31, dword ptr [rip + {constants} + 8]"
            ),
            // What is left of them; the rounded ones wait in the row's place.
            step!(
                $kind, key!($kind, "{keys}", "1"), "{a}" "{b}" "{c}", "{one}", "2 * {one}", "{three}", "4";
                "vfmadd231ps zmm27, zmm29, zmm31",
                "vfmadd231ps zmm28, zmm30, zmm31",
                "vbroadcastss zmm31, dword ptr [rip + {constants} + 12]",
                "vfmadd231ps zmm27, zmm29, zmm31",
                "vfmadd231ps zmm28, zmm30, zmm31\nvmovups [{row}], zmm29",
                "vmovups [{row} + 64], zmm30",
                "vbroadcastss zmm29, dword ptr [rip + {constants} + 16]",
                "vbroadcastss zmm30, dword ptr [rip + {constants} + 16]",
                "vbroadcastss zmm31, dword ptr [rip + {constants} + 20]",
                "vfmadd213ps zmm29, zmm27, zmm31",
                "vfmadd213ps zmm30, zmm28, zmm31",
                "vbroadcastss zmm31, dword ptr [rip + {constants} + 24]"
            ),
            // Its polynomial.
            step!(
                $kind, key!($kind, "{keys}", "2"), "{a}" "{b}" "{c}", "{one}", "2 * {one}", "{three}", "8";
                "vfmadd213ps zmm29, zmm27, zmm31\nvfmadd213ps zmm30, zmm28, zmm31",
                "vbroadcastss zmm31, dword ptr [rip + {constants} + 28]",
                "vfmadd213ps zmm29, zmm27, zmm31",
                "vfmadd213ps zmm30, zmm28, zmm31",
                "vbroadcastss zmm31, dword ptr [rip + {constants} + 32]",
                "vfmadd213ps zmm29, zmm27, zmm31",
                "vfmadd213ps zmm30, zmm28, zmm31",
                "vbroadcastss zmm31, dword ptr [rip + {constants} + 36]",
                "vfmadd213ps zmm29, zmm27, zmm31\nvfmadd213ps zmm30, zmm28, zmm31",
                "vmulps zmm31, zmm27, zmm27",
                "vaddps zmm27, zmm27, dword ptr [rip + {constants} + 40]{{1to16}}",
                "vfmadd213ps zmm29, zmm31, zmm27"
            ),
            // Raised by the rounded ones. Every eighth of a row, first to last.
            step!(
                $kind, key!($kind, "{keys}", "3"), "{a}" "{b}" "{c}", "{one}", "2 * {one}", "{three}", "12";
                "vmulps zmm31, zmm28, zmm28",
                "vaddps zmm28, zmm28, dword ptr [rip + {constants} + 40]{{1to16}}",
                "vfmadd213ps zmm30, zmm31, zmm28",
                "vscalefps zmm29{{k1}}{{z}}, zmm29, [{row}]",
                "vscalefps zmm30{{k2}}{{z}}, zmm30, [{row} + 64]\nvmovups [{row}], zmm29",
                "vmovups [{row} + 64], zmm30",
                "vextractf64x4 ymm27, zmm29, 1",
                "vaddps ymm27, ymm29, ymm27",
                "vaddps ymm27, ymm27, ymm30",
                "vextractf64x4 ymm28, zmm30, 1",
                "vaddps ymm27, ymm27, ymm28",
                "vmovups [{eighths}], ymm27"
            ),
            "add {row}, 128",
            "add {largest}, 4",
            "add {eighths}, 32",
            advance!($kind),
            "dec {steps}",
            "dec {left}",
            "jz 3f",
            "test {steps}, {steps}",
            "jnz 2b",
            "3:",
            "test {steps}, {steps}",
            "jz 5f",
            "4:",
            step_asking!($kind, key!($kind, "{keys}", "0"), key!($kind, "{next}", "0"), "{a}" "{b}" "{c}", "{one}", "2 * {one}", "{three}", "0"),
            step_asking!($kind, key!($kind, "{keys}", "1"), key!($kind, "{next}", "1"), "{a}" "{b}" "{c}", "{one}", "2 * {one}", "{three}", "4"),
            step_asking!($kind, key!($kind, "{keys}", "2"), key!($kind, "{next}", "2"), "{a}" "{b}" "{c}", "{one}", "2 * {one}", "{three}", "8"),
            step_asking!($kind, key!($kind, "{keys}", "3"), key!($kind, "{next}", "3"), "{a}" "{b}" "{c}", "{one}", "2 * {one}", "{three}", "12"),
            advance!($kind),
            concat!("add {next}, 4 * 32 * ", bytes!($kind)),
            "dec {steps}",
            "jnz 4b",
            "5:",
            "vmovups [{scores} + 0], zmm0",
            "vmovups [{scores} + 64], zmm1",
            "vmovups [{scores} + 128], zmm2",
            "vmovups [{scores} + 192], zmm3",
            "vmovups [{scores} + 256], zmm4",
            "vmovups [{scores} + 320], zmm5",
            "vmovups [{scores} + 384], zmm6",
            "vmovups [{scores} + 448], zmm7",
            "vmovups [{scores} + 512], zmm8",
            "vmovups [{scores} + 576], zmm9",
            "vmovups [{scores} + 640], zmm10",
            "vmovups [{scores} + 704], zmm11",
            "vmovups [{scores} + 768], zmm12",
            "vmovups [{scores} + 832], zmm13",
            "vmovups [{scores} + 896], zmm14",
            "vmovups [{scores} + 960], zmm15",
            "vmovups [{scores} + 1024], zmm16",
            "vmovups [{scores} + 1088], zmm17",
            "vmovups [{scores} + 1152], zmm18",
            "vmovups [{scores} + 1216], zmm19",
            "vmovups [{scores} + 1280], zmm20",
            "vmovups [{scores} + 1344], zmm21",
            "vmovups [{scores} + 1408], zmm22",
            "vmovups [{scores} + 1472], zmm23",
            keys = inout(reg) keys => _,
            next = inout(reg) next => _,
            a = inout(reg) queries => _,
            b = inout(reg) queries.add(4 * dim) => _,
            c = inout(reg) queries.add(8 * dim) => _,
            one = in(reg) 4 * dim,
            three = in(reg) 12 * dim,
            steps = inout(reg) dim / 4 => _,
            left = inout(reg) beside.rows => left,
            row = inout(reg) beside.scores => _,
            largest = inout(reg) beside.largest => _,
            eighths = inout(reg) beside.eighths => _,
            constants = sym CONSTANTS,
            scores = in(reg) scores,
            out("k1") _,
            out("k2") _,
        );
    }
    left
}
};
}

mod values;

pub mod singles {
    use super::*;

    pub use super::values::singles::values;
    scores!(singles);
}

/// Halves are widened by units that do not multiply, where those can: it takes no time.
pub mod halves {
    use super::*;

    pub use super::values::halves::values;
    scores!(halves);
}
