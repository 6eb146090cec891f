// Owns the root-mean-square norm of each head of a row (queries and keys).
#include <metal_stdlib>
using namespace metal;

struct HeadNormParams {
  uint head_dim;
  uint x_stride;
  float eps;
  float weight_offset;
};

// Root-mean-square norm of each head, in place. A simdgroup a head and token.
template <typename T>
kernel void head_norm(device T* x [[buffer(0)]],
                      device const T* weight [[buffer(1)]],
                      constant HeadNormParams& p [[buffer(2)]],
                      uint2 group [[threadgroup_position_in_grid]],
                      uint lane [[thread_index_in_simdgroup]]) {
  device T* head = x + ulong(group.y) * p.x_stride + group.x * p.head_dim;
  float sum = 0.0f;
  for (uint i = lane; i < p.head_dim; i += 32) {
    const float value = float(head[i]);
    sum = fma(value, value, sum);
  }
  const float scale = precise::rsqrt(simd_sum(sum) / float(p.head_dim) + p.eps);
  for (uint i = lane; i < p.head_dim; i += 32) {
    head[i] = T(float(head[i]) * scale * (float(weight[i]) + p.weight_offset));
  }
}

template [[host_name("head_norm_f16")]] kernel decltype(head_norm<half>) head_norm<half>;
template [[host_name("head_norm_bf16")]] kernel decltype(head_norm<bfloat>) head_norm<bfloat>;
