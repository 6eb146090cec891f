// Owns what matrix products by tiles share: which tile a threadgroup has, the staging of x, the sum over simdgroups.
#include "common/fragment.h"
#include "common/linear.h"
#include "common/stage.h"

// Column and row of a threadgroup's tile. Threadgroups that run at the same time have tiles of few rows and few columns,
// so that what they read stays in the cache: rows first, inside of bands of 16.
inline uint2 tile_of(uint3 group, uint3 groups) {
  constexpr uint band = 16;
  const uint id = group.y * groups.x + group.x;
  const uint first = id / (band * groups.x) * band;
  const uint rows = min(band, groups.y - first);
  const uint within = id - first * groups.x;
  return uint2(within / rows, first + within % rows);
}

// The rows of x that a thread copies, which `rows` may name. Past the end it is the first.
template <int SHARE, int BK, int THREADS>
inline void rows_to_stage(thread uint (&x_rows)[SHARE], const device uint* rows, uint first_row, uint m,
                          uint thread_index) {
  constexpr uint chunks = BK / 8;
  #pragma unroll
  for (uint i = 0; i < SHARE; ++i) {
    const uint row = first_row + (i * THREADS + thread_index) / chunks;
    x_rows[i] = has_rows ? rows[row < m ? row : 0] : (row < m ? row : 0);
  }
}

// Stages BM x BK of x from column k on.
template <int STAGES, int BM, int BK, int THREADS, int SHARE, typename T>
inline void stage_x(threadgroup T* to, const device T* x, thread uint (&x_rows)[SHARE], constant LinearParams& p,
                    uint first_row, uint k, uint thread_index) {
  constexpr uint chunks = BK / 8;
  #pragma unroll
  for (uint i = 0; i < SHARE; ++i) {
    const uint chunk = i * THREADS + thread_index;
    const uint row = chunk / chunks;
    const uint column = chunk % chunks * 8;
    const bool inside = first_row + row < p.m && k + column < p.k;
    if (BM * chunks % THREADS == 0 || row < BM) {
      stage8<STAGES>(to + row * staged_stride<BK>() + column,
                     x + ulong(x_rows[i]) * p.x_stride + (inside ? k + column : 0),
                     inside ? p.k - k - column : 0, aligned);
    }
  }
}

// Adds up what simdgroups that share a tile have, each having taken other columns of K: first to last, into the first.
// Every thread calls; `scratch` has (sharing - 1) * tiles * TM * TN * 64 floats and is free.
template <int TM, int TN>
inline void add_simdgroups(thread simdgroup_matrix<float, 8, 8> (&acc)[TM][TN], threadgroup float* scratch,
                           uint tile, uint tiles, uint part, uint parts, uint lane) {
  if (part > 0) {
    threadgroup float* to = scratch + ((part - 1) * tiles + tile) * (TM * TN * 64) + lane;
    #pragma unroll
    for (int i = 0; i < TM; ++i)
      #pragma unroll
      for (int j = 0; j < TN; ++j)
        #pragma unroll
        for (uint e = 0; e < 2; ++e) to[((i * TN + j) * 2 + e) * 32] = acc[i][j].thread_elements()[e];
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (part == 0) {
    for (uint other = 0; other + 1 < parts; ++other) {
      const threadgroup float* from = scratch + (other * tiles + tile) * (TM * TN * 64) + lane;
      #pragma unroll
      for (int i = 0; i < TM; ++i)
        #pragma unroll
        for (int j = 0; j < TN; ++j)
          #pragma unroll
          for (uint e = 0; e < 2; ++e) acc[i][j].thread_elements()[e] += from[((i * TN + j) * 2 + e) * 32];
    }
  }
}

// Stores a simdgroup's tile whose first element is (row, column), eight rows at a time through threadgroup memory, so
// that neighbouring lanes write neighbouring columns. `scratch` is the simdgroup's own: 8 * (8 * TN + 8) floats.
template <int TM, int TN, typename T, typename Out>
inline void store_tile(thread simdgroup_matrix<float, 8, 8> (&acc)[TM][TN], threadgroup float* scratch, uint row,
                       uint column, uint lane, const device T* bias, const device T* residual, device Out* out,
                       constant LinearParams& p) {
  constexpr uint columns = 8 * TN;
  constexpr uint stride = staged_stride<8 * TN>();
  #pragma unroll
  for (int i = 0; i < TM; ++i) {
    #pragma unroll
    for (int j = 0; j < TN; ++j)
      #pragma unroll
      for (uint e = 0; e < 2; ++e)
        scratch[frag_row(lane) * stride + 8 * j + frag_col(lane) + e] = acc[i][j].thread_elements()[e];
    simdgroup_barrier(mem_flags::mem_threadgroup);
    for (uint at = lane; at < 8 * columns; at += 32) {
      store_out(scratch[at / columns * stride + at % columns], row + 8 * i + at / columns, column + at % columns, bias,
                residual, out, p);
    }
    simdgroup_barrier(mem_flags::mem_threadgroup);
  }
}
