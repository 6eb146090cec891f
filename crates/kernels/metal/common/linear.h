// Owns what all matrix products share: params, function constants, and the epilogue.
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
  // Columns of K that one part has: k, or a multiple of 64 where K is split.
  uint part_k;
};

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
