// Owns the kernel of attention of many queries of a sequence over its pages, by simdgroup matrices.
#include "common/fragment.h"
#include "common/pages.h"
#include "common/stage.h"

// Rows of q lie on 16-byte boundaries; keys and values always do, since head_dim is a multiple of 8.
constant bool aligned [[function_constant(0)]];

// Below every score; finite, so that differences of it are no NaN.
constexpr constant float lowest = -1.0e30f;
constexpr constant float log2_e = 1.44269504f;

struct PrefillParams {
  ulong page_stride;
  ulong layer_offset;
  uint heads;
  uint kv_heads;
  uint head_dim;
  uint tokens_per_page;
  uint q_stride;
  uint out_stride;
  uint window;
  float scale;
};

// Stages BK tokens of one head from `from` on, a multiple of BK, those outside of begin..end as zeros: earlier ones may be
// in pages that now belong to others. `plane` leads from keys to what is wanted.
template <int STAGES, typename T, int D, int BK>
inline void stage_tokens(threadgroup T* to, const device T* pages, const device uint* blocks, int table,
                         constant PrefillParams& p, uint kv_head, ulong plane, uint from, uint begin, uint end,
                         uint thread_index) {
  constexpr uint chunks = D / 8;
  // All of them are in one page.
  const bool one_page = p.tokens_per_page % BK == 0;
  const uint first_page = blocks[table + int(max(from, begin) / p.tokens_per_page)];
  const device T* first = pages + plane + key_offset(p.page_stride, p.layer_offset, p.tokens_per_page, p.head_dim,
                                                     first_page, kv_head, from % p.tokens_per_page);
  #pragma unroll
  for (uint i = 0; i < staged_share<BK, D, 128>(); ++i) {
    const uint chunk = i * 128 + thread_index;
    const uint row = chunk / chunks;
    const uint column = chunk % chunks * 8;
    const uint token = clamp(from + row, begin, end - 1);
    const bool inside = token == from + row && column < p.head_dim;
    const device T* source = first + (inside ? row * p.head_dim : 0);
    if (!one_page) {
      const uint page = blocks[table + int(token / p.tokens_per_page)];
      source = pages + plane + key_offset(p.page_stride, p.layer_offset, p.tokens_per_page, p.head_dim,
                                          page, kv_head, token % p.tokens_per_page);
    }
    if (BK * chunks % 128 == 0 || row < BK) {
      stage8<STAGES>(to + row * staged_stride<D>() + column, source + (inside ? column : 0), inside ? 8 : 0, true);
    }
  }
}

// Turns scores into shares of what is seen so far, and fits best, total and sums to that.
template <typename T, int D, int TM, int BK>
inline void take_shares(thread simdgroup_matrix<float, 8, 8> (&scores)[TM][BK / 8],
                        thread simdgroup_matrix<T, 8, 8> (&shares)[TM][BK / 8],
                        thread simdgroup_matrix<float, 8, 8> (&sums)[TM][D / 8], thread float (&best)[TM],
                        thread float (&total)[TM], float scale, uint key, uint first, uint end, uint window, bool all_seen,
                        uint lane) {
  #pragma unroll
  for (int i = 0; i < TM; ++i) {
    const uint position = first + 8 * i + frag_row(lane);
    #pragma unroll
    for (int j = 0; j < BK / 8; ++j)
      #pragma unroll
      for (uint e = 0; e < 2; ++e) scores[i][j].thread_elements()[e] *= scale;
    if (!all_seen) {
      #pragma unroll
      for (int j = 0; j < BK / 8; ++j)
        #pragma unroll
        for (uint e = 0; e < 2; ++e) {
          const uint seen = key + 8 * j + frag_col(lane) + e;
          const bool visible = seen <= position && seen < end && (window == 0 || seen + window > position);
          if (!visible) scores[i][j].thread_elements()[e] = lowest;
        }
    }
    float high = lowest;
    #pragma unroll
    for (int j = 0; j < BK / 8; ++j)
      #pragma unroll
      for (uint e = 0; e < 2; ++e) high = max(high, scores[i][j].thread_elements()[e]);
    const float next_best = max(best[i], row_max(high));
    const float keep = fast::exp2(best[i] - next_best);
    best[i] = next_best;
    float sum = 0.0f;
    #pragma unroll
    for (int j = 0; j < BK / 8; ++j)
      #pragma unroll
      for (uint e = 0; e < 2; ++e) {
        const float score = scores[i][j].thread_elements()[e];
        const float share = score > lowest ? fast::exp2(score - next_best) : 0.0f;
        shares[i][j].thread_elements()[e] = T(share);
        sum += share;
      }
    total[i] = total[i] * keep + row_sum(sum);
    #pragma unroll
    for (int j = 0; j < D / 8; ++j)
      #pragma unroll
      for (uint e = 0; e < 2; ++e) sums[i][j].thread_elements()[e] *= keep;
  }
}

// Grid: (head, tile). A tile is 32 TM queries of one sequence, 8 TM a simdgroup: tiles[i] has the sequence and its first
// query. Threadgroup memory: rows of D + 8 elements, 32 TM for queries and BK for keys, then values. With two stages
// another BK for values, so that one is on its way while the other is used.
template <typename T, int D, int TM, int BK, int STAGES>
kernel void attention_prefill(device const T* q [[buffer(0)]],
                              device const T* pages [[buffer(1)]],
                              device const uint2* tiles [[buffer(2)]],
                              device const uint* query_start [[buffer(3)]],
                              device const uint* contexts [[buffer(4)]],
                              device const int* tables [[buffer(5)]],
                              device const uint* blocks [[buffer(6)]],
                              device T* out [[buffer(7)]],
                              constant PrefillParams& p [[buffer(8)]],
                              threadgroup T* staged [[threadgroup(0)]],
                              uint2 group [[threadgroup_position_in_grid]],
                              uint thread_index [[thread_index_in_threadgroup]],
                              uint lane [[thread_index_in_simdgroup]],
                              uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  constexpr uint stride = staged_stride<D>();
  constexpr uint most_queries = 32 * TM;
  const uint head = group.x;
  const uint kv_head = head / (p.heads / p.kv_heads);
  const uint sequence = tiles[group.y].x;
  const uint first = tiles[group.y].y;
  const uint start = query_start[sequence];
  const uint length = query_start[sequence + 1] - start;
  const uint queries = min(length - first, most_queries);
  const uint first_position = contexts[sequence] - length + first;
  const int table = tables[sequence];
  const ulong to_value = key_to_value(p.kv_heads, p.tokens_per_page, p.head_dim);
  threadgroup T* q_tile = staged + 8 * TM * simdgroup * stride;
  threadgroup T* k_tile = staged + most_queries * stride;
  threadgroup T* v_tile = STAGES == 1 ? k_tile : k_tile + BK * stride;
  const uint end = first_position + queries;
  const uint first_seen = p.window > 0 && first_position + 1 > p.window ? first_position + 1 - p.window : 0;
  const uint simdgroup_first = first_position + 8 * TM * simdgroup;
  stage_tile<1, 32 * TM, D, 128>(staged, q + ulong(start + first) * p.q_stride + head * p.head_dim, p.q_stride,
                                 queries, p.head_dim, aligned, thread_index);
  if constexpr (STAGES > 1) {
    stage_tokens<STAGES, T, D, BK>(k_tile, pages, blocks, table, p, kv_head, 0, first_seen / BK * BK, first_seen, end,
                                   thread_index);
    async_commit();
  }

  simdgroup_matrix<float, 8, 8> sums[TM][D / 8];
  float best[TM];
  float total[TM];
  #pragma unroll
  for (int i = 0; i < TM; ++i) {
    #pragma unroll
    for (int j = 0; j < D / 8; ++j) sums[i][j] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
    best[i] = lowest;
    total[i] = 0.0f;
  }
  for (uint key = first_seen / BK * BK; key < end; key += BK) {
    if constexpr (STAGES == 1) {
      stage_tokens<1, T, D, BK>(k_tile, pages, blocks, table, p, kv_head, 0, key, first_seen, end, thread_index);
      threadgroup_barrier(mem_flags::mem_threadgroup);
    } else {
      async_wait<0>();
      // Also: all have used the values before these.
      threadgroup_barrier(mem_flags::mem_threadgroup);
      stage_tokens<STAGES, T, D, BK>(v_tile, pages, blocks, table, p, kv_head, to_value, key, first_seen, end,
                                     thread_index);
      async_commit();
    }
    simdgroup_matrix<float, 8, 8> scores[TM][BK / 8];
    #pragma unroll
    for (int i = 0; i < TM; ++i)
      #pragma unroll
      for (int j = 0; j < BK / 8; ++j) scores[i][j] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
    tile_mma<TM, BK / 8, D / 8>(scores, q_tile, stride, k_tile, stride);
    if constexpr (STAGES == 1) {
      threadgroup_barrier(mem_flags::mem_threadgroup);
      stage_tokens<1, T, D, BK>(v_tile, pages, blocks, table, p, kv_head, to_value, key, first_seen, end,
                                thread_index);
    }
    simdgroup_matrix<T, 8, 8> shares[TM][BK / 8];
    const bool all_seen = key + BK <= first_position + 1 && (p.window == 0 || key + p.window >= end);
    take_shares<T, D, TM, BK>(scores, shares, sums, best, total, p.scale * log2_e, key, simdgroup_first, end, p.window,
                              all_seen, lane);
    if constexpr (STAGES > 1) async_wait<0>();
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if constexpr (STAGES > 1) {
      if (key + BK < end) {
        stage_tokens<STAGES, T, D, BK>(k_tile, pages, blocks, table, p, kv_head, 0, key + BK, first_seen, end,
                                       thread_index);
      }
      async_commit();
    }
    tile_mma_rows<TM, D / 8, BK / 8>(sums, shares, v_tile, stride);
    if constexpr (STAGES == 1) threadgroup_barrier(mem_flags::mem_threadgroup);
  }

  #pragma unroll
  for (int i = 0; i < TM; ++i) {
    const uint query = 8 * (TM * simdgroup + i) + frag_row(lane);
    const float scale = total[i] > 0.0f ? 1.0f / total[i] : 0.0f;
    device T* to = out + ulong(start + first + query) * p.out_stride + head * p.head_dim;
    #pragma unroll
    for (int j = 0; j < D / 8; ++j)
      #pragma unroll
      for (uint e = 0; e < 2; ++e) {
        const uint column = 8 * j + frag_col(lane) + e;
        if (query < queries && column < p.head_dim) to[column] = T(sums[i][j].thread_elements()[e] * scale);
      }
  }
}
