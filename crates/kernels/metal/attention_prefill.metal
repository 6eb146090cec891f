// Owns attention of many queries of a sequence over its pages, by simdgroup matrices.
#include <metal_stdlib>
using namespace metal;
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

// Stages BK tokens of one head from `from` on, those outside of begin..end as zeros: earlier ones may be in pages that
// now belong to others. `plane` leads from keys to what is wanted.
template <typename T, int D, int BK>
inline void stage_tokens(threadgroup T* to, const device T* pages, const device uint* blocks, int table,
                         constant PrefillParams& p, uint kv_head, ulong plane, uint from, uint begin, uint end,
                         uint thread_index) {
  constexpr uint chunks = D / 8;
  for (uint chunk = thread_index; chunk < BK * chunks; chunk += 128) {
    const uint row = chunk / chunks;
    const uint column = chunk % chunks * 8;
    const uint token = clamp(from + row, begin, end - 1);
    const uint page = blocks[table + int(token / p.tokens_per_page)];
    const ulong at = key_offset(p.page_stride, p.layer_offset, p.tokens_per_page, p.head_dim,
                                page, kv_head, token % p.tokens_per_page);
    const uint valid = token == from + row && column < p.head_dim ? p.head_dim - column : 0;
    stage8(to + row * staged_stride<D>() + column, pages + at + plane + column, valid, true);
  }
}

// Grid: (head, tile). A tile is 32 queries of one sequence, eight a simdgroup: tiles[i] has the sequence and its first
// query. Threadgroup memory: (32 + BK) rows of D + 8 elements.
template <typename T, int D, int BK>
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
  const uint head = group.x;
  const uint kv_head = head / (p.heads / p.kv_heads);
  const uint sequence = tiles[group.y].x;
  const uint first = tiles[group.y].y;
  const uint start = query_start[sequence];
  const uint length = query_start[sequence + 1] - start;
  const uint queries = min(length - first, 32u);
  const uint first_position = contexts[sequence] - length + first;
  const int table = tables[sequence];
  threadgroup T* q_tile = staged;
  threadgroup T* kv_tile = staged + 32 * stride;
  stage_tile<32, D>(q_tile, q + ulong(start + first) * p.q_stride + head * p.head_dim, p.q_stride,
                    queries, p.head_dim, aligned, thread_index, 128);

  simdgroup_matrix<float, 8, 8> sums[D / 8];
  #pragma unroll
  for (int j = 0; j < D / 8; ++j) sums[j] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
  float best = lowest;
  float total = 0.0f;
  const uint position = first_position + 8 * simdgroup + frag_row(lane);
  const uint end = first_position + queries;
  const uint first_seen = p.window > 0 && first_position + 1 > p.window ? first_position + 1 - p.window : 0;
  for (uint key = first_seen / BK * BK; key < end; key += BK) {
    stage_tokens<T, D, BK>(kv_tile, pages, blocks, table, p, kv_head, 0, key, first_seen, end,
                           thread_index);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    simdgroup_matrix<float, 8, 8> scores[1][BK / 8];
    #pragma unroll
    for (int j = 0; j < BK / 8; ++j) scores[0][j] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
    tile_mma<1, BK / 8, D / 8>(scores, q_tile + 8 * simdgroup * stride, stride, kv_tile, stride);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    stage_tokens<T, D, BK>(kv_tile, pages, blocks, table, p, kv_head,
                           key_to_value(p.kv_heads, p.tokens_per_page, p.head_dim), key, first_seen, end,
                           thread_index);
    float high = lowest;
    #pragma unroll
    for (int j = 0; j < BK / 8; ++j)
      #pragma unroll
      for (uint e = 0; e < 2; ++e) {
        const uint seen = key + 8 * j + frag_col(lane) + e;
        const bool visible = seen <= position && seen < end && (p.window == 0 || seen + p.window > position);
        const float score = visible ? scores[0][j].thread_elements()[e] * (p.scale * log2_e) : lowest;
        scores[0][j].thread_elements()[e] = score;
        high = max(high, score);
      }
    const float next_best = max(best, row_max(high));
    const float keep = fast::exp2(best - next_best);
    best = next_best;
    float shares_total = 0.0f;
    simdgroup_matrix<T, 8, 8> shares[BK / 8];
    #pragma unroll
    for (int j = 0; j < BK / 8; ++j)
      #pragma unroll
      for (uint e = 0; e < 2; ++e) {
        const float score = scores[0][j].thread_elements()[e];
        const float share = score > lowest ? fast::exp2(score - next_best) : 0.0f;
        shares[j].thread_elements()[e] = T(share);
        shares_total += share;
      }
    total = total * keep + row_sum(shares_total);
    #pragma unroll
    for (int j = 0; j < D / 8; ++j)
      #pragma unroll
      for (uint e = 0; e < 2; ++e) sums[j].thread_elements()[e] *= keep;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    tile_mma_rows<D / 8, BK / 8>(sums, shares, kv_tile, stride);
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }

  const uint query = 8 * simdgroup + frag_row(lane);
  const float scale = total > 0.0f ? 1.0f / total : 0.0f;
  #pragma unroll
  for (int j = 0; j < D / 8; ++j)
    #pragma unroll
    for (uint e = 0; e < 2; ++e) {
      const uint column = 8 * j + frag_col(lane) + e;
      if (query < queries && column < p.head_dim) {
        out[ulong(start + first + query) * p.out_stride + head * p.head_dim + column] =
            T(sums[j].thread_elements()[e] * scale);
      }
    }
}

template [[host_name("attention_prefill_f16_d32")]] kernel decltype(attention_prefill<half, 32, 32>) attention_prefill<half, 32, 32>;
template [[host_name("attention_prefill_f16_d64")]] kernel decltype(attention_prefill<half, 64, 32>) attention_prefill<half, 64, 32>;
template [[host_name("attention_prefill_f16_d128")]] kernel decltype(attention_prefill<half, 128, 16>) attention_prefill<half, 128, 16>;
template [[host_name("attention_prefill_bf16_d32")]] kernel decltype(attention_prefill<bfloat, 32, 32>) attention_prefill<bfloat, 32, 32>;
template [[host_name("attention_prefill_bf16_d64")]] kernel decltype(attention_prefill<bfloat, 64, 32>) attention_prefill<bfloat, 64, 32>;
template [[host_name("attention_prefill_bf16_d128")]] kernel decltype(attention_prefill<bfloat, 128, 16>) attention_prefill<bfloat, 128, 16>;
