//! Owns f32 side by side: what kernels that are written once for every instruction set compute with.
//!
//! Every operation is the IEEE one, lane by lane, so all implementations give the same bits.

#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "aarch64")]
mod neon;
#[cfg(target_arch = "x86_64")]
mod x86;

#[cfg(target_arch = "x86_64")]
pub use avx512::Sixteen;
#[cfg(target_arch = "x86_64")]
pub(crate) use avx512::{across_four, across_fours};
#[cfg(target_arch = "aarch64")]
pub use neon::{Neon, widen_halves};
#[cfg(target_arch = "x86_64")]
pub use x86::{Avx2, Avx512};

use crate::kernels::order;

/// f32 side by side, [`WIDTH`](Floats::WIDTH) of them.
///
/// Kernels use neither closures nor iterator adapters around them: those are compiled without the instructions and may
/// stay calls. The operations are safe to write but may only run where the processor has the instructions: `for_each_isa!` makes
/// the one place where an implementation is chosen, after the processor was asked.
pub trait Floats: Copy {
    const WIDTH: usize;

    fn splat(value: f32) -> Self;

    /// # Safety
    /// So many values can be read at `p`.
    unsafe fn load(p: *const f32) -> Self;

    /// # Safety
    /// So many halves can be read at `p`.
    unsafe fn load_halves(p: *const u16) -> Self;

    /// # Safety
    /// So many values can be written at `p`.
    unsafe fn store(self, p: *mut f32);

    fn add(self, other: Self) -> Self;
    fn sub(self, other: Self) -> Self;
    fn mul(self, other: Self) -> Self;
    fn div(self, other: Self) -> Self;

    /// `self * b + c`, rounded once.
    fn mul_add(self, b: Self, c: Self) -> Self;

    /// `self` where it is larger, else `other`; so `other` where one of them is NaN.
    fn larger(self, other: Self) -> Self;

    /// `self` where it is smaller, else `other`; so `other` where one of them is NaN.
    fn smaller(self, other: Self) -> Self;

    /// To the nearest whole number, ties to even.
    fn round(self) -> Self;

    /// `self * 2^n` where `n` is a whole number from -126 to 127, and anything where it is not.
    fn times_power_of_two(self, n: Self) -> Self;

    /// 0 where `x` is below `limit`.
    fn zero_where_below(self, x: Self, limit: f32) -> Self;
}

/// Eight f32.
pub trait Lanes: Floats {
    /// How many of them the processor has registers for.
    const REGISTERS: usize;

    /// The same operations on as many f32 as the widest registers hold: eight or sixteen.
    type Wide: Floats;

    /// The bits of the largest magnitude of 32 values, where infinities and NaN are the largest.
    fn largest_magnitude(values: [Self; 4]) -> u32;

    /// Writes 32 whole numbers of 15 bits in the `order` of a block of activations, and gives the sums of both halves.
    ///
    /// # Safety
    /// There are 32 integers at `p`, and nobody else touches them.
    unsafe fn store_integers(values: [Self; 4], p: *mut i16) -> [i32; 2];

    /// Asks for the cache line at `p`, which may be anywhere, to be brought to the second-level cache: it has room for more
    /// requests under way than the first, and 14 cycles from there are nothing.
    #[inline(always)]
    fn prefetch(_p: *const u8) {}

    /// Adds `steps` over halves to four registers each of three rows, as [`Lanes::mul_add`] does one by one, where that is
    /// [said better](Lanes::ADDS_THREE_ROWS) than the compiler does.
    ///
    /// # Safety
    /// There are three rows of sums, and in every step three factors and 32 halves.
    #[inline(always)]
    unsafe fn add_three_rows(_sums: *mut [Self; 4], _steps: Steps) {
        unreachable!("only called where it is said to be there");
    }

    /// Whether [`Lanes::add_three_rows`] is there.
    const ADDS_THREE_ROWS: bool = false;

    /// Adds `steps` to 32 sums each of `R` rows, `row` values apart, that start as zeros or as so much of what they are, with
    /// registers [twice as wide](Lanes::IS_WIDE). `HALVES`: elements are halves. `ASKS`: for what is next.
    ///
    /// # Safety
    /// There are `R` rows of sums, and in every step as many factors and 32 elements.
    #[inline(always)]
    unsafe fn add_wide<const R: usize, const HALVES: bool, const ASKS: bool>(
        _sums: *mut f32,
        _row: usize,
        _start: Option<[f32; R]>,
        _steps: Steps,
    ) {
        unreachable!("only called where it is said to be there");
    }

    /// Whether [`Lanes::add_wide`] is there, with 32 registers.
    const IS_WIDE: bool = false;

    /// All lanes.
    #[inline(always)]
    fn to_array(self) -> [f32; 8] {
        let mut values = [0.0; 8];
        // SAFETY: room for eight.
        unsafe { self.store(values.as_mut_ptr()) };
        values
    }

    /// The sum of all lanes in the order that halving a register gives.
    #[inline(always)]
    fn sum(self) -> f32 {
        let s = self.to_array();
        ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]))
    }

    /// The [sums](Lanes::sum) of eight registers' lanes.
    #[inline(always)]
    fn sum_of_each(all: [Self; 8]) -> Self {
        let mut sums = [0.0; 8];
        for i in 0..8 {
            sums[i] = all[i].sum();
        }
        // SAFETY: eight values.
        unsafe { Self::load(sums.as_ptr()) }
    }

    /// The largest lanes of eight registers without NaN.
    #[inline(always)]
    fn largest_of_each(all: [Self; 8]) -> Self {
        let mut largest = [0.0; 8];
        for i in 0..8 {
            largest[i] = all[i].largest();
        }
        // SAFETY: eight values.
        unsafe { Self::load(largest.as_ptr()) }
    }

    /// The largest lane that is not NaN, or -infinity.
    #[inline(always)]
    fn largest(self) -> f32 {
        let mut largest = f32::NEG_INFINITY;
        for value in self.to_array() {
            largest = if value > largest { value } else { largest };
        }
        largest
    }
}

/// What rows of sums grow by: in every step a factor of each row times the same elements.
#[derive(Clone, Copy)]
pub struct Steps {
    pub count: usize,
    /// The first row's, one after another.
    pub factors: *const f32,
    /// Factors from one row to the next.
    pub row: usize,
    pub elements: *const u8,
    /// Bytes from one step to the next.
    pub step: usize,
    /// Where `elements` of later sums lie, to be asked for meanwhile.
    pub next: *const u8,
    /// Whether they are to come to the first-level cache, in registers [twice as wide](Lanes::IS_WIDE). Attention of one answer over
    /// 256 tokens takes 2.1 to 2.5 us so on a Zen 5, and 3.3 to 3.8 from the second-level one.
    #[cfg_attr(
        not(target_arch = "x86_64"),
        allow(dead_code, reason = "only AVX-512 has such registers")
    )]
    pub asks_near: bool,
}

/// Plain Rust.
#[derive(Clone, Copy)]
pub struct Plain([f32; 8]);

#[inline(always)]
fn each(f: impl Fn(usize) -> f32) -> Plain {
    let mut values = [0.0; 8];
    for (i, value) in values.iter_mut().enumerate() {
        *value = f(i);
    }
    Plain(values)
}

impl Floats for Plain {
    const WIDTH: usize = 8;

    #[inline(always)]
    fn splat(value: f32) -> Plain {
        Plain([value; 8])
    }

    #[inline(always)]
    unsafe fn load(p: *const f32) -> Plain {
        // SAFETY: the caller's promise.
        Plain(unsafe { p.cast::<[f32; 8]>().read_unaligned() })
    }

    #[inline(always)]
    unsafe fn load_halves(p: *const u16) -> Plain {
        // SAFETY: the caller's promise.
        each(|i| half::f16::from_bits(unsafe { p.add(i).read_unaligned() }).to_f32())
    }

    #[inline(always)]
    unsafe fn store(self, p: *mut f32) {
        // SAFETY: the caller's promise.
        unsafe { p.cast::<[f32; 8]>().write_unaligned(self.0) }
    }

    #[inline(always)]
    fn add(self, other: Plain) -> Plain {
        each(|i| self.0[i] + other.0[i])
    }

    #[inline(always)]
    fn sub(self, other: Plain) -> Plain {
        each(|i| self.0[i] - other.0[i])
    }

    #[inline(always)]
    fn mul(self, other: Plain) -> Plain {
        each(|i| self.0[i] * other.0[i])
    }

    #[inline(always)]
    fn div(self, other: Plain) -> Plain {
        each(|i| self.0[i] / other.0[i])
    }

    #[inline(always)]
    fn mul_add(self, b: Plain, c: Plain) -> Plain {
        each(|i| self.0[i].mul_add(b.0[i], c.0[i]))
    }

    #[inline(always)]
    fn larger(self, other: Plain) -> Plain {
        each(|i| match self.0[i] > other.0[i] {
            true => self.0[i],
            false => other.0[i],
        })
    }

    #[inline(always)]
    fn smaller(self, other: Plain) -> Plain {
        each(|i| match self.0[i] < other.0[i] {
            true => self.0[i],
            false => other.0[i],
        })
    }

    #[inline(always)]
    fn round(self) -> Plain {
        each(|i| self.0[i].round_ties_even())
    }

    #[inline(always)]
    fn times_power_of_two(self, n: Plain) -> Plain {
        // A NaN becomes 1, which is as good: what it is multiplied with is NaN too.
        each(|i| match n.0[i].is_nan() {
            true => self.0[i],
            false => {
                let exponent = (n.0[i] as i32).wrapping_add(127);
                self.0[i] * f32::from_bits((exponent << 23) as u32)
            }
        })
    }

    #[inline(always)]
    fn zero_where_below(self, x: Plain, limit: f32) -> Plain {
        each(|i| if x.0[i] < limit { 0.0 } else { self.0[i] })
    }
}

impl Lanes for Plain {
    type Wide = Plain;
    const REGISTERS: usize = 16;

    #[inline(always)]
    fn largest_magnitude(values: [Plain; 4]) -> u32 {
        let bits = values.iter().flat_map(|v| v.0).map(f32::to_bits);
        bits.fold(0, |largest, bits| largest.max(bits & 0x7fff_ffff))
    }

    #[inline(always)]
    unsafe fn store_integers(values: [Plain; 4], p: *mut i16) -> [i32; 2] {
        // SAFETY: the caller's promise.
        let integers = unsafe { &mut *p.cast::<[i16; 32]>() };
        let mut sums = [0; 2];
        for column in 0..32 {
            let integer = values[column / 8].0[column % 8] as i32;
            order::set(integers, column, integer as i16);
            sums[column / 16] += integer;
        }
        sums
    }
}
