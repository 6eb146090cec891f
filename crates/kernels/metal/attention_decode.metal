// Owns attention of single queries over pages: the context is split over threadgroups, a second kernel adds the parts up.
#include <metal_stdlib>
using namespace metal;
#include "common/lane.h"
#include "common/pages.h"

// The context is split: parts go to `partials` instead of `out`.
constant bool is_split [[function_constant(0)]];

// Below every score; finite, so that differences of it are no NaN.
constexpr constant float lowest = -1.0e30f;
constexpr constant float log2_e = 1.44269504f;

struct DecodeParams {
  ulong page_stride;
  ulong layer_offset;
  uint heads;
  uint kv_heads;
  uint head_dim;
  uint tokens_per_page;
  uint q_stride;
  uint out_stride;
  uint part_tokens;
  uint parts;
  uint window;
  float scale;
};

// Grid: (KV head x blocks of HEADS query heads, query, part). All query heads of a block share each load of K and V.
// Query i is row rows[i] of q and sees contexts[i] keys, or the last `window` of them; its page n is
// blocks[tables[i] + n]. Part p has the keys from p * part_tokens on. Each simdgroup takes four keys a step; a lane
// owns D / 32 columns. Threadgroup memory: 4 * HEADS * (D + 2) floats. Partials: [query][head][part][D + 2].
template <typename T, int D, int HEADS>
kernel void attention_decode(device const T* q [[buffer(0)]],
                             device const T* pages [[buffer(1)]],
                             device const uint* rows [[buffer(2)]],
                             device const uint* contexts [[buffer(3)]],
                             device const int* tables [[buffer(4)]],
                             device const uint* blocks [[buffer(5)]],
                             device float* partials [[buffer(6)]],
                             device T* out [[buffer(7)]],
                             constant DecodeParams& p [[buffer(8)]],
                             threadgroup float* scratch [[threadgroup(0)]],
                             uint3 group [[threadgroup_position_in_grid]],
                             uint thread_index [[thread_index_in_threadgroup]],
                             uint lane [[thread_index_in_simdgroup]],
                             uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  constexpr int E = D / 32;
  constexpr uint simdgroups = 4;
  constexpr uint width = D + 2;
  const uint shared_heads = p.heads / p.kv_heads;
  const uint head_blocks = (shared_heads + HEADS - 1) / HEADS;
  const uint kv_head = group.x / head_blocks;
  const uint first_head = kv_head * shared_heads + group.x % head_blocks * HEADS;
  const uint end_head = (kv_head + 1) * shared_heads;
  const uint row = rows[group.y];
  const uint context = contexts[group.y];
  const int table = tables[group.y];
  const uint first_seen = p.window > 0 && context > p.window ? context - p.window : 0;
  const uint begin = max(first_seen, group.z * p.part_tokens);
  const uint end = min(context, (group.z + 1) * p.part_tokens);
  const uint column = lane * E;
  const bool has_columns = column < p.head_dim;
  const ulong to_value = key_to_value(p.kv_heads, p.tokens_per_page, p.head_dim);

  float queries[HEADS][E];
  float sums[HEADS][E];
  float best[HEADS];
  float total[HEADS];
  #pragma unroll
  for (int h = 0; h < HEADS; ++h) {
    const uint head = min(first_head + h, end_head - 1);
    #pragma unroll
    for (int e = 0; e < E; ++e) queries[h][e] = 0.0f;
    if (has_columns) load_lane(q + ulong(row) * p.q_stride + head * p.head_dim + column, queries[h]);
    #pragma unroll
    for (int e = 0; e < E; ++e) {
      queries[h][e] *= p.scale * log2_e;
      sums[h][e] = 0.0f;
    }
    best[h] = lowest;
    total[h] = 0.0f;
  }

  for (uint key = begin + 4 * simdgroup; key < end; key += 4 * simdgroups) {
    float keys[4][E];
    float values[4][E];
    #pragma unroll
    for (uint t = 0; t < 4; ++t) {
      const uint token = min(key + t, end - 1);
      const uint page = blocks[table + int(token / p.tokens_per_page)];
      const ulong at = key_offset(p.page_stride, p.layer_offset, p.tokens_per_page, p.head_dim,
                                  page, kv_head, token % p.tokens_per_page) + column;
      #pragma unroll
      for (int e = 0; e < E; ++e) keys[t][e] = values[t][e] = 0.0f;
      if (has_columns) {
        load_lane(pages + at, keys[t]);
        load_lane(pages + at + to_value, values[t]);
      }
    }
    #pragma unroll
    for (int h = 0; h < HEADS; ++h) {
      float scores[4];
      #pragma unroll
      for (uint t = 0; t < 4; ++t) {
        float product = 0.0f;
        #pragma unroll
        for (int e = 0; e < E; ++e) product = fma(queries[h][e], keys[t][e], product);
        const float score = simd_sum(product);
        scores[t] = key + t < end ? score : lowest;
      }
      const float high = max(max(scores[0], scores[1]), max(scores[2], scores[3]));
      const float next_best = max(best[h], high);
      const float keep = fast::exp2(best[h] - next_best);
      best[h] = next_best;
      total[h] *= keep;
      #pragma unroll
      for (int e = 0; e < E; ++e) sums[h][e] *= keep;
      #pragma unroll
      for (uint t = 0; t < 4; ++t) {
        const float share = key + t < end ? fast::exp2(scores[t] - next_best) : 0.0f;
        total[h] += share;
        #pragma unroll
        for (int e = 0; e < E; ++e) sums[h][e] = fma(share, values[t][e], sums[h][e]);
      }
    }
  }

  #pragma unroll
  for (int h = 0; h < HEADS; ++h) {
    threadgroup float* mine = scratch + (simdgroup * HEADS + h) * width;
    #pragma unroll
    for (int e = 0; e < E; ++e) mine[column + e] = sums[h][e];
    if (lane == 0) {
      mine[D] = best[h];
      mine[D + 1] = total[h];
    }
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (uint i = thread_index; i < HEADS * D; i += 128) {
    const uint h = i / D;
    const uint d = i % D;
    const uint head = first_head + h;
    float high = lowest;
    for (uint s = 0; s < simdgroups; ++s) high = max(high, scratch[(s * HEADS + h) * width + D]);
    float sum = 0.0f;
    float all = 0.0f;
    for (uint s = 0; s < simdgroups; ++s) {
      threadgroup float* part = scratch + (s * HEADS + h) * width;
      const float keep = fast::exp2(part[D] - high);
      sum = fma(part[d], keep, sum);
      all = fma(part[D + 1], keep, all);
    }
    if (head < end_head) {
      if (is_split) {
        device float* part = partials + ((ulong(group.y) * p.heads + head) * p.parts + group.z) * width;
        part[d] = sum;
        if (d == 0) {
          part[D] = high;
          part[D + 1] = all;
        }
      } else if (d < p.head_dim) {
        out[ulong(row) * p.out_stride + head * p.head_dim + d] = T(all > 0.0f ? sum / all : 0.0f);
      }
    }
  }
}

// Adds the parts up, first to last. Grid: (head, query).
template <typename T, int D>
kernel void attention_reduce(device const float* partials [[buffer(0)]],
                             device const uint* rows [[buffer(1)]],
                             device T* out [[buffer(2)]],
                             constant DecodeParams& p [[buffer(3)]],
                             uint2 group [[threadgroup_position_in_grid]],
                             uint thread_index [[thread_index_in_threadgroup]],
                             uint2 threads [[threads_per_threadgroup]]) {
  constexpr uint width = D + 2;
  device const float* parts = partials + (ulong(group.y) * p.heads + group.x) * p.parts * width;
  float high = lowest;
  #pragma unroll 8
  for (uint part = 0; part < p.parts; ++part) high = max(high, parts[part * width + D]);
  for (uint d = thread_index; d < p.head_dim; d += threads.x) {
    float sum = 0.0f;
    float all = 0.0f;
    #pragma unroll 8
    for (uint part = 0; part < p.parts; ++part) {
      const float keep = fast::exp2(parts[part * width + D] - high);
      sum = fma(parts[part * width + d], keep, sum);
      all = fma(parts[part * width + D + 1], keep, all);
    }
    out[ulong(rows[group.y]) * p.out_stride + group.x * p.head_dim + d] = T(all > 0.0f ? sum / all : 0.0f);
  }
}

template [[host_name("attention_decode_f16_d32")]] kernel decltype(attention_decode<half, 32, 8>) attention_decode<half, 32, 8>;
template [[host_name("attention_decode_f16_d64")]] kernel decltype(attention_decode<half, 64, 8>) attention_decode<half, 64, 8>;
template [[host_name("attention_decode_f16_d128")]] kernel decltype(attention_decode<half, 128, 4>) attention_decode<half, 128, 4>;
template [[host_name("attention_reduce_f16_d32")]] kernel decltype(attention_reduce<half, 32>) attention_reduce<half, 32>;
template [[host_name("attention_reduce_f16_d64")]] kernel decltype(attention_reduce<half, 64>) attention_reduce<half, 64>;
template [[host_name("attention_reduce_f16_d128")]] kernel decltype(attention_reduce<half, 128>) attention_reduce<half, 128>;
template [[host_name("attention_decode_bf16_d32")]] kernel decltype(attention_decode<bfloat, 32, 8>) attention_decode<bfloat, 32, 8>;
template [[host_name("attention_decode_bf16_d64")]] kernel decltype(attention_decode<bfloat, 64, 8>) attention_decode<bfloat, 64, 8>;
template [[host_name("attention_decode_bf16_d128")]] kernel decltype(attention_decode<bfloat, 128, 4>) attention_decode<bfloat, 128, 4>;
template [[host_name("attention_reduce_bf16_d32")]] kernel decltype(attention_reduce<bfloat, 32>) attention_reduce<bfloat, 32>;
template [[host_name("attention_reduce_bf16_d64")]] kernel decltype(attention_reduce<bfloat, 64>) attention_reduce<bfloat, 64>;
template [[host_name("attention_reduce_bf16_d128")]] kernel decltype(attention_reduce<bfloat, 128>) attention_reduce<bfloat, 128>;
