// Owns kernels that make each element on its own: sum, gated activation, embedding, gather of rows.
#include <metal_stdlib>
using namespace metal;

struct AddParams {
  uint width;
  uint a_stride;
  uint b_stride;
  uint out_stride;
};

// out = a + b. Grid: columns by rows.
template <typename T>
kernel void add(device const T* a [[buffer(0)]],
                device const T* b [[buffer(1)]],
                device T* out [[buffer(2)]],
                constant AddParams& p [[buffer(3)]],
                uint2 at [[thread_position_in_grid]]) {
  if (at.x >= p.width) return;
  const float sum = float(a[ulong(at.y) * p.a_stride + at.x]) + float(b[ulong(at.y) * p.b_stride + at.x]);
  out[ulong(at.y) * p.out_stride + at.x] = T(sum);
}

struct SiluMulParams {
  uint width;
  uint gate_stride;
  uint up_stride;
  uint out_stride;
};

// out = silu(gate) * up. Grid: columns by rows.
template <typename T>
kernel void silu_mul(device const T* gate [[buffer(0)]],
                     device const T* up [[buffer(1)]],
                     device T* out [[buffer(2)]],
                     constant SiluMulParams& p [[buffer(3)]],
                     uint2 at [[thread_position_in_grid]]) {
  if (at.x >= p.width) return;
  const float g = float(gate[ulong(at.y) * p.gate_stride + at.x]);
  const float u = float(up[ulong(at.y) * p.up_stride + at.x]);
  out[ulong(at.y) * p.out_stride + at.x] = T(g / (1.0f + exp(-g)) * u);
}

struct EmbedParams {
  uint width;
  uint vocabulary;
  uint out_stride;
  float scale;
};

// One row of the table per token id. Grid: columns by tokens. An id outside of the table gives zeros.
template <typename T>
kernel void embed(device const uint* ids [[buffer(0)]],
                  device const T* table [[buffer(1)]],
                  device T* out [[buffer(2)]],
                  constant EmbedParams& p [[buffer(3)]],
                  uint2 at [[thread_position_in_grid]]) {
  if (at.x >= p.width) return;
  const uint id = ids[at.y];
  const float value = id < p.vocabulary ? float(table[ulong(id) * p.width + at.x]) : 0.0f;
  out[ulong(at.y) * p.out_stride + at.x] = T(value * p.scale);
}

// The same from a table in Q8_0: a signed byte a column, one half for every 32.
template <typename T>
kernel void embed_q8_0(device const uint* ids [[buffer(0)]],
                       device const char* quants [[buffer(1)]],
                       device const half* scales [[buffer(2)]],
                       device T* out [[buffer(3)]],
                       constant EmbedParams& p [[buffer(4)]],
                       uint2 at [[thread_position_in_grid]]) {
  if (at.x >= p.width) return;
  const uint id = ids[at.y];
  float value = 0.0f;
  if (id < p.vocabulary) {
    const ulong column = ulong(id) * p.width + at.x;
    value = float(quants[column]) * float(scales[column / 32]);
  }
  out[ulong(at.y) * p.out_stride + at.x] = T(value * p.scale);
}

// And from one in Q4_1: a nibble a column, the even one low; a scale and an offset for every 32.
template <typename T>
kernel void embed_q4_1(device const uint* ids [[buffer(0)]],
                       device const uchar* quants [[buffer(1)]],
                       device const half* scales [[buffer(2)]],
                       device T* out [[buffer(3)]],
                       constant EmbedParams& p [[buffer(4)]],
                       uint2 at [[thread_position_in_grid]]) {
  if (at.x >= p.width) return;
  const uint id = ids[at.y];
  float value = 0.0f;
  if (id < p.vocabulary) {
    const ulong column = ulong(id) * p.width + at.x;
    const uint pair = quants[column / 2];
    const float quant = float((column & 1) != 0 ? pair >> 4 : pair & 15u);
    value = fma(quant, float(scales[column / 32 * 2]), float(scales[column / 32 * 2 + 1]));
  }
  out[ulong(at.y) * p.out_stride + at.x] = T(value * p.scale);
}

struct GatherParams {
  uint width;
  uint x_stride;
  uint out_stride;
};

// Copies the rows that `rows` names. Grid: columns by rows.
template <typename T>
kernel void gather(device const T* x [[buffer(0)]],
                   device const uint* rows [[buffer(1)]],
                   device T* out [[buffer(2)]],
                   constant GatherParams& p [[buffer(3)]],
                   uint2 at [[thread_position_in_grid]]) {
  if (at.x >= p.width) return;
  out[ulong(at.y) * p.out_stride + at.x] = x[ulong(rows[at.y]) * p.x_stride + at.x];
}

template [[host_name("add_f16")]] kernel decltype(add<half>) add<half>;
template [[host_name("add_bf16")]] kernel decltype(add<bfloat>) add<bfloat>;
template [[host_name("silu_mul_f16")]] kernel decltype(silu_mul<half>) silu_mul<half>;
template [[host_name("silu_mul_bf16")]] kernel decltype(silu_mul<bfloat>) silu_mul<bfloat>;
template [[host_name("embed_f16")]] kernel decltype(embed<half>) embed<half>;
template [[host_name("embed_bf16")]] kernel decltype(embed<bfloat>) embed<bfloat>;
template [[host_name("embed_q8_0_f16")]] kernel decltype(embed_q8_0<half>) embed_q8_0<half>;
template [[host_name("embed_q8_0_bf16")]] kernel decltype(embed_q8_0<bfloat>) embed_q8_0<bfloat>;
template [[host_name("embed_q4_1_f16")]] kernel decltype(embed_q4_1<half>) embed_q4_1<half>;
template [[host_name("embed_q4_1_bf16")]] kernel decltype(embed_q4_1<bfloat>) embed_q4_1<bfloat>;
template [[host_name("gather_f16")]] kernel decltype(gather<half>) gather<half>;
template [[host_name("gather_bf16")]] kernel decltype(gather<bfloat>) gather<bfloat>;
