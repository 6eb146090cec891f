// Owns reductions over a threadgroup. `scratch` has one float a simdgroup; every thread calls and gets the result.
inline float threadgroup_sum(float value, threadgroup float* scratch, uint lane, uint simdgroup, uint simdgroups) {
  value = simd_sum(value);
  if (lane == 0) scratch[simdgroup] = value;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  float total = lane < simdgroups ? scratch[lane] : 0.0f;
  return simd_sum(total);
}
