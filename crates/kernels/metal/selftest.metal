// Owns kernels that are wrong on purpose: the emulator must name each fault. No device runs them.
#include <metal_stdlib>
using namespace metal;
#include "common/stage.h"

struct FaultParams {
  uint n;
};

kernel void fault_none(device float* out [[buffer(0)]], constant FaultParams& p [[buffer(1)]],
                       threadgroup float* s [[threadgroup(0)]], uint i [[thread_index_in_threadgroup]]) {
  s[i] = float(i);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  out[i] = s[p.n - 1 - i];
}

kernel void fault_no_barrier(device float* out [[buffer(0)]], constant FaultParams& p [[buffer(1)]],
                             threadgroup float* s [[threadgroup(0)]], uint i [[thread_index_in_threadgroup]]) {
  s[i] = float(i);
  out[i] = s[p.n - 1 - i];
}

// Right in lockstep: every thread reaches the second meeting only after all have left the first.
kernel void fault_one_barrier_short(device float* out [[buffer(0)]], constant FaultParams& p [[buffer(1)]],
                                    threadgroup float* s [[threadgroup(0)]], uint i [[thread_index_in_threadgroup]]) {
  float sum = 0.0f;
  for (uint round = 0; round < 4; ++round) {
    s[i] = float(i + round);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    sum += s[p.n - 1 - i];
    simdgroup_barrier(mem_flags::mem_none);
  }
  out[i] = sum;
}

kernel void fault_bounds(device float* out [[buffer(0)]], constant FaultParams& p [[buffer(1)]],
                         threadgroup float* s [[threadgroup(0)]], uint i [[thread_index_in_threadgroup]]) {
  s[i] = 0.0f;
  out[p.n + i] = s[i];
}

kernel void fault_threadgroup_bounds(device float* out [[buffer(0)]], constant FaultParams& p [[buffer(1)]],
                                     threadgroup float* s [[threadgroup(0)]], uint i [[thread_index_in_threadgroup]]) {
  s[p.n + i] = 1.0f;
  out[i] = s[i];
}

kernel void fault_divergent(device float* out [[buffer(0)]], constant FaultParams& p [[buffer(1)]],
                            threadgroup float* s [[threadgroup(0)]], uint i [[thread_index_in_threadgroup]]) {
  s[i] = float(p.n);
  if (i < 40) {
    threadgroup_barrier(mem_flags::mem_threadgroup);
  } else {
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
  out[i] = s[i];
}

kernel void fault_deadlock(device float* out [[buffer(0)]], constant FaultParams& p [[buffer(1)]],
                           threadgroup float* s [[threadgroup(0)]], uint i [[thread_index_in_threadgroup]]) {
  s[i] = float(p.n);
  if (i == 5) threadgroup_barrier(mem_flags::mem_threadgroup);
  out[i] = simd_sum(s[i]);
}

kernel void fault_early_return(device float* out [[buffer(0)]], constant FaultParams& p [[buffer(1)]],
                               threadgroup float* s [[threadgroup(0)]], uint i [[thread_index_in_threadgroup]]) {
  if (i + 1 == p.n) return;
  s[i] = 1.0f;
  out[i] = simd_sum(s[i]);
}

kernel void fault_flags(device float* out [[buffer(0)]], constant FaultParams& p [[buffer(1)]],
                        threadgroup float* s [[threadgroup(0)]], uint i [[thread_index_in_threadgroup]]) {
  s[i] = float(i);
  threadgroup_barrier(mem_flags::mem_device);
  out[i] = s[p.n - 1 - i];
}

kernel void fault_async_none(device float* out [[buffer(0)]], constant FaultParams& p [[buffer(1)]],
                             threadgroup float* s [[threadgroup(0)]], uint i [[thread_index_in_threadgroup]]) {
  out[i] = float(i);
  threadgroup_barrier(mem_flags::mem_device);
  if (i < p.n / 4) async_copy16(s + 4 * i, out + 4 * i, true);
  async_commit();
  async_wait<0>();
  threadgroup_barrier(mem_flags::mem_threadgroup);
  out[i] = s[p.n - 1 - i];
}

kernel void fault_async_no_barrier(device float* out [[buffer(0)]], constant FaultParams& p [[buffer(1)]],
                                   threadgroup float* s [[threadgroup(0)]], uint i [[thread_index_in_threadgroup]]) {
  out[i] = float(i);
  threadgroup_barrier(mem_flags::mem_device);
  if (i < p.n / 4) async_copy16(s + 4 * i, out + 4 * i, true);
  async_commit();
  async_wait<0>();
  out[i] = s[p.n - 1 - i];
}

// Waits for all but the newest commit, which is the one it needs.
kernel void fault_async_short_wait(device float* out [[buffer(0)]], constant FaultParams& p [[buffer(1)]],
                                   threadgroup float* s [[threadgroup(0)]], uint i [[thread_index_in_threadgroup]]) {
  out[i] = float(i);
  threadgroup_barrier(mem_flags::mem_device);
  if (i < p.n / 4) async_copy16(s + 4 * i, out + 4 * i, true);
  async_commit();
  async_wait<1>();
  threadgroup_barrier(mem_flags::mem_threadgroup);
  out[i] = s[p.n - 1 - i];
  async_wait<0>();
}

kernel void fault_async_no_wait(device float* out [[buffer(0)]], constant FaultParams& p [[buffer(1)]],
                                threadgroup float* s [[threadgroup(0)]], uint i [[thread_index_in_threadgroup]]) {
  if (i < p.n / 4) async_copy16(s + 4 * i, out + 4 * i, true);
  async_commit();
  threadgroup_barrier(mem_flags::mem_threadgroup);
  out[i] = s[i];
}

// The second copy starts while others may still read what the first one brought.
kernel void fault_async_early(device float* out [[buffer(0)]], constant FaultParams& p [[buffer(1)]],
                              threadgroup float* s [[threadgroup(0)]], uint i [[thread_index_in_threadgroup]]) {
  out[i] = float(i);
  threadgroup_barrier(mem_flags::mem_device);
  if (i < p.n / 4) async_copy16(s + 4 * i, out + 4 * i, true);
  async_commit();
  async_wait<0>();
  threadgroup_barrier(mem_flags::mem_threadgroup);
  const float value = s[p.n - 1 - i];
  if (i < p.n / 4) async_copy16(s + 4 * i, out + 4 * i, true);
  async_commit();
  async_wait<0>();
  threadgroup_barrier(mem_flags::mem_threadgroup);
  out[i] = value;
}

kernel void fault_async_alignment(device float* out [[buffer(0)]], constant FaultParams& p [[buffer(1)]],
                                  threadgroup float* s [[threadgroup(0)]], uint i [[thread_index_in_threadgroup]]) {
  if (i < p.n / 8) async_copy16(s + 4 * i + 2, out + 4 * i, true);
  async_commit();
  async_wait<0>();
  threadgroup_barrier(mem_flags::mem_threadgroup);
  out[i] = s[i];
}
