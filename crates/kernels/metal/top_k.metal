// Owns the k largest of each row of logits, largest first, ties to the lower index.
#include <metal_stdlib>
using namespace metal;

// What is looked through are the results of parts: `candidates` has the ids that they stand for.
constant bool has_candidates [[function_constant(0)]];

struct TopKParams {
  uint width;
  uint stride;
  uint k;
  uint part_width;
  uint parts;
};

// Grows with the number; NaN counts as the smallest.
inline uint order_of(float value) {
  const uint bits = as_type<uint>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return 0u;
  return (bits >> 31) != 0 ? ~bits : bits | 0x80000000u;
}

// A threadgroup of 256 threads a row and part of it, k at most 256 and at most the part's width; the results of parts lie
// beside each other. Equal values stand in the order of their ids there, so that looking through them once more keeps
// ties right. Grid: (row, part). Radix select: four histograms of eight
// bits, each inside the bin that the last one left; then all above the threshold, and of those equal to it the first few.
// Threadgroup memory, in uints: 256 counts, 16 of state, 256 chosen keys, 256 chosen indices.
kernel void top_k_f32(device const float* logits [[buffer(0)]],
                      device const uint* candidates [[buffer(1)]],
                      device uint* ids [[buffer(2)]],
                      device float* values [[buffer(3)]],
                      constant TopKParams& p [[buffer(4)]],
                      threadgroup atomic_uint* counts [[threadgroup(0)]],
                      uint2 group [[threadgroup_position_in_grid]],
                      uint thread_index [[thread_index_in_threadgroup]],
                      uint lane [[thread_index_in_simdgroup]],
                      uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  threadgroup uint* state = (threadgroup uint*)(counts + 256);
  threadgroup uint* chosen_keys = state + 16;
  threadgroup uint* chosen_ids = chosen_keys + 256;
  const uint first = group.y * p.part_width;
  const uint width = min(p.part_width, p.width - first);
  device const float* x = logits + ulong(group.x) * p.stride + first;
  uint threshold = 0;
  uint wanted = p.k;
  for (uint shift = 32; shift > 0;) {
    const uint mask = shift == 32 ? 0u : ~0u << shift;
    shift -= 8;
    atomic_store_explicit(&counts[thread_index], 0u, memory_order_relaxed);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint i = thread_index; i < width; i += 256) {
      const uint key = order_of(x[i]);
      if ((key & mask) == threshold) atomic_fetch_add_explicit(&counts[(key >> shift) & 255u], 1u, memory_order_relaxed);
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (simdgroup == 0) {
      // Lane 0 has the eight highest bins.
      uint bins[8];
      uint sum = 0;
      #pragma unroll
      for (uint b = 0; b < 8; ++b) {
        bins[b] = atomic_load_explicit(&counts[255 - 8 * lane - b], memory_order_relaxed);
        sum += bins[b];
      }
      uint above = simd_prefix_exclusive_sum(sum);
      #pragma unroll
      for (uint b = 0; b < 8; ++b) {
        if (above < wanted && above + bins[b] >= wanted) {
          state[0] = 255 - 8 * lane - b;
          state[1] = wanted - above;
        }
        above += bins[b];
      }
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    threshold |= state[0] << shift;
    wanted = state[1];
  }

  // Each simdgroup has a stretch of the row, so that equal keys can be counted in order.
  const uint stretch = (width + 255) / 256 * 32;
  const uint begin = min(simdgroup * stretch, width);
  const uint end = min(begin + stretch, width);
  uint above = 0;
  uint equal = 0;
  for (uint i = begin + lane; i < end; i += 32) {
    const uint key = order_of(x[i]);
    above += key > threshold ? 1 : 0;
    equal += key == threshold ? 1 : 0;
  }
  above = simd_sum(above);
  equal = simd_sum(equal);
  // Some may still be reading the last round's state.
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (lane == 0) {
    state[simdgroup] = above;
    state[8 + simdgroup] = equal;
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  uint above_at = 0;
  uint equal_at = 0;
  for (uint s = 0; s < simdgroup; ++s) {
    above_at += state[s];
    equal_at += state[8 + s];
  }
  for (uint from = begin; from < end; from += 32) {
    const uint i = from + lane;
    const uint key = i < end ? order_of(x[i]) : 0u;
    const uint is_above = i < end && key > threshold ? 1 : 0;
    const uint is_equal = i < end && key == threshold ? 1 : 0;
    const uint above_place = above_at + simd_prefix_exclusive_sum(is_above);
    const uint equal_place = equal_at + simd_prefix_exclusive_sum(is_equal);
    above_at += simd_sum(is_above);
    equal_at += simd_sum(is_equal);
    if (is_above != 0 || (is_equal != 0 && equal_place < wanted)) {
      const uint place = is_above != 0 ? above_place : p.k - wanted + equal_place;
      chosen_keys[place] = key;
      chosen_ids[place] = i;
    }
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (thread_index < p.k) {
    const uint key = chosen_keys[thread_index];
    const uint id = chosen_ids[thread_index];
    uint rank = 0;
    for (uint other = 0; other < p.k; ++other) {
      const bool before = chosen_keys[other] > key || (chosen_keys[other] == key && chosen_ids[other] < id);
      rank += before ? 1 : 0;
    }
    const ulong place = (ulong(group.x) * p.parts + group.y) * p.k + rank;
    ids[place] = has_candidates ? candidates[ulong(group.x) * p.stride + id] : first + id;
    values[place] = x[id];
  }
}
