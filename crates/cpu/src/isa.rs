//! Owns the choice of instruction set, made once at start. Every set gives bit for bit the same results.

use std::fmt;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isa {
    /// Plain Rust: the reference for all others.
    Scalar,
    /// x86-64 with AVX2, FMA and F16C.
    Avx2,
}

impl Isa {
    /// The best set this processor has.
    pub fn detect() -> Isa {
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("f16c")
        {
            return Isa::Avx2;
        }
        Isa::Scalar
    }

    /// The sets this processor can run, the reference first.
    pub fn available() -> Vec<Isa> {
        match Isa::detect() {
            Isa::Scalar => vec![Isa::Scalar],
            best => vec![Isa::Scalar, best],
        }
    }
}

impl fmt::Display for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Isa::Scalar => "scalar",
            Isa::Avx2 => "AVX2+FMA+F16C",
        })
    }
}

/// Compiles one plain-Rust kernel for every instruction set. Rust neither reorders nor fuses floating-point operations
/// by itself, so the versions differ in speed only.
macro_rules! for_each_isa {
    ($(#[$doc:meta])* $vis:vis fn $name:ident($($arg:ident: $type:ty),* $(,)?) $body:block) => {
        $(#[$doc])*
        $vis fn $name(isa: $crate::isa::Isa, $($arg: $type),*) {
            #[inline(always)]
            fn body($($arg: $type),*) $body

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,f16c")]
            fn avx2($($arg: $type),*) {
                body($($arg),*)
            }

            match isa {
                $crate::isa::Isa::Scalar => body($($arg),*),
                // SAFETY: this value is made only where the processor has these features.
                #[cfg(target_arch = "x86_64")]
                $crate::isa::Isa::Avx2 => unsafe { avx2($($arg),*) },
                #[cfg(not(target_arch = "x86_64"))]
                $crate::isa::Isa::Avx2 => unreachable!("AVX2 is never chosen here"),
            }
        }
    };
}
pub(crate) use for_each_isa;
