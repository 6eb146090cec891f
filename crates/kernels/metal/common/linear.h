// Owns what all matrix products share: params, function constants, staging of x, and the epilogue.
#include "common/fragment.h"
#include "common/stage.h"

constant bool has_bias [[function_constant(0)]];
constant bool has_residual [[function_constant(1)]];
constant bool has_rows [[function_constant(2)]];
// K is a multiple of 8 and all rows lie on 16-byte boundaries.
constant bool aligned [[function_constant(3)]];

struct LinearParams {
  uint m;
  uint n;
  uint k;
  uint x_stride;
  uint residual_stride;
  uint out_stride;
};

// Stages rows of x, or those that `rows` names, from column k on.
template <int BM, int BK, typename T>
inline void stage_x(threadgroup T* to, const device T* x, const device uint* rows, constant LinearParams& p,
                    uint first_row, uint k, uint thread_index) {
  constexpr uint chunks = BK / 8;
  for (uint chunk = thread_index; chunk < BM * chunks; chunk += 128) {
    const uint row = chunk / chunks;
    const uint column = chunk % chunks * 8;
    const bool inside = first_row + row < p.m && k + column < p.k;
    const uint x_row = inside ? (has_rows ? rows[first_row + row] : first_row + row) : 0;
    stage8(to + row * staged_stride<BK>() + column, x + ulong(x_row) * p.x_stride + k + column,
           inside ? p.k - k - column : 0, aligned);
  }
}

// out = value (+ bias) (+ residual), inside of m and n.
template <typename T, typename Out>
inline void store_out(float value, uint row, uint column, const device T* bias, const device T* residual,
                      device Out* out, constant LinearParams& p) {
  if (row < p.m && column < p.n) {
    if (has_bias) value += float(bias[column]);
    if (has_residual) value += float(residual[ulong(row) * p.residual_stride + column]);
    out[ulong(row) * p.out_stride + column] = Out(value);
  }
}

// Stores a simdgroup's tile whose first element is (row, column).
template <int TM, int TN, typename T, typename Out>
inline void store_tile(thread simdgroup_matrix<float, 8, 8> (&acc)[TM][TN], uint row, uint column, uint lane,
                       const device T* bias, const device T* residual, device Out* out, constant LinearParams& p) {
  #pragma unroll
  for (int i = 0; i < TM; ++i)
    #pragma unroll
    for (int j = 0; j < TN; ++j)
      #pragma unroll
      for (uint e = 0; e < 2; ++e)
        store_out(acc[i][j].thread_elements()[e], row + 8 * i + frag_row(lane), column + 8 * j + frag_col(lane) + e,
                  bias, residual, out, p);
}
