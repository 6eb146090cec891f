// Owns the second half of a product whose K was split: the sum of the parts, first to last, then bias and residual.
#include <metal_stdlib>
using namespace metal;

constant bool has_bias [[function_constant(0)]];
constant bool has_residual [[function_constant(1)]];

struct LinearReduceParams {
  uint m;
  uint n;
  uint parts;
  uint residual_stride;
  uint out_stride;
};

// Partials: [part][m][n]. Grid: columns by rows, a thread an element.
template <typename T, typename Out>
kernel void linear_reduce(device const float* partials [[buffer(0)]],
                          device const T* bias [[buffer(1)]],
                          device const T* residual [[buffer(2)]],
                          device Out* out [[buffer(3)]],
                          constant LinearReduceParams& p [[buffer(4)]],
                          uint2 at [[thread_position_in_grid]]) {
  if (at.x >= p.n) return;
  device const float* part = partials + ulong(at.y) * p.n + at.x;
  float value = 0.0f;
  for (uint i = 0; i < p.parts; ++i) value += part[ulong(i) * p.m * p.n];
  if (has_bias) value += float(bias[at.x]);
  if (has_residual) value += float(residual[ulong(at.y) * p.residual_stride + at.x]);
  out[ulong(at.y) * p.out_stride + at.x] = Out(value);
}

template [[host_name("linear_reduce_f16_f16")]] kernel decltype(linear_reduce<half, half>) linear_reduce<half, half>;
template [[host_name("linear_reduce_f16_f32")]] kernel decltype(linear_reduce<half, float>) linear_reduce<half, float>;
template [[host_name("linear_reduce_bf16_bf16")]] kernel decltype(linear_reduce<bfloat, bfloat>) linear_reduce<bfloat, bfloat>;
template [[host_name("linear_reduce_bf16_f32")]] kernel decltype(linear_reduce<bfloat, float>) linear_reduce<bfloat, float>;
