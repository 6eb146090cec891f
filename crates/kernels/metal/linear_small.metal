// Owns out = x · Wᵀ (+ bias) (+ residual) for few rows of x: lanes split K, so that W streams through once, contiguously.
#include <metal_stdlib>
using namespace metal;
#include "common/element.h"
#include "common/linear.h"

// Adds the products of eight columns of K.
template <typename T, int ROWS, int COLUMNS>
inline void add_products(thread float (&sums)[ROWS][COLUMNS], thread vec<uint, 4> (&x_bits)[ROWS],
                         thread vec<uint, 4> (&w_bits)[COLUMNS]) {
  float w[COLUMNS][8];
  #pragma unroll
  for (int c = 0; c < COLUMNS; ++c) widen8<T>(w_bits[c], w[c]);
  #pragma unroll
  for (int r = 0; r < ROWS; ++r) {
    float v[8];
    widen8<T>(x_bits[r], v);
    #pragma unroll
    for (int c = 0; c < COLUMNS; ++c)
      #pragma unroll
      for (int i = 0; i < 8; ++i) sums[r][c] = fma(v[i], w[c][i], sums[r][c]);
  }
}

// A simdgroup makes COLUMNS columns of out for ROWS rows of x, which it keeps against each stretch of W.
// `rows` names rows of x, where not all are wanted. Grid: columns by rows.
template <typename T, typename Out, int ROWS, int COLUMNS>
kernel void linear_small(device const T* x [[buffer(0)]],
                         device const T* weight [[buffer(1)]],
                         device const T* bias [[buffer(2)]],
                         device const T* residual [[buffer(3)]],
                         device const uint* rows [[buffer(4)]],
                         device Out* out [[buffer(5)]],
                         constant LinearParams& p [[buffer(6)]],
                         uint2 group [[threadgroup_position_in_grid]],
                         uint lane [[thread_index_in_simdgroup]],
                         uint simdgroup [[simdgroup_index_in_threadgroup]],
                         uint simdgroups [[simdgroups_per_threadgroup]]) {
  const uint first_column = (group.x * simdgroups + simdgroup) * COLUMNS;
  const uint first_row = group.y * ROWS;
  // Past the end the last row or column is computed again and not stored: control flow stays uniform.
  const device T* x_rows[ROWS];
  #pragma unroll
  for (int r = 0; r < ROWS; ++r) {
    const uint row = min(first_row + r, p.m - 1);
    x_rows[r] = x + ulong(has_rows ? rows[row] : row) * p.x_stride;
  }
  const device T* w_rows[COLUMNS];
  #pragma unroll
  for (int c = 0; c < COLUMNS; ++c) w_rows[c] = weight + ulong(min(first_column + c, p.n - 1)) * p.k;
  float sums[ROWS][COLUMNS];
  #pragma unroll
  for (int r = 0; r < ROWS; ++r)
    #pragma unroll
    for (int c = 0; c < COLUMNS; ++c) sums[r][c] = 0.0f;
  if (aligned) {
    // So many loads of W are under way at a time: one alone waits for memory.
    constexpr uint ahead = COLUMNS < 4 ? 4 / COLUMNS : 1;
    uint k = lane * 8;
    for (; k + (ahead - 1) * 256 < p.k; k += ahead * 256) {
      uint4 w_bits[ahead][COLUMNS];
      #pragma unroll
      for (uint u = 0; u < ahead; ++u)
        #pragma unroll
        for (int c = 0; c < COLUMNS; ++c) w_bits[u][c] = *(const device uint4*)(w_rows[c] + k + u * 256);
      #pragma unroll
      for (uint u = 0; u < ahead; ++u) {
        uint4 x_bits[ROWS];
        #pragma unroll
        for (int r = 0; r < ROWS; ++r) x_bits[r] = *(const device uint4*)(x_rows[r] + k + u * 256);
        add_products<T>(sums, x_bits, w_bits[u]);
      }
    }
    for (; k < p.k; k += 256) {
      uint4 w_bits[COLUMNS];
      #pragma unroll
      for (int c = 0; c < COLUMNS; ++c) w_bits[c] = *(const device uint4*)(w_rows[c] + k);
      uint4 x_bits[ROWS];
      #pragma unroll
      for (int r = 0; r < ROWS; ++r) x_bits[r] = *(const device uint4*)(x_rows[r] + k);
      add_products<T>(sums, x_bits, w_bits);
    }
  } else {
    for (uint k = lane; k < p.k; k += 32)
      #pragma unroll
      for (int r = 0; r < ROWS; ++r)
        #pragma unroll
        for (int c = 0; c < COLUMNS; ++c) sums[r][c] = fma(float(x_rows[r][k]), float(w_rows[c][k]), sums[r][c]);
  }
  #pragma unroll
  for (int r = 0; r < ROWS; ++r)
    #pragma unroll
    for (int c = 0; c < COLUMNS; ++c) {
      const float value = simd_sum(sums[r][c]);
      if (lane == 0) store_out(value, first_row + r, first_column + c, bias, residual, out, p);
    }
}

template [[host_name("linear_small_f16_f16_r1_c1")]] kernel decltype(linear_small<half, half, 1, 1>) linear_small<half, half, 1, 1>;
template [[host_name("linear_small_f16_f16_r1_c4")]] kernel decltype(linear_small<half, half, 1, 4>) linear_small<half, half, 1, 4>;
template [[host_name("linear_small_f16_f16_r2_c2")]] kernel decltype(linear_small<half, half, 2, 2>) linear_small<half, half, 2, 2>;
template [[host_name("linear_small_f16_f16_r4_c1")]] kernel decltype(linear_small<half, half, 4, 1>) linear_small<half, half, 4, 1>;
template [[host_name("linear_small_f16_f32_r1_c1")]] kernel decltype(linear_small<half, float, 1, 1>) linear_small<half, float, 1, 1>;
template [[host_name("linear_small_f16_f32_r1_c4")]] kernel decltype(linear_small<half, float, 1, 4>) linear_small<half, float, 1, 4>;
template [[host_name("linear_small_f16_f32_r2_c2")]] kernel decltype(linear_small<half, float, 2, 2>) linear_small<half, float, 2, 2>;
template [[host_name("linear_small_f16_f32_r4_c1")]] kernel decltype(linear_small<half, float, 4, 1>) linear_small<half, float, 4, 1>;
template [[host_name("linear_small_bf16_bf16_r1_c1")]] kernel decltype(linear_small<bfloat, bfloat, 1, 1>) linear_small<bfloat, bfloat, 1, 1>;
template [[host_name("linear_small_bf16_bf16_r1_c4")]] kernel decltype(linear_small<bfloat, bfloat, 1, 4>) linear_small<bfloat, bfloat, 1, 4>;
template [[host_name("linear_small_bf16_bf16_r2_c2")]] kernel decltype(linear_small<bfloat, bfloat, 2, 2>) linear_small<bfloat, bfloat, 2, 2>;
template [[host_name("linear_small_bf16_bf16_r4_c1")]] kernel decltype(linear_small<bfloat, bfloat, 4, 1>) linear_small<bfloat, bfloat, 4, 1>;
template [[host_name("linear_small_bf16_f32_r1_c1")]] kernel decltype(linear_small<bfloat, float, 1, 1>) linear_small<bfloat, float, 1, 1>;
template [[host_name("linear_small_bf16_f32_r1_c4")]] kernel decltype(linear_small<bfloat, float, 1, 4>) linear_small<bfloat, float, 1, 4>;
template [[host_name("linear_small_bf16_f32_r2_c2")]] kernel decltype(linear_small<bfloat, float, 2, 2>) linear_small<bfloat, float, 2, 2>;
template [[host_name("linear_small_bf16_f32_r4_c1")]] kernel decltype(linear_small<bfloat, float, 4, 1>) linear_small<bfloat, float, 4, 1>;
