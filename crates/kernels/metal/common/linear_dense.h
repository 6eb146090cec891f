// Owns the kernel of out = x · Wᵀ (+ bias) (+ residual) for many rows of x, by simdgroup matrices.
#include "common/linear_tile.h"

// A tile of BM x BN by WM x WN x WK simdgroups, of which WK share a part of the tile and each takes its own columns of a
// stage's K. K comes in tiles of BK, STAGES of them in threadgroup memory: STAGES * (BM + BN) rows of BK + 8 elements.
// Grid: columns by rows by parts of K.
template <typename T, typename Out, int BM, int BN, int BK, int WM, int WN, int WK, int STAGES>
kernel void linear(device const T* x [[buffer(0)]],
                   device const T* weight [[buffer(1)]],
                   device const T* bias [[buffer(2)]],
                   device const T* residual [[buffer(3)]],
                   device const uint* rows [[buffer(4)]],
                   device Out* out [[buffer(5)]],
                   constant LinearParams& p [[buffer(6)]],
                   threadgroup T* staged [[threadgroup(0)]],
                   uint3 group [[threadgroup_position_in_grid]],
                   uint3 groups [[threadgroups_per_grid]],
                   uint thread_index [[thread_index_in_threadgroup]],
                   uint lane [[thread_index_in_simdgroup]],
                   uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  constexpr int TM = BM / WM / 8;
  constexpr int TN = BN / WN / 8;
  constexpr int threads = 32 * WM * WN * WK;
  constexpr int x_share = staged_share<BM, BK, threads>();
  constexpr uint stride = staged_stride<BK>();
  constexpr uint stage_elements = (BM + BN) * stride;
  const uint2 tile = tile_of(group, groups);
  const uint first_row = tile.y * BM;
  const uint first_column = tile.x * BN;
  const uint part = simdgroup / (WM * WN);
  const uint place = simdgroup % (WM * WN);
  const uint tile_row = place / WN * (BM / WM);
  const uint tile_column = place % WN * (BN / WN);
  const uint begin = group.z * p.part_k;
  const uint end = min(p.k, begin + p.part_k);
  const device T* w_rows = weight + ulong(first_column) * p.k;
  uint x_rows[x_share];
  rows_to_stage<x_share, BK, threads>(x_rows, rows, first_row, p.m, thread_index);
  simdgroup_matrix<float, 8, 8> acc[TM][TN];
  #pragma unroll
  for (int i = 0; i < TM; ++i)
    #pragma unroll
    for (int j = 0; j < TN; ++j) acc[i][j] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
  const uint x_at = tile_row * stride + part * (BK / WK);
  const uint w_at = (BM + tile_column) * stride + part * (BK / WK);

  if constexpr (STAGES == 1) {
    for (uint k = begin; k < end; k += BK) {
      stage_x<1, BM, BK, threads>(staged, x, x_rows, p, first_row, k, thread_index);
      stage_tile<1, BN, BK, threads>(staged + BM * stride, w_rows + k, p.k, p.n - first_column, p.k - k, aligned,
                                     thread_index);
      threadgroup_barrier(mem_flags::mem_threadgroup);
      tile_mma<TM, TN, BK / 8 / WK>(acc, staged + x_at, stride, staged + w_at, stride);
      threadgroup_barrier(mem_flags::mem_threadgroup);
    }
  } else {
    // Tiles are started STAGES - 1 ahead. A commit a tile, be it empty, so that the count of those under way is known.
    uint next = begin;
    #pragma unroll
    for (int s = 0; s < STAGES - 1; ++s) {
      if (next < end) {
        threadgroup T* to = staged + s * stage_elements;
        stage_x<STAGES, BM, BK, threads>(to, x, x_rows, p, first_row, next, thread_index);
        stage_tile<STAGES, BN, BK, threads>(to + BM * stride, w_rows + next, p.k, p.n - first_column, p.k - next,
                                            aligned, thread_index);
      }
      async_commit();
      next += BK;
    }
    uint fill = STAGES - 1;
    uint use = 0;
    for (uint k = begin; k < end; k += BK) {
      async_wait<STAGES - 2>();
      // Also: all have used the tile that the next one replaces.
      threadgroup_barrier(mem_flags::mem_threadgroup);
      if (next < end) {
        threadgroup T* to = staged + fill * stage_elements;
        stage_x<STAGES, BM, BK, threads>(to, x, x_rows, p, first_row, next, thread_index);
        stage_tile<STAGES, BN, BK, threads>(to + BM * stride, w_rows + next, p.k, p.n - first_column, p.k - next,
                                            aligned, thread_index);
      }
      async_commit();
      next += BK;
      fill = fill + 1 == STAGES ? 0 : fill + 1;
      const threadgroup T* from = staged + use * stage_elements;
      tile_mma<TM, TN, BK / 8 / WK>(acc, from + x_at, stride, from + w_at, stride);
      use = use + 1 == STAGES ? 0 : use + 1;
    }
  }
  threadgroup float* scratch = (threadgroup float*)staged;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if constexpr (WK > 1) {
    add_simdgroups(acc, scratch, place, WM * WN, part, WK, lane);
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
  if (part == 0) {
    store_tile(acc, scratch + place * (8 * staged_stride<8 * TN>()), first_row + tile_row, first_column + tile_column,
               lane, bias, residual, out + ulong(group.z) * p.m * p.n, p);
  }
}
