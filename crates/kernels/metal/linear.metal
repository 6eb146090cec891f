// Owns the tiles of dense matrix products that every GPU runs: plain copies, at most 16 KB of threadgroup memory.
#include <metal_stdlib>
using namespace metal;
#include "common/linear_dense.h"

template [[host_name("linear_f16_f16_64x32x32")]] kernel decltype(linear<half, half, 64, 32, 32, 2, 2, 1, 1>) linear<half, half, 64, 32, 32, 2, 2, 1, 1>;
template [[host_name("linear_f16_f16_64x64x16")]] kernel decltype(linear<half, half, 64, 64, 16, 2, 2, 1, 1>) linear<half, half, 64, 64, 16, 2, 2, 1, 1>;
template [[host_name("linear_f16_f16_32x32x32")]] kernel decltype(linear<half, half, 32, 32, 32, 2, 2, 1, 1>) linear<half, half, 32, 32, 32, 2, 2, 1, 1>;
template [[host_name("linear_f16_f32_64x32x32")]] kernel decltype(linear<half, float, 64, 32, 32, 2, 2, 1, 1>) linear<half, float, 64, 32, 32, 2, 2, 1, 1>;
template [[host_name("linear_f16_f32_64x64x16")]] kernel decltype(linear<half, float, 64, 64, 16, 2, 2, 1, 1>) linear<half, float, 64, 64, 16, 2, 2, 1, 1>;
template [[host_name("linear_f16_f32_32x32x32")]] kernel decltype(linear<half, float, 32, 32, 32, 2, 2, 1, 1>) linear<half, float, 32, 32, 32, 2, 2, 1, 1>;
template [[host_name("linear_bf16_bf16_64x32x32")]] kernel decltype(linear<bfloat, bfloat, 64, 32, 32, 2, 2, 1, 1>) linear<bfloat, bfloat, 64, 32, 32, 2, 2, 1, 1>;
template [[host_name("linear_bf16_bf16_64x64x16")]] kernel decltype(linear<bfloat, bfloat, 64, 64, 16, 2, 2, 1, 1>) linear<bfloat, bfloat, 64, 64, 16, 2, 2, 1, 1>;
template [[host_name("linear_bf16_bf16_32x32x32")]] kernel decltype(linear<bfloat, bfloat, 32, 32, 32, 2, 2, 1, 1>) linear<bfloat, bfloat, 32, 32, 32, 2, 2, 1, 1>;
template [[host_name("linear_bf16_f32_64x32x32")]] kernel decltype(linear<bfloat, float, 64, 32, 32, 2, 2, 1, 1>) linear<bfloat, float, 64, 32, 32, 2, 2, 1, 1>;
template [[host_name("linear_bf16_f32_64x64x16")]] kernel decltype(linear<bfloat, float, 64, 64, 16, 2, 2, 1, 1>) linear<bfloat, float, 64, 64, 16, 2, 2, 1, 1>;
template [[host_name("linear_bf16_f32_32x32x32")]] kernel decltype(linear<bfloat, float, 32, 32, 32, 2, 2, 1, 1>) linear<bfloat, float, 32, 32, 32, 2, 2, 1, 1>;
