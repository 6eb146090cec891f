// Owns loads of eight neighbouring elements at once, widened to float.

template <typename T>
inline void widen8(uint4 bits, thread float (&out)[8]) {
  #pragma unroll
  for (uint i = 0; i < 4; ++i) {
    const vec<T, 2> two = as_type<vec<T, 2>>(bits[i]);
    out[2 * i] = float(two.x);
    out[2 * i + 1] = float(two.y);
  }
}

// Sixteen bytes in one access: p must lie at a multiple of 16.
template <typename T>
inline void load8(const device T* p, thread float (&out)[8]) {
  widen8<T>(*(const device uint4*)p, out);
}
