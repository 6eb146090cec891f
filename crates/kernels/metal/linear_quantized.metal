// Owns out = x · Wᵀ (+ bias) (+ residual) for many rows of x and quantized W, which becomes T while it is staged.
#include <metal_stdlib>
using namespace metal;
#include "common/linear.h"
#include "common/quantized.h"

// Stages BN rows of W from column k on; rows past the end as zeros. K is a multiple of 32 and of BK.
template <int BN, int BK, int FORMAT, typename T>
inline void stage_quantized(threadgroup T* to, const device uchar* quants, const device half* scales,
                            uint first_column, uint n, uint columns, uint k, uint thread_index) {
  constexpr uint chunks = BK / 8;
  for (uint chunk = thread_index; chunk < BN * chunks; chunk += 128) {
    const uint row = chunk / chunks;
    const uint at = chunk % chunks * 8;
    const uint w_row = min(first_column + row, n - 1);
    float w[8];
    load_quants<FORMAT>(quants, w_row, columns, k + at, w);
    const float scale = first_column + row < n ? load_scale<FORMAT>(scales, w_row, columns, k + at) : 0.0f;
    const float offset = first_column + row < n ? load_offset<FORMAT>(scales, w_row, columns, k + at) : 0.0f;
    #pragma unroll
    for (uint i = 0; i < 8; ++i) to[row * staged_stride<BK>() + at + i] = T(fma(w[i], scale, offset));
  }
}

// A tile of BM x BN by 128 threads: four simdgroups, two by two. Threadgroup memory: (BM + BN) rows of BK + 8 elements.
template <typename T, typename Out, int FORMAT, int BM, int BN, int BK>
kernel void linear_quantized(device const T* x [[buffer(0)]],
                             device const uchar* quants [[buffer(1)]],
                             device const half* scales [[buffer(2)]],
                             device const T* bias [[buffer(3)]],
                             device const T* residual [[buffer(4)]],
                             device const uint* rows [[buffer(5)]],
                             device Out* out [[buffer(6)]],
                             constant LinearParams& p [[buffer(7)]],
                             threadgroup T* staged [[threadgroup(0)]],
                             uint2 group [[threadgroup_position_in_grid]],
                             uint thread_index [[thread_index_in_threadgroup]],
                             uint lane [[thread_index_in_simdgroup]],
                             uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  constexpr int TM = BM / 16;
  constexpr int TN = BN / 16;
  constexpr uint stride = staged_stride<BK>();
  const uint first_row = group.y * BM;
  const uint first_column = group.x * BN;
  const uint tile_row = simdgroup / 2 * (BM / 2);
  const uint tile_column = simdgroup % 2 * (BN / 2);
  threadgroup T* x_tile = staged;
  threadgroup T* w_tile = staged + BM * stride;
  simdgroup_matrix<float, 8, 8> acc[TM][TN];
  #pragma unroll
  for (int i = 0; i < TM; ++i)
    #pragma unroll
    for (int j = 0; j < TN; ++j) acc[i][j] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
  for (uint k = 0; k < p.k; k += BK) {
    stage_x<BM, BK>(x_tile, x, rows, p, first_row, k, thread_index);
    stage_quantized<BN, BK, FORMAT>(w_tile, quants, scales, first_column, p.n, p.k, k, thread_index);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    tile_mma<TM, TN, BK / 8>(acc, x_tile + tile_row * stride, stride, w_tile + tile_column * stride, stride);
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
  store_tile(acc, first_row + tile_row, first_column + tile_column, lane, bias, residual, out, p);
}

template [[host_name("linear_q8_0_f16_f16_64x32x32")]] kernel decltype(linear_quantized<half, half, q8_0, 64, 32, 32>) linear_quantized<half, half, q8_0, 64, 32, 32>;
template [[host_name("linear_q8_0_f16_f16_32x32x32")]] kernel decltype(linear_quantized<half, half, q8_0, 32, 32, 32>) linear_quantized<half, half, q8_0, 32, 32, 32>;
template [[host_name("linear_q4_1_f16_f16_64x32x32")]] kernel decltype(linear_quantized<half, half, q4_1, 64, 32, 32>) linear_quantized<half, half, q4_1, 64, 32, 32>;
template [[host_name("linear_q4_1_f16_f16_32x32x32")]] kernel decltype(linear_quantized<half, half, q4_1, 32, 32, 32>) linear_quantized<half, half, q4_1, 32, 32, 32>;
template [[host_name("linear_q8_0_f16_f32_64x32x32")]] kernel decltype(linear_quantized<half, float, q8_0, 64, 32, 32>) linear_quantized<half, float, q8_0, 64, 32, 32>;
template [[host_name("linear_q8_0_f16_f32_32x32x32")]] kernel decltype(linear_quantized<half, float, q8_0, 32, 32, 32>) linear_quantized<half, float, q8_0, 32, 32, 32>;
template [[host_name("linear_q4_1_f16_f32_64x32x32")]] kernel decltype(linear_quantized<half, float, q4_1, 64, 32, 32>) linear_quantized<half, float, q4_1, 64, 32, 32>;
template [[host_name("linear_q4_1_f16_f32_32x32x32")]] kernel decltype(linear_quantized<half, float, q4_1, 32, 32, 32>) linear_quantized<half, float, q4_1, 32, 32, 32>;
template [[host_name("linear_q8_0_bf16_bf16_64x32x32")]] kernel decltype(linear_quantized<bfloat, bfloat, q8_0, 64, 32, 32>) linear_quantized<bfloat, bfloat, q8_0, 64, 32, 32>;
template [[host_name("linear_q8_0_bf16_bf16_32x32x32")]] kernel decltype(linear_quantized<bfloat, bfloat, q8_0, 32, 32, 32>) linear_quantized<bfloat, bfloat, q8_0, 32, 32, 32>;
template [[host_name("linear_q4_1_bf16_bf16_64x32x32")]] kernel decltype(linear_quantized<bfloat, bfloat, q4_1, 64, 32, 32>) linear_quantized<bfloat, bfloat, q4_1, 64, 32, 32>;
template [[host_name("linear_q4_1_bf16_bf16_32x32x32")]] kernel decltype(linear_quantized<bfloat, bfloat, q4_1, 32, 32, 32>) linear_quantized<bfloat, bfloat, q4_1, 32, 32, 32>;
template [[host_name("linear_q8_0_bf16_f32_64x32x32")]] kernel decltype(linear_quantized<bfloat, float, q8_0, 64, 32, 32>) linear_quantized<bfloat, float, q8_0, 64, 32, 32>;
template [[host_name("linear_q8_0_bf16_f32_32x32x32")]] kernel decltype(linear_quantized<bfloat, float, q8_0, 32, 32, 32>) linear_quantized<bfloat, float, q8_0, 32, 32, 32>;
template [[host_name("linear_q4_1_bf16_f32_64x32x32")]] kernel decltype(linear_quantized<bfloat, float, q4_1, 64, 32, 32>) linear_quantized<bfloat, float, q4_1, 64, 32, 32>;
template [[host_name("linear_q4_1_bf16_f32_32x32x32")]] kernel decltype(linear_quantized<bfloat, float, q4_1, 32, 32, 32>) linear_quantized<bfloat, float, q4_1, 32, 32, 32>;
