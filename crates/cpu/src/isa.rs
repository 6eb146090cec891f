//! Owns the choice of instruction set, made once at start. Every set gives bit for bit the same results.

use std::fmt;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isa {
    /// Plain Rust: the reference for all others.
    Scalar,
    /// x86-64 with AVX2, FMA and F16C.
    Avx2,
    /// The same with AVX-512 F, BW, VL and VNNI.
    Avx512,
}

impl Isa {
    /// The best set this processor has.
    pub fn detect() -> Isa {
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("f16c")
        {
            let wide = is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512vl")
                && is_x86_feature_detected!("avx512vnni");
            return if wide { Isa::Avx512 } else { Isa::Avx2 };
        }
        Isa::Scalar
    }

    /// The sets this processor can run, the reference first.
    pub fn available() -> Vec<Isa> {
        match Isa::detect() {
            Isa::Scalar => vec![Isa::Scalar],
            Isa::Avx2 => vec![Isa::Scalar, Isa::Avx2],
            Isa::Avx512 => vec![Isa::Scalar, Isa::Avx2, Isa::Avx512],
        }
    }
}

impl fmt::Display for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Isa::Scalar => "scalar",
            Isa::Avx2 => "AVX2+FMA+F16C",
            Isa::Avx512 => "AVX-512 VNNI",
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

            match isa {
                $crate::isa::Isa::Scalar => body::<$crate::lanes::Plain>($($arg),*),
                // SAFETY: these values are made only where the processor has the features.
                #[cfg(target_arch = "x86_64")]
                $crate::isa::Isa::Avx2 | $crate::isa::Isa::Avx512 => unsafe { avx2($($arg),*) },
                #[cfg(not(target_arch = "x86_64"))]
                _ => unreachable!("{isa} is never chosen here"),
            }
        }
    };
}
pub(crate) use for_each_isa;
