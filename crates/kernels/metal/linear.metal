// Owns out = x · Wᵀ (+ bias) (+ residual) for many rows of x, by simdgroup matrices.
#include <metal_stdlib>
using namespace metal;
#include "common/linear.h"

// A tile of BM x BN by 128 threads: four simdgroups, two by two. Threadgroup memory: (BM + BN) rows of BK + 8 elements.
template <typename T, typename Out, int BM, int BN, int BK>
kernel void linear(device const T* x [[buffer(0)]],
                   device const T* weight [[buffer(1)]],
                   device const T* bias [[buffer(2)]],
                   device const T* residual [[buffer(3)]],
                   device const uint* rows [[buffer(4)]],
                   device Out* out [[buffer(5)]],
                   constant LinearParams& p [[buffer(6)]],
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
    stage_tile<BN, BK>(w_tile, weight + ulong(first_column) * p.k + k, p.k, p.n - first_column, p.k - k,
                       aligned, thread_index, 128);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    tile_mma<TM, TN, BK / 8>(acc, x_tile + tile_row * stride, stride, w_tile + tile_column * stride, stride);
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
  store_tile(acc, first_row + tile_row, first_column + tile_column, lane, bias, residual, out, p);
}

template [[host_name("linear_f16_f16_64x32x32")]] kernel decltype(linear<half, half, 64, 32, 32>) linear<half, half, 64, 32, 32>;
template [[host_name("linear_f16_f16_64x64x16")]] kernel decltype(linear<half, half, 64, 64, 16>) linear<half, half, 64, 64, 16>;
template [[host_name("linear_f16_f16_32x32x32")]] kernel decltype(linear<half, half, 32, 32, 32>) linear<half, half, 32, 32, 32>;
template [[host_name("linear_f16_f32_64x32x32")]] kernel decltype(linear<half, float, 64, 32, 32>) linear<half, float, 64, 32, 32>;
template [[host_name("linear_f16_f32_64x64x16")]] kernel decltype(linear<half, float, 64, 64, 16>) linear<half, float, 64, 64, 16>;
template [[host_name("linear_f16_f32_32x32x32")]] kernel decltype(linear<half, float, 32, 32, 32>) linear<half, float, 32, 32, 32>;
template [[host_name("linear_bf16_bf16_64x32x32")]] kernel decltype(linear<bfloat, bfloat, 64, 32, 32>) linear<bfloat, bfloat, 64, 32, 32>;
template [[host_name("linear_bf16_bf16_64x64x16")]] kernel decltype(linear<bfloat, bfloat, 64, 64, 16>) linear<bfloat, bfloat, 64, 64, 16>;
template [[host_name("linear_bf16_bf16_32x32x32")]] kernel decltype(linear<bfloat, bfloat, 32, 32, 32>) linear<bfloat, bfloat, 32, 32, 32>;
template [[host_name("linear_bf16_f32_64x32x32")]] kernel decltype(linear<bfloat, float, 64, 32, 32>) linear<bfloat, float, 64, 32, 32>;
template [[host_name("linear_bf16_f32_64x64x16")]] kernel decltype(linear<bfloat, float, 64, 64, 16>) linear<bfloat, float, 64, 64, 16>;
template [[host_name("linear_bf16_f32_32x32x32")]] kernel decltype(linear<bfloat, float, 32, 32, 32>) linear<bfloat, float, 32, 32, 32>;
