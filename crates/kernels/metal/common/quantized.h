// Owns the reading of quantized weights from their planes: 32 columns share a scale (and in Q4_1 an offset).
// Q8_0: a signed byte a column; one half a block. Q4_1: a nibble a column, the even one low; scale and offset a block.
constexpr constant int q8_0 = 0;
constexpr constant int q4_1 = 1;

// Eight columns from k on of row n, as numbers still to be scaled.
template <int FORMAT>
inline void load_quants(const device uchar* quants, uint n, uint columns, uint k, thread float (&out)[8]) {
  const ulong at = ulong(n) * columns + k;
  if constexpr (FORMAT == q8_0) {
    const uint2 bits = *(const device uint2*)(quants + at);
    #pragma unroll
    for (uint i = 0; i < 8; ++i) out[i] = float(int(bits[i / 4] << (24 - i % 4 * 8)) >> 24);
  } else {
    const uint bits = *(const device uint*)(quants + at / 2);
    #pragma unroll
    for (uint i = 0; i < 8; ++i) out[i] = float((bits >> (4 * i)) & 15u);
  }
}

template <int FORMAT>
inline float load_scale(const device half* scales, uint n, uint columns, uint k) {
  const ulong block = ulong(n) * (columns / 32) + k / 32;
  return float(scales[FORMAT == q8_0 ? block : 2 * block]);
}

template <int FORMAT>
inline float load_offset(const device half* scales, uint n, uint columns, uint k) {
  if constexpr (FORMAT == q8_0) return 0.0f;
  return float(scales[2 * (ulong(n) * (columns / 32) + k / 32) + 1]);
}
