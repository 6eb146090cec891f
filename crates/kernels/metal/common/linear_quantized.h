// Owns the kernel of out = x · Wᵀ (+ bias) (+ residual) for many rows of x and quantized W, which becomes T while it is
// staged.
#include "common/linear_tile.h"
#include "common/quantized.h"

// Columns of K that a thread dequantizes at a time, all of one block.
template <int BN, int BK, int THREADS>
inline constexpr int quantized_columns() {
  return BN * BK / THREADS >= 32 ? 32 : (BN * BK / THREADS >= 16 ? 16 : 8);
}

// Loads a thread's share of BN rows of W from column k on; what lies outside becomes zero.
template <int FORMAT, int BK, int THREADS, int COLUMNS, int SHARE, int WORDS>
inline void load_share(const device uchar* quants, const device half* scales, uint first_column, uint n, uint columns,
                       uint k, uint thread_index, thread uint (&bits)[SHARE][WORDS], thread vec<float, 2> (&scale)[SHARE]) {
  constexpr uint chunks = BK / COLUMNS;
  #pragma unroll
  for (int i = 0; i < SHARE; ++i) {
    const uint row = first_column + (i * THREADS + thread_index) / chunks;
    const uint at = k + (i * THREADS + thread_index) % chunks * COLUMNS;
    const bool inside = row < n && at < columns;
    load_bits<FORMAT>(quants, inside ? row : 0, columns, inside ? at : 0, bits[i]);
    scale[i] = inside ? load_scale<FORMAT>(scales, row, columns, at) : float2(0.0f);
  }
}

template <int FORMAT, int BN, int BK, int THREADS, int COLUMNS, int SHARE, int WORDS, typename T>
inline void put_share(threadgroup T* to, thread uint (&bits)[SHARE][WORDS], thread vec<float, 2> (&scale)[SHARE],
                      uint thread_index) {
  constexpr uint chunks = BK / COLUMNS;
  #pragma unroll
  for (int i = 0; i < SHARE; ++i) {
    const uint row = (i * THREADS + thread_index) / chunks;
    const uint at = (i * THREADS + thread_index) % chunks * COLUMNS;
    if (BN * chunks % THREADS == 0 || row < BN) {
      #pragma unroll
      for (int eight = 0; eight < COLUMNS / 8; ++eight) {
        float w[8];
        unpack8<FORMAT>(bits[i], eight, w);
        uint4 packed;
        #pragma unroll
        for (int j = 0; j < 4; ++j) {
          vec<T, 2> two;
          two.x = T(fma(w[2 * j], scale[i].x * (1.0f / pre_scale<FORMAT>(2 * j)), scale[i].y));
          two.y = T(fma(w[2 * j + 1], scale[i].x * (1.0f / pre_scale<FORMAT>(2 * j + 1)), scale[i].y));
          packed[j] = as_type<uint>(two);
        }
        *(threadgroup uint4*)(to + row * staged_stride<BK>() + at + 8 * eight) = packed;
      }
    }
  }
}

// As the kernel of dense weights, but for W: its bits are loaded into registers a tile ahead. K is a multiple of 32.
template <typename T, typename Out, int FORMAT, int BM, int BN, int BK, int WM, int WN, int WK, int STAGES>
kernel void linear_quantized(device const T* x [[buffer(0)]],
                             device const uchar* quants [[buffer(1)]],
                             device const half* scales [[buffer(2)]],
                             device const T* bias [[buffer(3)]],
                             device const T* residual [[buffer(4)]],
                             device const uint* rows [[buffer(5)]],
                             device Out* out [[buffer(6)]],
                             constant LinearParams& p [[buffer(7)]],
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
  constexpr int columns = quantized_columns<BN, BK, threads>();
  constexpr int w_share = (BN * BK / columns + threads - 1) / threads;
  constexpr int words = columns / 8 * words_of_8<FORMAT>();
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
  uint x_rows[x_share];
  rows_to_stage<x_share, BK, threads>(x_rows, rows, first_row, p.m, thread_index);
  uint bits[w_share][words];
  float2 scale[w_share];
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
      load_share<FORMAT, BK, threads, columns>(quants, scales, first_column, p.n, p.k, k, thread_index, bits, scale);
      put_share<FORMAT, BN, BK, threads, columns>(staged + BM * stride, bits, scale, thread_index);
      threadgroup_barrier(mem_flags::mem_threadgroup);
      tile_mma<TM, TN, BK / 8 / WK>(acc, staged + x_at, stride, staged + w_at, stride);
      threadgroup_barrier(mem_flags::mem_threadgroup);
    }
  } else {
    uint next = begin;
    #pragma unroll
    for (int s = 0; s < STAGES - 1; ++s) {
      if (next < end) {
        stage_x<STAGES, BM, BK, threads>(staged + s * stage_elements, x, x_rows, p, first_row, next, thread_index);
      }
      async_commit();
      next += BK;
    }
    load_share<FORMAT, BK, threads, columns>(quants, scales, first_column, p.n, p.k, begin, thread_index, bits, scale);
    put_share<FORMAT, BN, BK, threads, columns>(staged + BM * stride, bits, scale, thread_index);
    uint fill = STAGES - 1;
    uint use = 0;
    for (uint k = begin; k < end; k += BK) {
      async_wait<STAGES - 2>();
      // Also: all have used the tiles that the next ones replace.
      threadgroup_barrier(mem_flags::mem_threadgroup);
      const bool has_next = k + BK < end;
      if (has_next) {
        load_share<FORMAT, BK, threads, columns>(quants, scales, first_column, p.n, p.k, k + BK, thread_index, bits, scale);
      }
      if (next < end) {
        stage_x<STAGES, BM, BK, threads>(staged + fill * stage_elements, x, x_rows, p, first_row, next, thread_index);
      }
      async_commit();
      next += BK;
      fill = fill + 1 == STAGES ? 0 : fill + 1;
      const threadgroup T* from = staged + use * stage_elements;
      tile_mma<TM, TN, BK / 8 / WK>(acc, from + x_at, stride, from + w_at, stride);
      use = use + 1 == STAGES ? 0 : use + 1;
      if (has_next) {
        put_share<FORMAT, BN, BK, threads, columns>(staged + use * stage_elements + BM * stride, bits, scale, thread_index);
      }
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
