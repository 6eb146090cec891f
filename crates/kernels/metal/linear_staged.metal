// Owns the tiles of dense matrix products by asynchronous copies: NVIDIA only.
#include <metal_stdlib>
using namespace metal;
#include "common/linear_dense.h"

template [[host_name("linear_f16_f16_128x128x32_w8_s3")]] kernel decltype(linear<half, half, 128, 128, 32, 2, 4, 1, 3>) linear<half, half, 128, 128, 32, 2, 4, 1, 3>;
template [[host_name("linear_f16_f16_128x128x32_w8_s4")]] kernel decltype(linear<half, half, 128, 128, 32, 2, 4, 1, 4>) linear<half, half, 128, 128, 32, 2, 4, 1, 4>;
template [[host_name("linear_f16_f16_128x128x32_w4_s3")]] kernel decltype(linear<half, half, 128, 128, 32, 2, 2, 1, 3>) linear<half, half, 128, 128, 32, 2, 2, 1, 3>;
template [[host_name("linear_f16_f16_128x256x32_w8_s3")]] kernel decltype(linear<half, half, 128, 256, 32, 2, 4, 1, 3>) linear<half, half, 128, 256, 32, 2, 4, 1, 3>;
template [[host_name("linear_f16_f16_64x64x64_w4_s3")]] kernel decltype(linear<half, half, 64, 64, 64, 2, 2, 1, 3>) linear<half, half, 64, 64, 64, 2, 2, 1, 3>;
template [[host_name("linear_f16_f16_32x64x64_w4_s4")]] kernel decltype(linear<half, half, 32, 64, 64, 1, 4, 1, 4>) linear<half, half, 32, 64, 64, 1, 4, 1, 4>;
template [[host_name("linear_f16_f16_16x64x64_w4_s4")]] kernel decltype(linear<half, half, 16, 64, 64, 1, 4, 1, 4>) linear<half, half, 16, 64, 64, 1, 4, 1, 4>;
template [[host_name("linear_f16_f16_32x32x128_w4_s3")]] kernel decltype(linear<half, half, 32, 32, 128, 1, 1, 4, 3>) linear<half, half, 32, 32, 128, 1, 1, 4, 3>;
template [[host_name("linear_f16_f16_16x32x128_w4_s4")]] kernel decltype(linear<half, half, 16, 32, 128, 1, 1, 4, 4>) linear<half, half, 16, 32, 128, 1, 1, 4, 4>;
template [[host_name("linear_f16_f16_16x32x128_w4_s6")]] kernel decltype(linear<half, half, 16, 32, 128, 1, 1, 4, 6>) linear<half, half, 16, 32, 128, 1, 1, 4, 6>;
template [[host_name("linear_f16_f32_128x128x32_w8_s3")]] kernel decltype(linear<half, float, 128, 128, 32, 2, 4, 1, 3>) linear<half, float, 128, 128, 32, 2, 4, 1, 3>;
template [[host_name("linear_f16_f32_128x128x32_w8_s4")]] kernel decltype(linear<half, float, 128, 128, 32, 2, 4, 1, 4>) linear<half, float, 128, 128, 32, 2, 4, 1, 4>;
template [[host_name("linear_f16_f32_128x128x32_w4_s3")]] kernel decltype(linear<half, float, 128, 128, 32, 2, 2, 1, 3>) linear<half, float, 128, 128, 32, 2, 2, 1, 3>;
template [[host_name("linear_f16_f32_128x256x32_w8_s3")]] kernel decltype(linear<half, float, 128, 256, 32, 2, 4, 1, 3>) linear<half, float, 128, 256, 32, 2, 4, 1, 3>;
template [[host_name("linear_f16_f32_64x64x64_w4_s3")]] kernel decltype(linear<half, float, 64, 64, 64, 2, 2, 1, 3>) linear<half, float, 64, 64, 64, 2, 2, 1, 3>;
template [[host_name("linear_f16_f32_32x64x64_w4_s4")]] kernel decltype(linear<half, float, 32, 64, 64, 1, 4, 1, 4>) linear<half, float, 32, 64, 64, 1, 4, 1, 4>;
template [[host_name("linear_f16_f32_16x64x64_w4_s4")]] kernel decltype(linear<half, float, 16, 64, 64, 1, 4, 1, 4>) linear<half, float, 16, 64, 64, 1, 4, 1, 4>;
template [[host_name("linear_f16_f32_32x32x128_w4_s3")]] kernel decltype(linear<half, float, 32, 32, 128, 1, 1, 4, 3>) linear<half, float, 32, 32, 128, 1, 1, 4, 3>;
template [[host_name("linear_f16_f32_16x32x128_w4_s4")]] kernel decltype(linear<half, float, 16, 32, 128, 1, 1, 4, 4>) linear<half, float, 16, 32, 128, 1, 1, 4, 4>;
template [[host_name("linear_f16_f32_16x32x128_w4_s6")]] kernel decltype(linear<half, float, 16, 32, 128, 1, 1, 4, 6>) linear<half, float, 16, 32, 128, 1, 1, 4, 6>;
template [[host_name("linear_bf16_bf16_128x128x32_w8_s3")]] kernel decltype(linear<bfloat, bfloat, 128, 128, 32, 2, 4, 1, 3>) linear<bfloat, bfloat, 128, 128, 32, 2, 4, 1, 3>;
template [[host_name("linear_bf16_bf16_128x128x32_w8_s4")]] kernel decltype(linear<bfloat, bfloat, 128, 128, 32, 2, 4, 1, 4>) linear<bfloat, bfloat, 128, 128, 32, 2, 4, 1, 4>;
template [[host_name("linear_bf16_bf16_128x128x32_w4_s3")]] kernel decltype(linear<bfloat, bfloat, 128, 128, 32, 2, 2, 1, 3>) linear<bfloat, bfloat, 128, 128, 32, 2, 2, 1, 3>;
template [[host_name("linear_bf16_bf16_128x256x32_w8_s3")]] kernel decltype(linear<bfloat, bfloat, 128, 256, 32, 2, 4, 1, 3>) linear<bfloat, bfloat, 128, 256, 32, 2, 4, 1, 3>;
template [[host_name("linear_bf16_bf16_64x64x64_w4_s3")]] kernel decltype(linear<bfloat, bfloat, 64, 64, 64, 2, 2, 1, 3>) linear<bfloat, bfloat, 64, 64, 64, 2, 2, 1, 3>;
template [[host_name("linear_bf16_bf16_32x64x64_w4_s4")]] kernel decltype(linear<bfloat, bfloat, 32, 64, 64, 1, 4, 1, 4>) linear<bfloat, bfloat, 32, 64, 64, 1, 4, 1, 4>;
template [[host_name("linear_bf16_bf16_16x64x64_w4_s4")]] kernel decltype(linear<bfloat, bfloat, 16, 64, 64, 1, 4, 1, 4>) linear<bfloat, bfloat, 16, 64, 64, 1, 4, 1, 4>;
template [[host_name("linear_bf16_bf16_32x32x128_w4_s3")]] kernel decltype(linear<bfloat, bfloat, 32, 32, 128, 1, 1, 4, 3>) linear<bfloat, bfloat, 32, 32, 128, 1, 1, 4, 3>;
template [[host_name("linear_bf16_bf16_16x32x128_w4_s4")]] kernel decltype(linear<bfloat, bfloat, 16, 32, 128, 1, 1, 4, 4>) linear<bfloat, bfloat, 16, 32, 128, 1, 1, 4, 4>;
template [[host_name("linear_bf16_bf16_16x32x128_w4_s6")]] kernel decltype(linear<bfloat, bfloat, 16, 32, 128, 1, 1, 4, 6>) linear<bfloat, bfloat, 16, 32, 128, 1, 1, 4, 6>;
template [[host_name("linear_bf16_f32_128x128x32_w8_s3")]] kernel decltype(linear<bfloat, float, 128, 128, 32, 2, 4, 1, 3>) linear<bfloat, float, 128, 128, 32, 2, 4, 1, 3>;
template [[host_name("linear_bf16_f32_128x128x32_w8_s4")]] kernel decltype(linear<bfloat, float, 128, 128, 32, 2, 4, 1, 4>) linear<bfloat, float, 128, 128, 32, 2, 4, 1, 4>;
template [[host_name("linear_bf16_f32_128x128x32_w4_s3")]] kernel decltype(linear<bfloat, float, 128, 128, 32, 2, 2, 1, 3>) linear<bfloat, float, 128, 128, 32, 2, 2, 1, 3>;
template [[host_name("linear_bf16_f32_128x256x32_w8_s3")]] kernel decltype(linear<bfloat, float, 128, 256, 32, 2, 4, 1, 3>) linear<bfloat, float, 128, 256, 32, 2, 4, 1, 3>;
template [[host_name("linear_bf16_f32_64x64x64_w4_s3")]] kernel decltype(linear<bfloat, float, 64, 64, 64, 2, 2, 1, 3>) linear<bfloat, float, 64, 64, 64, 2, 2, 1, 3>;
template [[host_name("linear_bf16_f32_32x64x64_w4_s4")]] kernel decltype(linear<bfloat, float, 32, 64, 64, 1, 4, 1, 4>) linear<bfloat, float, 32, 64, 64, 1, 4, 1, 4>;
template [[host_name("linear_bf16_f32_16x64x64_w4_s4")]] kernel decltype(linear<bfloat, float, 16, 64, 64, 1, 4, 1, 4>) linear<bfloat, float, 16, 64, 64, 1, 4, 1, 4>;
template [[host_name("linear_bf16_f32_32x32x128_w4_s3")]] kernel decltype(linear<bfloat, float, 32, 32, 128, 1, 1, 4, 3>) linear<bfloat, float, 32, 32, 128, 1, 1, 4, 3>;
template [[host_name("linear_bf16_f32_16x32x128_w4_s4")]] kernel decltype(linear<bfloat, float, 16, 32, 128, 1, 1, 4, 4>) linear<bfloat, float, 16, 32, 128, 1, 1, 4, 4>;
template [[host_name("linear_bf16_f32_16x32x128_w4_s6")]] kernel decltype(linear<bfloat, float, 16, 32, 128, 1, 1, 4, 6>) linear<bfloat, float, 16, 32, 128, 1, 1, 4, 6>;
