//! Owns the choice of instruction set, made once at start. Every set gives bit for bit the same results.

#[cfg(target_arch = "x86_64")]
mod amx;
mod asking;
#[cfg(target_arch = "x86_64")]
mod pipes;

pub use asking::asks_far;
#[cfg(target_arch = "x86_64")]
pub use pipes::adds_beside_products;
use std::fmt;

/// Sets of another architecture do not exist, so that none can be chosen by mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isa {
    /// Plain Rust: the reference for all others.
    Scalar,
    /// x86-64 with AVX2, FMA and F16C.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// The same with AVX-VNNI: products are added by the instruction that multiplies.
    #[cfg(target_arch = "x86_64")]
    AvxVnni,
    /// AVX2's with AVX-512 F, BW, VL and VNNI.
    #[cfg(target_arch = "x86_64")]
    Avx512,
    /// The same with AMX's tiles of bf16, which the system must have allowed.
    #[cfg(target_arch = "x86_64")]
    Amx,
    /// What every 64-bit ARM has.
    #[cfg(target_arch = "aarch64")]
    Neon,
    /// The same with dot products of bytes (all Apple processors).
    #[cfg(target_arch = "aarch64")]
    NeonDotprod,
    /// The same with products of 2 x 8 matrices of bytes (Apple's from M2 on).
    #[cfg(target_arch = "aarch64")]
    NeonI8mm,
}

/// Whether the processor was made by whom its twelve letters say.
#[cfg(target_arch = "x86_64")]
fn is_of(maker: &[u8; 12]) -> bool {
    let about = std::arch::x86_64::__cpuid(0);
    let name = [about.ebx, about.edx, about.ecx].map(u32::to_le_bytes);
    name.as_flattened() == maker
}

/// See [`Isa::product_loop`].
#[derive(Clone, Copy)]
pub struct ProductLoop {
    /// Runs so many steps.
    pub run: fn(usize),
    /// A multiply-add is two.
    pub operations_per_step: usize,
}

impl Isa {
    /// The best set this processor has.
    pub fn detect() -> Isa {
        *Isa::available()
            .last()
            .expect("the reference is always there")
    }

    /// The sets this processor can run, the reference first and the best last.
    pub fn available() -> Vec<Isa> {
        let mut sets = vec![Isa::Scalar];
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("f16c")
        {
            sets.push(Isa::Avx2);
            if is_x86_feature_detected!("avxvnni") {
                sets.push(Isa::AvxVnni);
            }
            if is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512vl")
                && is_x86_feature_detected!("avx512vnni")
            {
                sets.push(Isa::Avx512);
                if amx::is_allowed() {
                    sets.push(Isa::Amx);
                }
            }
        }
        #[cfg(target_arch = "aarch64")]
        {
            use std::arch::is_aarch64_feature_detected;
            sets.push(Isa::Neon);
            if is_aarch64_feature_detected!("dotprod") {
                sets.push(Isa::NeonDotprod);
                if is_aarch64_feature_detected!("i8mm") {
                    sets.push(Isa::NeonI8mm);
                }
            }
        }
        sets
    }

    /// Whether many rows are multiplied as tiles.
    pub fn has_tiles(self) -> bool {
        #[cfg(target_arch = "x86_64")]
        return self == Isa::Amx;
        #[cfg(not(target_arch = "x86_64"))]
        false
    }

    /// A loop over products as kernels of many rows compute them, and nothing else: for measuring what they could do at the most.
    /// None if those are products of registers one by one.
    pub fn product_loop(self) -> Option<ProductLoop> {
        #[cfg(target_arch = "x86_64")]
        if self.has_tiles() && amx::is_allowed() {
            return Some(crate::kernels::linear::TILE_LOOP);
        }
        #[cfg(target_arch = "x86_64")]
        if self == Isa::Avx512 && adds_beside_products() {
            return Some(crate::kernels::linear::SUM_LOOP);
        }
        None
    }

    /// Whether it has AVX-512's registers.
    pub fn is_wide(self) -> bool {
        match self {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 | Isa::Amx => true,
            _ => false,
        }
    }

    /// A short name, as it stands in the names of kernels.
    pub fn name(self) -> &'static str {
        match self {
            Isa::Scalar => "scalar",
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => "avx2",
            #[cfg(target_arch = "x86_64")]
            Isa::AvxVnni => "avx_vnni",
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => "avx512",
            #[cfg(target_arch = "x86_64")]
            Isa::Amx => "amx",
            #[cfg(target_arch = "aarch64")]
            Isa::Neon => "neon",
            #[cfg(target_arch = "aarch64")]
            Isa::NeonDotprod => "neon_dotprod",
            #[cfg(target_arch = "aarch64")]
            Isa::NeonI8mm => "neon_i8mm",
        }
    }
}

impl fmt::Display for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Isa::Scalar => "scalar",
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => "AVX2+FMA+F16C",
            #[cfg(target_arch = "x86_64")]
            Isa::AvxVnni => "AVX2+FMA+F16C+VNNI",
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => "AVX-512 VNNI",
            #[cfg(target_arch = "x86_64")]
            Isa::Amx => "AVX-512 VNNI+AMX",
            #[cfg(target_arch = "aarch64")]
            Isa::Neon => "NEON",
            #[cfg(target_arch = "aarch64")]
            Isa::NeonDotprod => "NEON+dotprod",
            #[cfg(target_arch = "aarch64")]
            Isa::NeonI8mm => "NEON+dotprod+i8mm",
        })
    }
}

/// Compiles one kernel, written with [`Lanes`](crate::lanes::Lanes), for every instruction set.
macro_rules! for_each_isa {
    ($(#[$doc:meta])* $vis:vis fn $name:ident<$lanes:ident>($($arg:ident: $type:ty),* $(,)?) $body:block) => {
        $(#[$doc])*
        $vis fn $name(isa: $crate::isa::Isa, $($arg: $type),*) {
            #[inline(always)]
            fn body<$lanes: $crate::lanes::Lanes>($($arg: $type),*) $body

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,f16c")]
            fn avx2($($arg: $type),*) {
                body::<$crate::lanes::Avx2>($($arg),*)
            }

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vnni")]
            fn avx512($($arg: $type),*) {
                body::<$crate::lanes::Avx512>($($arg),*)
            }

            match isa {
                $crate::isa::Isa::Scalar => body::<$crate::lanes::Plain>($($arg),*),
                // SAFETY: these values are made only where the processor has the features.
                #[cfg(target_arch = "x86_64")]
                $crate::isa::Isa::Avx2 | $crate::isa::Isa::AvxVnni => unsafe { avx2($($arg),*) },
                // SAFETY: as above.
                #[cfg(target_arch = "x86_64")]
                $crate::isa::Isa::Avx512 | $crate::isa::Isa::Amx => unsafe { avx512($($arg),*) },
                #[cfg(target_arch = "aarch64")]
                $crate::isa::Isa::Neon
                | $crate::isa::Isa::NeonDotprod
                | $crate::isa::Isa::NeonI8mm => body::<$crate::lanes::Neon>($($arg),*),
            }
        }
    };
}
pub(crate) use for_each_isa;

#[cfg(test)]
mod tests {
    use super::*;

    /// Tests under an emulator ask for the set they are meant for: without it, all would pass on the reference alone.
    #[test]
    fn the_best_set_is_the_one_asked_for() {
        let sets = Isa::available();
        assert_eq!(sets.first(), Some(&Isa::Scalar));
        if let Ok(expected) = std::env::var("METTLE_TEST_ISA") {
            assert_eq!(Isa::detect().name(), expected, "of {sets:?}");
        }
    }
}
