// Owns the tiles of products with quantized weights by asynchronous copies: NVIDIA only.
#include <metal_stdlib>
using namespace metal;
#include "common/linear_quantized.h"

template [[host_name("linear_q8_0_f16_f16_128x128x32_w8_s3")]] kernel decltype(linear_quantized<half, half, q8_0, 128, 128, 32, 2, 4, 1, 3>) linear_quantized<half, half, q8_0, 128, 128, 32, 2, 4, 1, 3>;
template [[host_name("linear_q4_1_f16_f16_128x128x32_w8_s3")]] kernel decltype(linear_quantized<half, half, q4_1, 128, 128, 32, 2, 4, 1, 3>) linear_quantized<half, half, q4_1, 128, 128, 32, 2, 4, 1, 3>;
template [[host_name("linear_q8_0_f16_f16_64x64x64_w4_s3")]] kernel decltype(linear_quantized<half, half, q8_0, 64, 64, 64, 2, 2, 1, 3>) linear_quantized<half, half, q8_0, 64, 64, 64, 2, 2, 1, 3>;
template [[host_name("linear_q4_1_f16_f16_64x64x64_w4_s3")]] kernel decltype(linear_quantized<half, half, q4_1, 64, 64, 64, 2, 2, 1, 3>) linear_quantized<half, half, q4_1, 64, 64, 64, 2, 2, 1, 3>;
template [[host_name("linear_q8_0_f16_f16_16x64x128_w4_s2")]] kernel decltype(linear_quantized<half, half, q8_0, 16, 64, 128, 1, 2, 2, 2>) linear_quantized<half, half, q8_0, 16, 64, 128, 1, 2, 2, 2>;
template [[host_name("linear_q4_1_f16_f16_16x64x128_w4_s2")]] kernel decltype(linear_quantized<half, half, q4_1, 16, 64, 128, 1, 2, 2, 2>) linear_quantized<half, half, q4_1, 16, 64, 128, 1, 2, 2, 2>;
template [[host_name("linear_q8_0_f16_f16_32x64x64_w4_s3")]] kernel decltype(linear_quantized<half, half, q8_0, 32, 64, 64, 1, 4, 1, 3>) linear_quantized<half, half, q8_0, 32, 64, 64, 1, 4, 1, 3>;
template [[host_name("linear_q4_1_f16_f16_32x64x64_w4_s3")]] kernel decltype(linear_quantized<half, half, q4_1, 32, 64, 64, 1, 4, 1, 3>) linear_quantized<half, half, q4_1, 32, 64, 64, 1, 4, 1, 3>;
template [[host_name("linear_q8_0_f16_f32_128x128x32_w8_s3")]] kernel decltype(linear_quantized<half, float, q8_0, 128, 128, 32, 2, 4, 1, 3>) linear_quantized<half, float, q8_0, 128, 128, 32, 2, 4, 1, 3>;
template [[host_name("linear_q4_1_f16_f32_128x128x32_w8_s3")]] kernel decltype(linear_quantized<half, float, q4_1, 128, 128, 32, 2, 4, 1, 3>) linear_quantized<half, float, q4_1, 128, 128, 32, 2, 4, 1, 3>;
template [[host_name("linear_q8_0_f16_f32_64x64x64_w4_s3")]] kernel decltype(linear_quantized<half, float, q8_0, 64, 64, 64, 2, 2, 1, 3>) linear_quantized<half, float, q8_0, 64, 64, 64, 2, 2, 1, 3>;
template [[host_name("linear_q4_1_f16_f32_64x64x64_w4_s3")]] kernel decltype(linear_quantized<half, float, q4_1, 64, 64, 64, 2, 2, 1, 3>) linear_quantized<half, float, q4_1, 64, 64, 64, 2, 2, 1, 3>;
template [[host_name("linear_q8_0_f16_f32_16x64x128_w4_s2")]] kernel decltype(linear_quantized<half, float, q8_0, 16, 64, 128, 1, 2, 2, 2>) linear_quantized<half, float, q8_0, 16, 64, 128, 1, 2, 2, 2>;
template [[host_name("linear_q4_1_f16_f32_16x64x128_w4_s2")]] kernel decltype(linear_quantized<half, float, q4_1, 16, 64, 128, 1, 2, 2, 2>) linear_quantized<half, float, q4_1, 16, 64, 128, 1, 2, 2, 2>;
template [[host_name("linear_q8_0_f16_f32_32x64x64_w4_s3")]] kernel decltype(linear_quantized<half, float, q8_0, 32, 64, 64, 1, 4, 1, 3>) linear_quantized<half, float, q8_0, 32, 64, 64, 1, 4, 1, 3>;
template [[host_name("linear_q4_1_f16_f32_32x64x64_w4_s3")]] kernel decltype(linear_quantized<half, float, q4_1, 32, 64, 64, 1, 4, 1, 3>) linear_quantized<half, float, q4_1, 32, 64, 64, 1, 4, 1, 3>;
template [[host_name("linear_q8_0_bf16_bf16_128x128x32_w8_s3")]] kernel decltype(linear_quantized<bfloat, bfloat, q8_0, 128, 128, 32, 2, 4, 1, 3>) linear_quantized<bfloat, bfloat, q8_0, 128, 128, 32, 2, 4, 1, 3>;
template [[host_name("linear_q4_1_bf16_bf16_128x128x32_w8_s3")]] kernel decltype(linear_quantized<bfloat, bfloat, q4_1, 128, 128, 32, 2, 4, 1, 3>) linear_quantized<bfloat, bfloat, q4_1, 128, 128, 32, 2, 4, 1, 3>;
template [[host_name("linear_q8_0_bf16_bf16_64x64x64_w4_s3")]] kernel decltype(linear_quantized<bfloat, bfloat, q8_0, 64, 64, 64, 2, 2, 1, 3>) linear_quantized<bfloat, bfloat, q8_0, 64, 64, 64, 2, 2, 1, 3>;
template [[host_name("linear_q4_1_bf16_bf16_64x64x64_w4_s3")]] kernel decltype(linear_quantized<bfloat, bfloat, q4_1, 64, 64, 64, 2, 2, 1, 3>) linear_quantized<bfloat, bfloat, q4_1, 64, 64, 64, 2, 2, 1, 3>;
template [[host_name("linear_q8_0_bf16_bf16_16x64x128_w4_s2")]] kernel decltype(linear_quantized<bfloat, bfloat, q8_0, 16, 64, 128, 1, 2, 2, 2>) linear_quantized<bfloat, bfloat, q8_0, 16, 64, 128, 1, 2, 2, 2>;
template [[host_name("linear_q4_1_bf16_bf16_16x64x128_w4_s2")]] kernel decltype(linear_quantized<bfloat, bfloat, q4_1, 16, 64, 128, 1, 2, 2, 2>) linear_quantized<bfloat, bfloat, q4_1, 16, 64, 128, 1, 2, 2, 2>;
template [[host_name("linear_q8_0_bf16_bf16_32x64x64_w4_s3")]] kernel decltype(linear_quantized<bfloat, bfloat, q8_0, 32, 64, 64, 1, 4, 1, 3>) linear_quantized<bfloat, bfloat, q8_0, 32, 64, 64, 1, 4, 1, 3>;
template [[host_name("linear_q4_1_bf16_bf16_32x64x64_w4_s3")]] kernel decltype(linear_quantized<bfloat, bfloat, q4_1, 32, 64, 64, 1, 4, 1, 3>) linear_quantized<bfloat, bfloat, q4_1, 32, 64, 64, 1, 4, 1, 3>;
template [[host_name("linear_q8_0_bf16_f32_128x128x32_w8_s3")]] kernel decltype(linear_quantized<bfloat, float, q8_0, 128, 128, 32, 2, 4, 1, 3>) linear_quantized<bfloat, float, q8_0, 128, 128, 32, 2, 4, 1, 3>;
template [[host_name("linear_q4_1_bf16_f32_128x128x32_w8_s3")]] kernel decltype(linear_quantized<bfloat, float, q4_1, 128, 128, 32, 2, 4, 1, 3>) linear_quantized<bfloat, float, q4_1, 128, 128, 32, 2, 4, 1, 3>;
template [[host_name("linear_q8_0_bf16_f32_64x64x64_w4_s3")]] kernel decltype(linear_quantized<bfloat, float, q8_0, 64, 64, 64, 2, 2, 1, 3>) linear_quantized<bfloat, float, q8_0, 64, 64, 64, 2, 2, 1, 3>;
template [[host_name("linear_q4_1_bf16_f32_64x64x64_w4_s3")]] kernel decltype(linear_quantized<bfloat, float, q4_1, 64, 64, 64, 2, 2, 1, 3>) linear_quantized<bfloat, float, q4_1, 64, 64, 64, 2, 2, 1, 3>;
template [[host_name("linear_q8_0_bf16_f32_16x64x128_w4_s2")]] kernel decltype(linear_quantized<bfloat, float, q8_0, 16, 64, 128, 1, 2, 2, 2>) linear_quantized<bfloat, float, q8_0, 16, 64, 128, 1, 2, 2, 2>;
template [[host_name("linear_q4_1_bf16_f32_16x64x128_w4_s2")]] kernel decltype(linear_quantized<bfloat, float, q4_1, 16, 64, 128, 1, 2, 2, 2>) linear_quantized<bfloat, float, q4_1, 16, 64, 128, 1, 2, 2, 2>;
template [[host_name("linear_q8_0_bf16_f32_32x64x64_w4_s3")]] kernel decltype(linear_quantized<bfloat, float, q8_0, 32, 64, 64, 1, 4, 1, 3>) linear_quantized<bfloat, float, q8_0, 32, 64, 64, 1, 4, 1, 3>;
template [[host_name("linear_q4_1_bf16_f32_32x64x64_w4_s3")]] kernel decltype(linear_quantized<bfloat, float, q4_1, 32, 64, 64, 1, 4, 1, 3>) linear_quantized<bfloat, float, q4_1, 32, 64, 64, 1, 4, 1, 3>;
