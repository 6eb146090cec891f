// Owns the root-mean-square norm of rows, with the addition of a residual before it.
#include <metal_stdlib>
using namespace metal;
#include "common/element.h"
#include "common/reduce.h"

constant bool has_add [[function_constant(0)]];
constant bool has_weight [[function_constant(1)]];

struct RmsNormParams {
  uint width;
  uint x_stride;
  uint add_stride;
  uint out_stride;
  float eps;
  float weight_offset;
};

// Elements of a row that one thread keeps in registers: 256 threads hold rows of up to 4096.
constexpr constant uint kept = 16;

// An element of the row, after the addition of the residual, which is kept.
template <typename T>
inline float take(device T* x, device const T* add, uint column) {
  if (has_add) x[column] = T(float(x[column]) + float(add[column]));
  return float(x[column]);
}

template <typename T>
inline float weight_of(device const T* weight, uint column, float offset) {
  return has_weight ? float(weight[column]) + offset : 1.0f;
}

// A threadgroup a row. Sums are taken over what is stored, so that a later read of x sees the same numbers.
template <typename T>
kernel void rms_norm(device T* x [[buffer(0)]],
                     device const T* add [[buffer(1)]],
                     device const T* weight [[buffer(2)]],
                     device T* out [[buffer(3)]],
                     constant RmsNormParams& p [[buffer(4)]],
                     threadgroup float* scratch [[threadgroup(0)]],
                     uint row [[threadgroup_position_in_grid]],
                     uint thread_index [[thread_index_in_threadgroup]],
                     uint threads [[threads_per_threadgroup]],
                     uint lane [[thread_index_in_simdgroup]],
                     uint simdgroup [[simdgroup_index_in_threadgroup]],
                     uint simdgroups [[simdgroups_per_threadgroup]]) {
  device T* x_row = x + ulong(row) * p.x_stride;
  device const T* add_row = add + ulong(row) * p.add_stride;
  device T* out_row = out + ulong(row) * p.out_stride;
  float values[kept];
  // Loaded now, so that they are there when the sum is.
  float factors[kept];
  float sum = 0.0f;
  #pragma unroll
  for (uint i = 0; i < kept; ++i) {
    const uint column = i * threads + thread_index;
    values[i] = column < p.width ? take(x_row, add_row, column) : 0.0f;
    factors[i] = column < p.width ? weight_of(weight, column, p.weight_offset) : 0.0f;
    sum = fma(values[i], values[i], sum);
  }
  for (uint column = kept * threads + thread_index; column < p.width; column += threads) {
    const float value = take(x_row, add_row, column);
    sum = fma(value, value, sum);
  }
  sum = threadgroup_sum(sum, scratch, lane, simdgroup, simdgroups);
  const float scale = precise::rsqrt(sum / float(p.width) + p.eps);
  #pragma unroll
  for (uint i = 0; i < kept; ++i) {
    const uint column = i * threads + thread_index;
    if (column < p.width) out_row[column] = T(values[i] * scale * factors[i]);
  }
  for (uint column = kept * threads + thread_index; column < p.width; column += threads) {
    out_row[column] = T(float(x_row[column]) * scale * weight_of(weight, column, p.weight_offset));
  }
}

template [[host_name("rms_norm_f16")]] kernel decltype(rms_norm<half>) rms_norm<half>;
template [[host_name("rms_norm_bf16")]] kernel decltype(rms_norm<bfloat>) rms_norm<bfloat>;
