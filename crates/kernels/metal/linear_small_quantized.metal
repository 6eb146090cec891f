// Owns out = x · Wᵀ (+ bias) (+ residual) for few rows of x and quantized W: lanes split K.
#include <metal_stdlib>
using namespace metal;
#include "common/element.h"
#include "common/linear.h"
#include "common/quantized.h"

// A simdgroup makes COLUMNS columns of out for ROWS rows of x. A lane takes a block of 32 columns of K at a time, whose
// bits it loads while it works on the block before. K is a multiple of 32 and rows of x lie on 16-byte boundaries.
template <typename T, typename Out, int FORMAT, int ROWS, int COLUMNS>
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
  constexpr int words = 4 * words_of_8<FORMAT>();
  const uint first_column = (group.x * simdgroups + simdgroup) * COLUMNS;
  const uint first_row = group.y * ROWS;
  // Past the end the last row or column is computed again and not stored: control flow stays uniform.
  const device T* x_rows[ROWS];
  float sums[ROWS][COLUMNS];
  #pragma unroll
  for (int r = 0; r < ROWS; ++r) {
    const uint row = min(first_row + r, p.m - 1);
    x_rows[r] = x + ulong(has_rows ? rows[row] : row) * p.x_stride;
    #pragma unroll
    for (int c = 0; c < COLUMNS; ++c) sums[r][c] = 0.0f;
  }
  uint w_rows[COLUMNS];
  uint next_bits[COLUMNS][words];
  #pragma unroll
  for (int c = 0; c < COLUMNS; ++c) {
    w_rows[c] = min(first_column + c, p.n - 1);
    load_bits<FORMAT>(quants, w_rows[c], p.k, min(lane * 32, p.k - 32), next_bits[c]);
  }
  for (uint k = lane * 32; k < p.k; k += 1024) {
    uint bits[COLUMNS][words];
    float2 scale[COLUMNS];
    #pragma unroll
    for (int c = 0; c < COLUMNS; ++c) {
      #pragma unroll
      for (int i = 0; i < words; ++i) bits[c][i] = next_bits[c][i];
      scale[c] = load_scale<FORMAT>(scales, w_rows[c], p.k, k);
      load_bits<FORMAT>(quants, w_rows[c], p.k, min(k + 1024, p.k - 32), next_bits[c]);
    }
    float products[ROWS][COLUMNS];
    float totals[ROWS];
    #pragma unroll
    for (int r = 0; r < ROWS; ++r) {
      totals[r] = 0.0f;
      #pragma unroll
      for (int c = 0; c < COLUMNS; ++c) products[r][c] = 0.0f;
    }
    #pragma unroll
    for (int eight = 0; eight < 4; ++eight) {
      float v[ROWS][8];
      #pragma unroll
      for (int r = 0; r < ROWS; ++r) {
        load8(x_rows[r] + k + 8 * eight, v[r]);
        #pragma unroll
        for (int i = 0; i < 8; ++i) {
          if (FORMAT == q4_1) totals[r] += v[r][i];
          v[r][i] *= 1.0f / pre_scale<FORMAT>(i);
        }
      }
      #pragma unroll
      for (int c = 0; c < COLUMNS; ++c) {
        float w[8];
        unpack8<FORMAT>(bits[c], eight, w);
        #pragma unroll
        for (int r = 0; r < ROWS; ++r)
          #pragma unroll
          for (int i = 0; i < 8; ++i) products[r][c] = fma(v[r][i], w[i], products[r][c]);
      }
    }
    #pragma unroll
    for (int r = 0; r < ROWS; ++r)
      #pragma unroll
      for (int c = 0; c < COLUMNS; ++c)
        sums[r][c] = fma(scale[c].x, products[r][c], fma(scale[c].y, totals[r], sums[r][c]));
  }
  #pragma unroll
  for (int r = 0; r < ROWS; ++r)
    #pragma unroll
    for (int c = 0; c < COLUMNS; ++c) {
      const float value = simd_sum(sums[r][c]);
      if (lane == 0) store_out(value, first_row + r, first_column + c, bias, residual, out, p);
    }
}

template [[host_name("linear_small_q8_0_f16_f16_r1_c2")]] kernel decltype(linear_small_quantized<half, half, q8_0, 1, 2>) linear_small_quantized<half, half, q8_0, 1, 2>;
template [[host_name("linear_small_q8_0_f16_f16_r1_c4")]] kernel decltype(linear_small_quantized<half, half, q8_0, 1, 4>) linear_small_quantized<half, half, q8_0, 1, 4>;
template [[host_name("linear_small_q8_0_f16_f16_r2_c2")]] kernel decltype(linear_small_quantized<half, half, q8_0, 2, 2>) linear_small_quantized<half, half, q8_0, 2, 2>;
template [[host_name("linear_small_q8_0_f16_f16_r4_c2")]] kernel decltype(linear_small_quantized<half, half, q8_0, 4, 2>) linear_small_quantized<half, half, q8_0, 4, 2>;
template [[host_name("linear_small_q4_1_f16_f16_r1_c2")]] kernel decltype(linear_small_quantized<half, half, q4_1, 1, 2>) linear_small_quantized<half, half, q4_1, 1, 2>;
template [[host_name("linear_small_q4_1_f16_f16_r1_c4")]] kernel decltype(linear_small_quantized<half, half, q4_1, 1, 4>) linear_small_quantized<half, half, q4_1, 1, 4>;
template [[host_name("linear_small_q4_1_f16_f16_r2_c2")]] kernel decltype(linear_small_quantized<half, half, q4_1, 2, 2>) linear_small_quantized<half, half, q4_1, 2, 2>;
template [[host_name("linear_small_q4_1_f16_f16_r4_c2")]] kernel decltype(linear_small_quantized<half, half, q4_1, 4, 2>) linear_small_quantized<half, half, q4_1, 4, 2>;
template [[host_name("linear_small_q8_0_f16_f32_r1_c2")]] kernel decltype(linear_small_quantized<half, float, q8_0, 1, 2>) linear_small_quantized<half, float, q8_0, 1, 2>;
template [[host_name("linear_small_q8_0_f16_f32_r1_c4")]] kernel decltype(linear_small_quantized<half, float, q8_0, 1, 4>) linear_small_quantized<half, float, q8_0, 1, 4>;
template [[host_name("linear_small_q8_0_f16_f32_r2_c2")]] kernel decltype(linear_small_quantized<half, float, q8_0, 2, 2>) linear_small_quantized<half, float, q8_0, 2, 2>;
template [[host_name("linear_small_q8_0_f16_f32_r4_c2")]] kernel decltype(linear_small_quantized<half, float, q8_0, 4, 2>) linear_small_quantized<half, float, q8_0, 4, 2>;
template [[host_name("linear_small_q4_1_f16_f32_r1_c2")]] kernel decltype(linear_small_quantized<half, float, q4_1, 1, 2>) linear_small_quantized<half, float, q4_1, 1, 2>;
template [[host_name("linear_small_q4_1_f16_f32_r1_c4")]] kernel decltype(linear_small_quantized<half, float, q4_1, 1, 4>) linear_small_quantized<half, float, q4_1, 1, 4>;
template [[host_name("linear_small_q4_1_f16_f32_r2_c2")]] kernel decltype(linear_small_quantized<half, float, q4_1, 2, 2>) linear_small_quantized<half, float, q4_1, 2, 2>;
template [[host_name("linear_small_q4_1_f16_f32_r4_c2")]] kernel decltype(linear_small_quantized<half, float, q4_1, 4, 2>) linear_small_quantized<half, float, q4_1, 4, 2>;
template [[host_name("linear_small_q8_0_bf16_bf16_r1_c2")]] kernel decltype(linear_small_quantized<bfloat, bfloat, q8_0, 1, 2>) linear_small_quantized<bfloat, bfloat, q8_0, 1, 2>;
template [[host_name("linear_small_q8_0_bf16_bf16_r1_c4")]] kernel decltype(linear_small_quantized<bfloat, bfloat, q8_0, 1, 4>) linear_small_quantized<bfloat, bfloat, q8_0, 1, 4>;
template [[host_name("linear_small_q8_0_bf16_bf16_r2_c2")]] kernel decltype(linear_small_quantized<bfloat, bfloat, q8_0, 2, 2>) linear_small_quantized<bfloat, bfloat, q8_0, 2, 2>;
template [[host_name("linear_small_q8_0_bf16_bf16_r4_c2")]] kernel decltype(linear_small_quantized<bfloat, bfloat, q8_0, 4, 2>) linear_small_quantized<bfloat, bfloat, q8_0, 4, 2>;
template [[host_name("linear_small_q4_1_bf16_bf16_r1_c2")]] kernel decltype(linear_small_quantized<bfloat, bfloat, q4_1, 1, 2>) linear_small_quantized<bfloat, bfloat, q4_1, 1, 2>;
template [[host_name("linear_small_q4_1_bf16_bf16_r1_c4")]] kernel decltype(linear_small_quantized<bfloat, bfloat, q4_1, 1, 4>) linear_small_quantized<bfloat, bfloat, q4_1, 1, 4>;
template [[host_name("linear_small_q4_1_bf16_bf16_r2_c2")]] kernel decltype(linear_small_quantized<bfloat, bfloat, q4_1, 2, 2>) linear_small_quantized<bfloat, bfloat, q4_1, 2, 2>;
template [[host_name("linear_small_q4_1_bf16_bf16_r4_c2")]] kernel decltype(linear_small_quantized<bfloat, bfloat, q4_1, 4, 2>) linear_small_quantized<bfloat, bfloat, q4_1, 4, 2>;
template [[host_name("linear_small_q8_0_bf16_f32_r1_c2")]] kernel decltype(linear_small_quantized<bfloat, float, q8_0, 1, 2>) linear_small_quantized<bfloat, float, q8_0, 1, 2>;
template [[host_name("linear_small_q8_0_bf16_f32_r1_c4")]] kernel decltype(linear_small_quantized<bfloat, float, q8_0, 1, 4>) linear_small_quantized<bfloat, float, q8_0, 1, 4>;
template [[host_name("linear_small_q8_0_bf16_f32_r2_c2")]] kernel decltype(linear_small_quantized<bfloat, float, q8_0, 2, 2>) linear_small_quantized<bfloat, float, q8_0, 2, 2>;
template [[host_name("linear_small_q8_0_bf16_f32_r4_c2")]] kernel decltype(linear_small_quantized<bfloat, float, q8_0, 4, 2>) linear_small_quantized<bfloat, float, q8_0, 4, 2>;
template [[host_name("linear_small_q4_1_bf16_f32_r1_c2")]] kernel decltype(linear_small_quantized<bfloat, float, q4_1, 1, 2>) linear_small_quantized<bfloat, float, q4_1, 1, 2>;
template [[host_name("linear_small_q4_1_bf16_f32_r1_c4")]] kernel decltype(linear_small_quantized<bfloat, float, q4_1, 1, 4>) linear_small_quantized<bfloat, float, q4_1, 1, 4>;
template [[host_name("linear_small_q4_1_bf16_f32_r2_c2")]] kernel decltype(linear_small_quantized<bfloat, float, q4_1, 2, 2>) linear_small_quantized<bfloat, float, q4_1, 2, 2>;
template [[host_name("linear_small_q4_1_bf16_f32_r4_c2")]] kernel decltype(linear_small_quantized<bfloat, float, q4_1, 4, 2>) linear_small_quantized<bfloat, float, q4_1, 4, 2>;
