//! Owns the names under which kernels are counted.

use crate::isa::Isa;
use mettle_tensor::DType;

pub fn linear(dtype: DType, isa: Isa) -> &'static str {
    match (dtype, isa) {
        (DType::F32, Isa::Scalar) => "linear/f32/scalar",
        (DType::F16, Isa::Scalar) => "linear/f16/scalar",
        (DType::BF16, Isa::Scalar) => "linear/bf16/scalar",
        (DType::Q4_0, Isa::Scalar) => "linear/q4_0/scalar",
        (DType::Q4_1, Isa::Scalar) => "linear/q4_1/scalar",
        (DType::Q8_0, Isa::Scalar) => "linear/q8_0/scalar",
        (DType::Q4_K, Isa::Scalar) => "linear/q4_k/scalar",
        (DType::Q6_K, Isa::Scalar) => "linear/q6_k/scalar",
        (DType::F32, Isa::Avx2) => "linear/f32/avx2",
        (DType::F16, Isa::Avx2) => "linear/f16/avx2",
        (DType::BF16, Isa::Avx2) => "linear/bf16/avx2",
        (DType::Q4_0, Isa::Avx2) => "linear/q4_0/avx2",
        (DType::Q4_1, Isa::Avx2) => "linear/q4_1/avx2",
        (DType::Q8_0, Isa::Avx2) => "linear/q8_0/avx2",
        (DType::Q4_K, Isa::Avx2) => "linear/q4_k/avx2",
        (DType::Q6_K, Isa::Avx2) => "linear/q6_k/avx2",
        (DType::F32, Isa::Avx512) => "linear/f32/avx512",
        (DType::F16, Isa::Avx512) => "linear/f16/avx512",
        (DType::BF16, Isa::Avx512) => "linear/bf16/avx512",
        (DType::Q4_0, Isa::Avx512) => "linear/q4_0/avx512",
        (DType::Q4_1, Isa::Avx512) => "linear/q4_1/avx512",
        (DType::Q8_0, Isa::Avx512) => "linear/q8_0/avx512",
        (DType::Q4_K, Isa::Avx512) => "linear/q4_k/avx512",
        (DType::Q6_K, Isa::Avx512) => "linear/q6_k/avx512",
    }
}
