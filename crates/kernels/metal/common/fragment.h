// Owns what depends on how a simdgroup holds an 8x8 matrix: which element a lane has, sums along its row, and products
// of tiles. Everything else sees rows and columns only. (The PTX shim brings its own, since NVIDIA's lanes differ.)
#ifndef METTLE_OWN_FRAGMENTS
// Lane l holds two neighbouring columns of one row.
inline ushort frag_row(ushort lane) { return 4 * (lane >> 4) + ((lane >> 1) & 3); }
inline ushort frag_col(ushort lane) { return 4 * ((lane >> 3) & 1) + 2 * (lane & 1); }

// Over the four lanes of a row.
inline float row_sum(float value) {
  value += simd_shuffle_xor(value, 1);
  return value + simd_shuffle_xor(value, 8);
}
inline float row_max(float value) {
  value = max(value, simd_shuffle_xor(value, 1));
  return max(value, simd_shuffle_xor(value, 8));
}

// acc += A · Bᵀ: A at [8 TM][8 TK], B at [8 TN][8 TK], both rows of threadgroup memory.
template <int TM, int TN, int TK, typename T>
inline void tile_mma(thread simdgroup_matrix<float, 8, 8> (&acc)[TM][TN],
                     const threadgroup T* a, uint a_stride,
                     const threadgroup T* b, uint b_stride) {
  for (int k = 0; k < TK; ++k) {
    simdgroup_matrix<T, 8, 8> as[TM];
    simdgroup_matrix<T, 8, 8> bs[TN];
    #pragma unroll
    for (int i = 0; i < TM; ++i) simdgroup_load(as[i], a + 8 * i * a_stride + 8 * k, a_stride);
    #pragma unroll
    for (int j = 0; j < TN; ++j) simdgroup_load(bs[j], b + 8 * j * b_stride + 8 * k, b_stride, ulong2(0, 0), true);
    #pragma unroll
    for (int i = 0; i < TM; ++i)
      #pragma unroll
      for (int j = 0; j < TN; ++j) simdgroup_multiply_accumulate(acc[i][j], as[i], bs[j], acc[i][j]);
  }
}

// acc += A · B: A in fragments, [8 TM][8 TK]; B at [8 TK][8 TN], rows of threadgroup memory.
template <int TM, int TN, int TK, typename T>
inline void tile_mma_rows(thread simdgroup_matrix<float, 8, 8> (&acc)[TM][TN],
                          thread simdgroup_matrix<T, 8, 8> (&a)[TM][TK],
                          const threadgroup T* b, uint b_stride) {
  for (int k = 0; k < TK; ++k)
    #pragma unroll
    for (int j = 0; j < TN; ++j) {
      simdgroup_matrix<T, 8, 8> bs;
      simdgroup_load(bs, b + 8 * k * b_stride + 8 * j, b_stride);
      #pragma unroll
      for (int i = 0; i < TM; ++i) simdgroup_multiply_accumulate(acc[i][j], a[i][k], bs, acc[i][j]);
    }
}
#endif
