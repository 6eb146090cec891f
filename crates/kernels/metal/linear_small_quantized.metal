// Owns out = x · Wᵀ (+ bias) (+ residual) for few rows of x and quantized W: lanes split K.
#include <metal_stdlib>
using namespace metal;
#include "common/element.h"
#include "common/linear.h"
#include "common/quantized.h"

// A simdgroup makes one column of out for ROWS rows of x. K is a multiple of 32 and rows of x lie on 16-byte boundaries.
template <typename T, typename Out, int FORMAT, int ROWS>
kernel void linear_small_quantized(device const T* x [[buffer(0)]],
                                   device const uchar* quants [[buffer(1)]],
                                   device const half* scales [[buffer(2)]],
                                   device const T* bias [[buffer(3)]],
                                   device const T* residual [[buffer(4)]],
                                   device const uint* rows [[buffer(5)]],
                                   device Out* out [[buffer(6)]],
                                   constant LinearParams& p [[buffer(7)]],
                                   uint2 group [[threadgroup_position_in_grid]],
                                   uint lane [[thread_index_in_simdgroup]],
                                   uint simdgroup [[simdgroup_index_in_threadgroup]],
                                   uint simdgroups [[simdgroups_per_threadgroup]]) {
  const uint column = group.x * simdgroups + simdgroup;
  const uint first_row = group.y * ROWS;
  // Past the end the last row or column is computed again and not stored: control flow stays uniform.
  const uint w_row = min(column, p.n - 1);
  const device T* x_rows[ROWS];
  float sums[ROWS];
  #pragma unroll
  for (int r = 0; r < ROWS; ++r) {
    const uint row = min(first_row + r, p.m - 1);
    x_rows[r] = x + ulong(has_rows ? rows[row] : row) * p.x_stride;
    sums[r] = 0.0f;
  }
  for (uint k = lane * 8; k < p.k; k += 256) {
    float w[8];
    load_quants<FORMAT>(quants, w_row, p.k, k, w);
    const float scale = load_scale<FORMAT>(scales, w_row, p.k, k);
    const float offset = load_offset<FORMAT>(scales, w_row, p.k, k);
    #pragma unroll
    for (int r = 0; r < ROWS; ++r) {
      float v[8];
      load8(x_rows[r] + k, v);
      float product = 0.0f;
      float sum = 0.0f;
      #pragma unroll
      for (int i = 0; i < 8; ++i) {
        product = fma(v[i], w[i], product);
        sum += v[i];
      }
      sums[r] = fma(scale, product, fma(offset, sum, sums[r]));
    }
  }
  #pragma unroll
  for (int r = 0; r < ROWS; ++r) {
    const float value = simd_sum(sums[r]);
    if (lane == 0) store_out(value, first_row + r, column, bias, residual, out, p);
  }
}

template [[host_name("linear_small_q8_0_f16_f16_r1")]] kernel decltype(linear_small_quantized<half, half, q8_0, 1>) linear_small_quantized<half, half, q8_0, 1>;
template [[host_name("linear_small_q8_0_f16_f16_r2")]] kernel decltype(linear_small_quantized<half, half, q8_0, 2>) linear_small_quantized<half, half, q8_0, 2>;
template [[host_name("linear_small_q8_0_f16_f16_r4")]] kernel decltype(linear_small_quantized<half, half, q8_0, 4>) linear_small_quantized<half, half, q8_0, 4>;
template [[host_name("linear_small_q4_1_f16_f16_r1")]] kernel decltype(linear_small_quantized<half, half, q4_1, 1>) linear_small_quantized<half, half, q4_1, 1>;
template [[host_name("linear_small_q4_1_f16_f16_r2")]] kernel decltype(linear_small_quantized<half, half, q4_1, 2>) linear_small_quantized<half, half, q4_1, 2>;
template [[host_name("linear_small_q4_1_f16_f16_r4")]] kernel decltype(linear_small_quantized<half, half, q4_1, 4>) linear_small_quantized<half, half, q4_1, 4>;
template [[host_name("linear_small_q8_0_f16_f32_r1")]] kernel decltype(linear_small_quantized<half, float, q8_0, 1>) linear_small_quantized<half, float, q8_0, 1>;
template [[host_name("linear_small_q8_0_f16_f32_r2")]] kernel decltype(linear_small_quantized<half, float, q8_0, 2>) linear_small_quantized<half, float, q8_0, 2>;
template [[host_name("linear_small_q8_0_f16_f32_r4")]] kernel decltype(linear_small_quantized<half, float, q8_0, 4>) linear_small_quantized<half, float, q8_0, 4>;
template [[host_name("linear_small_q4_1_f16_f32_r1")]] kernel decltype(linear_small_quantized<half, float, q4_1, 1>) linear_small_quantized<half, float, q4_1, 1>;
template [[host_name("linear_small_q4_1_f16_f32_r2")]] kernel decltype(linear_small_quantized<half, float, q4_1, 2>) linear_small_quantized<half, float, q4_1, 2>;
template [[host_name("linear_small_q4_1_f16_f32_r4")]] kernel decltype(linear_small_quantized<half, float, q4_1, 4>) linear_small_quantized<half, float, q4_1, 4>;
template [[host_name("linear_small_q8_0_bf16_bf16_r1")]] kernel decltype(linear_small_quantized<bfloat, bfloat, q8_0, 1>) linear_small_quantized<bfloat, bfloat, q8_0, 1>;
template [[host_name("linear_small_q8_0_bf16_bf16_r2")]] kernel decltype(linear_small_quantized<bfloat, bfloat, q8_0, 2>) linear_small_quantized<bfloat, bfloat, q8_0, 2>;
template [[host_name("linear_small_q8_0_bf16_bf16_r4")]] kernel decltype(linear_small_quantized<bfloat, bfloat, q8_0, 4>) linear_small_quantized<bfloat, bfloat, q8_0, 4>;
template [[host_name("linear_small_q4_1_bf16_bf16_r1")]] kernel decltype(linear_small_quantized<bfloat, bfloat, q4_1, 1>) linear_small_quantized<bfloat, bfloat, q4_1, 1>;
template [[host_name("linear_small_q4_1_bf16_bf16_r2")]] kernel decltype(linear_small_quantized<bfloat, bfloat, q4_1, 2>) linear_small_quantized<bfloat, bfloat, q4_1, 2>;
template [[host_name("linear_small_q4_1_bf16_bf16_r4")]] kernel decltype(linear_small_quantized<bfloat, bfloat, q4_1, 4>) linear_small_quantized<bfloat, bfloat, q4_1, 4>;
template [[host_name("linear_small_q8_0_bf16_f32_r1")]] kernel decltype(linear_small_quantized<bfloat, float, q8_0, 1>) linear_small_quantized<bfloat, float, q8_0, 1>;
template [[host_name("linear_small_q8_0_bf16_f32_r2")]] kernel decltype(linear_small_quantized<bfloat, float, q8_0, 2>) linear_small_quantized<bfloat, float, q8_0, 2>;
template [[host_name("linear_small_q8_0_bf16_f32_r4")]] kernel decltype(linear_small_quantized<bfloat, float, q8_0, 4>) linear_small_quantized<bfloat, float, q8_0, 4>;
template [[host_name("linear_small_q4_1_bf16_f32_r1")]] kernel decltype(linear_small_quantized<bfloat, float, q4_1, 1>) linear_small_quantized<bfloat, float, q4_1, 1>;
template [[host_name("linear_small_q4_1_bf16_f32_r2")]] kernel decltype(linear_small_quantized<bfloat, float, q4_1, 2>) linear_small_quantized<bfloat, float, q4_1, 2>;
template [[host_name("linear_small_q4_1_bf16_f32_r4")]] kernel decltype(linear_small_quantized<bfloat, float, q4_1, 4>) linear_small_quantized<bfloat, float, q4_1, 4>;
