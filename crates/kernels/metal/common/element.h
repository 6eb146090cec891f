// Owns loads of eight neighbouring elements at once, widened to float.

// Sixteen bytes in one access: p must lie at a multiple of 16.
template <typename T>
inline void load8(const device T* p, thread float (&out)[8]) {
  const uint4 bits = *(const device uint4*)p;
  #pragma unroll
  for (uint i = 0; i < 4; ++i) {
    const vec<T, 2> two = as_type<vec<T, 2>>(bits[i]);
    out[2 * i] = float(two.x);
    out[2 * i + 1] = float(two.y);
  }
}
