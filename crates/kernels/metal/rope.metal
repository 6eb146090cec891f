// Owns rotation of queries and keys by position, the write of keys and values to their pages.
#include <metal_stdlib>
using namespace metal;
#include "common/pages.h"

constant bool interleaved [[function_constant(0)]];

struct RopeParams {
  ulong page_stride;
  ulong layer_offset;
  uint heads;
  uint kv_heads;
  uint head_dim;
  uint rotate_from;
  uint pairs;
  uint q_stride;
  uint k_stride;
  uint v_stride;
  uint tokens_per_page;
};

// A threadgroup a head and token; the first `heads` of them turn queries, the others keys, which they then write to
// the token's slot with its value. `turns` has the cosine and sine of each pair of each token. A slot below 0 writes none.
template <typename T>
kernel void rope_kv_write(device T* q [[buffer(0)]],
                          device T* k [[buffer(1)]],
                          device const T* v [[buffer(2)]],
                          device const float2* turns [[buffer(3)]],
                          device const int* slots [[buffer(4)]],
                          device T* pages [[buffer(5)]],
                          constant RopeParams& p [[buffer(6)]],
                          uint2 group [[threadgroup_position_in_grid]],
                          uint thread_index [[thread_index_in_threadgroup]],
                          uint2 threads [[threads_per_threadgroup]]) {
  const uint token = group.y;
  const bool is_key = group.x >= p.heads;
  const uint head = is_key ? group.x - p.heads : group.x;
  device T* x = is_key ? k + ulong(token) * p.k_stride + head * p.head_dim
                       : q + ulong(token) * p.q_stride + head * p.head_dim;
  const int slot = slots[token];
  const bool writes = is_key && slot >= 0;
  const uint place = writes ? uint(slot) : 0;
  const ulong key = key_offset(p.page_stride, p.layer_offset, p.tokens_per_page, p.head_dim,
                               place / p.tokens_per_page, head, place % p.tokens_per_page);
  const ulong to_value = key_to_value(p.kv_heads, p.tokens_per_page, p.head_dim);
  for (uint i = thread_index; i < p.pairs; i += threads.x) {
    const float2 turn = turns[ulong(token) * p.pairs + i];
    const uint first = p.rotate_from + (interleaved ? 2 * i : i);
    const uint second = first + (interleaved ? 1 : p.pairs);
    const float a = float(x[first]);
    const float b = float(x[second]);
    const T turned_a = T(a * turn.x - b * turn.y);
    const T turned_b = T(b * turn.x + a * turn.y);
    x[first] = turned_a;
    x[second] = turned_b;
    if (writes) {
      pages[key + first] = turned_a;
      pages[key + second] = turned_b;
    }
  }
  if (writes) {
    device const T* value = v + ulong(token) * p.v_stride + head * p.head_dim;
    const uint rotate_end = p.rotate_from + 2 * p.pairs;
    for (uint i = thread_index; i < p.head_dim; i += threads.x) {
      if (i < p.rotate_from || i >= rotate_end) pages[key + i] = x[i];
      pages[key + to_value + i] = value[i];
    }
  }
}

template [[host_name("rope_kv_write_f16")]] kernel decltype(rope_kv_write<half>) rope_kv_write<half>;
template [[host_name("rope_kv_write_bf16")]] kernel decltype(rope_kv_write<bfloat>) rope_kv_write<bfloat>;
