//! Owns the names under which kernels are counted.

use crate::isa::Isa;
use mettle_tensor::DType;

/// `linear/TYPE/SET`. Names are constants: the decode step, which counts them, makes no strings.
pub fn linear(dtype: DType, isa: Isa) -> &'static str {
    macro_rules! of_every_type {
        ($set:literal) => {
            match dtype {
                DType::F32 => concat!("linear/f32/", $set),
                DType::F16 => concat!("linear/f16/", $set),
                DType::BF16 => concat!("linear/bf16/", $set),
                DType::Q4_0 => concat!("linear/q4_0/", $set),
                DType::Q4_1 => concat!("linear/q4_1/", $set),
                DType::Q5_0 => concat!("linear/q5_0/", $set),
                DType::Q5_1 => concat!("linear/q5_1/", $set),
                DType::Q8_0 => concat!("linear/q8_0/", $set),
                DType::Q2_K => concat!("linear/q2_k/", $set),
                DType::Q3_K => concat!("linear/q3_k/", $set),
                DType::Q4_K => concat!("linear/q4_k/", $set),
                DType::Q5_K => concat!("linear/q5_k/", $set),
                DType::Q6_K => concat!("linear/q6_k/", $set),
                DType::IQ4_NL => concat!("linear/iq4_nl/", $set),
                DType::IQ4_XS => concat!("linear/iq4_xs/", $set),
                DType::MXFP4 => concat!("linear/mxfp4/", $set),
                DType::Affine8 => concat!("linear/affine8/", $set),
                DType::Zero4 => concat!("linear/zero4/", $set),
                DType::F8 => concat!("linear/f8/", $set),
            }
        };
    }
    match isa {
        Isa::Scalar => of_every_type!("scalar"),
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => of_every_type!("avx2"),
        #[cfg(target_arch = "x86_64")]
        Isa::AvxVnni => of_every_type!("avx_vnni"),
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => of_every_type!("avx512"),
        #[cfg(target_arch = "x86_64")]
        Isa::Amx => of_every_type!("amx"),
        #[cfg(target_arch = "aarch64")]
        Isa::Neon => of_every_type!("neon"),
        #[cfg(target_arch = "aarch64")]
        Isa::NeonDotprod => of_every_type!("neon_dotprod"),
        #[cfg(target_arch = "aarch64")]
        Isa::NeonI8mm => of_every_type!("neon_i8mm"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_made_of_its_type_and_set() {
        for dtype in DType::ALL {
            for isa in Isa::available() {
                let expected =
                    format!("linear/{}/{}", dtype.to_string().to_lowercase(), isa.name());
                assert_eq!(linear(dtype, isa), expected);
            }
        }
    }
}
