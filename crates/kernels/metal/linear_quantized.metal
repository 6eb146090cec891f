// Owns the tiles of products with quantized weights that every GPU runs: plain copies, at most 16 KB of threadgroup memory.
#include <metal_stdlib>
using namespace metal;
#include "common/linear_quantized.h"

template [[host_name("linear_q8_0_f16_f16_64x32x32")]] kernel decltype(linear_quantized<half, half, q8_0, 64, 32, 32, 2, 2, 1, 1>) linear_quantized<half, half, q8_0, 64, 32, 32, 2, 2, 1, 1>;
template [[host_name("linear_q4_1_f16_f16_64x32x32")]] kernel decltype(linear_quantized<half, half, q4_1, 64, 32, 32, 2, 2, 1, 1>) linear_quantized<half, half, q4_1, 64, 32, 32, 2, 2, 1, 1>;
template [[host_name("linear_q8_0_f16_f16_32x32x32")]] kernel decltype(linear_quantized<half, half, q8_0, 32, 32, 32, 2, 2, 1, 1>) linear_quantized<half, half, q8_0, 32, 32, 32, 2, 2, 1, 1>;
template [[host_name("linear_q4_1_f16_f16_32x32x32")]] kernel decltype(linear_quantized<half, half, q4_1, 32, 32, 32, 2, 2, 1, 1>) linear_quantized<half, half, q4_1, 32, 32, 32, 2, 2, 1, 1>;
template [[host_name("linear_q8_0_f16_f32_64x32x32")]] kernel decltype(linear_quantized<half, float, q8_0, 64, 32, 32, 2, 2, 1, 1>) linear_quantized<half, float, q8_0, 64, 32, 32, 2, 2, 1, 1>;
template [[host_name("linear_q4_1_f16_f32_64x32x32")]] kernel decltype(linear_quantized<half, float, q4_1, 64, 32, 32, 2, 2, 1, 1>) linear_quantized<half, float, q4_1, 64, 32, 32, 2, 2, 1, 1>;
template [[host_name("linear_q8_0_f16_f32_32x32x32")]] kernel decltype(linear_quantized<half, float, q8_0, 32, 32, 32, 2, 2, 1, 1>) linear_quantized<half, float, q8_0, 32, 32, 32, 2, 2, 1, 1>;
template [[host_name("linear_q4_1_f16_f32_32x32x32")]] kernel decltype(linear_quantized<half, float, q4_1, 32, 32, 32, 2, 2, 1, 1>) linear_quantized<half, float, q4_1, 32, 32, 32, 2, 2, 1, 1>;
template [[host_name("linear_q8_0_bf16_bf16_64x32x32")]] kernel decltype(linear_quantized<bfloat, bfloat, q8_0, 64, 32, 32, 2, 2, 1, 1>) linear_quantized<bfloat, bfloat, q8_0, 64, 32, 32, 2, 2, 1, 1>;
template [[host_name("linear_q4_1_bf16_bf16_64x32x32")]] kernel decltype(linear_quantized<bfloat, bfloat, q4_1, 64, 32, 32, 2, 2, 1, 1>) linear_quantized<bfloat, bfloat, q4_1, 64, 32, 32, 2, 2, 1, 1>;
template [[host_name("linear_q8_0_bf16_bf16_32x32x32")]] kernel decltype(linear_quantized<bfloat, bfloat, q8_0, 32, 32, 32, 2, 2, 1, 1>) linear_quantized<bfloat, bfloat, q8_0, 32, 32, 32, 2, 2, 1, 1>;
template [[host_name("linear_q4_1_bf16_bf16_32x32x32")]] kernel decltype(linear_quantized<bfloat, bfloat, q4_1, 32, 32, 32, 2, 2, 1, 1>) linear_quantized<bfloat, bfloat, q4_1, 32, 32, 32, 2, 2, 1, 1>;
template [[host_name("linear_q8_0_bf16_f32_64x32x32")]] kernel decltype(linear_quantized<bfloat, float, q8_0, 64, 32, 32, 2, 2, 1, 1>) linear_quantized<bfloat, float, q8_0, 64, 32, 32, 2, 2, 1, 1>;
template [[host_name("linear_q4_1_bf16_f32_64x32x32")]] kernel decltype(linear_quantized<bfloat, float, q4_1, 64, 32, 32, 2, 2, 1, 1>) linear_quantized<bfloat, float, q4_1, 64, 32, 32, 2, 2, 1, 1>;
template [[host_name("linear_q8_0_bf16_f32_32x32x32")]] kernel decltype(linear_quantized<bfloat, float, q8_0, 32, 32, 32, 2, 2, 1, 1>) linear_quantized<bfloat, float, q8_0, 32, 32, 32, 2, 2, 1, 1>;
template [[host_name("linear_q4_1_bf16_f32_32x32x32")]] kernel decltype(linear_quantized<bfloat, float, q4_1, 32, 32, 32, 2, 2, 1, 1>) linear_quantized<bfloat, float, q4_1, 32, 32, 32, 2, 2, 1, 1>;
