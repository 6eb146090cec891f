// Owns the reading of quantized weights from their planes: 32 columns share a scale (and in Q4_1 an offset).
// Q8_0: a signed byte a column; one half a block. Q4_1: a nibble a column, the even one low; scale and offset a block.
constexpr constant int q8_0 = 0;
constexpr constant int q4_1 = 1;

// Words that hold eight columns.
template <int FORMAT>
inline constexpr int words_of_8() {
  return FORMAT == q8_0 ? 2 : 1;
}

// The bits of the columns from k on of row n that fill `bits`: 8, 16 or 32, in loads of up to 16 bytes.
template <int FORMAT, int WORDS>
inline void load_bits(const device uchar* quants, uint n, uint columns, uint k, thread uint (&bits)[WORDS]) {
  const device uchar* from = quants + (ulong(n) * columns + k) / (FORMAT == q8_0 ? 1 : 2);
  if constexpr (WORDS == 1) {
    bits[0] = *(const device uint*)from;
  } else if constexpr (WORDS == 2) {
    const uint2 two = *(const device uint2*)from;
    bits[0] = two.x;
    bits[1] = two.y;
  } else {
    #pragma unroll
    for (int i = 0; i < WORDS / 4; ++i) {
      const uint4 four = *(const device uint4*)(from + 16 * i);
      #pragma unroll
      for (int j = 0; j < 4; ++j) bits[4 * i + j] = four[j];
    }
  }
}

#ifndef METTLE_OWN_MASKED_OR
// One instruction on NVIDIA's GPUs, if it is asked for.
inline uint masked_or(uint bits, uint mask, uint other) { return (bits & mask) | other; }
#endif

// The number that the masked bits are, below 2^23, less a bias: as the mantissa of 2^23 + bits, which spares a conversion.
inline float masked_float(uint bits, uint mask, float bias) {
  return as_type<float>(masked_or(bits, mask, 0x4b000000u)) - (8388608.0f + bias);
}

// Column i of eight, unscaled, times pre_scale<FORMAT>(i): the bits stay where they are, which spares a shift.
template <int FORMAT, int WORDS>
inline void unpack8(const thread uint (&bits)[WORDS], int eight, thread float (&out)[8]) {
  if constexpr (FORMAT == q8_0) {
    #pragma unroll
    for (int j = 0; j < 2; ++j) {
      // Bytes from -128 on, counted from 0.
      const uint low = bits[2 * eight + j] ^ 0x80808080u;
      const uint high = low >> 16;
      out[4 * j] = masked_float(low, 0xffu, 128.0f);
      out[4 * j + 1] = masked_float(low, 0xff00u, 32768.0f);
      out[4 * j + 2] = masked_float(high, 0xffu, 128.0f);
      out[4 * j + 3] = masked_float(high, 0xff00u, 32768.0f);
    }
  } else {
    const uint low = bits[eight];
    const uint high = low >> 16;
    #pragma unroll
    for (int i = 0; i < 4; ++i) {
      out[i] = masked_float(low, 15u << (4 * i), 0.0f);
      out[4 + i] = masked_float(high, 15u << (4 * i), 0.0f);
    }
  }
}

template <int FORMAT>
inline constexpr float pre_scale(int i) {
  return FORMAT == q8_0 ? (i % 2 == 0 ? 1.0f : 256.0f) : float(1 << (4 * (i % 4)));
}

// Scale and offset of the block that column k of row n is in.
template <int FORMAT>
inline float2 load_scale(const device half* scales, uint n, uint columns, uint k) {
  const ulong block = ulong(n) * (columns / 32) + k / 32;
  if constexpr (FORMAT == q8_0) {
    return float2(float(scales[block]), 0.0f);
  } else {
    const half2 both = *(const device half2*)(scales + 2 * block);
    return float2(float(both.x), float(both.y));
  }
}
