// Owns loads of the E neighbouring elements that one lane keeps of a head.
template <typename T, int E>
inline void load_lane(const device T* p, thread float (&out)[E]) {
  if constexpr (E == 4) {
    const vec<T, 4> v = *(const device vec<T, 4>*)p;
    #pragma unroll
    for (int e = 0; e < 4; ++e) out[e] = float(v[e]);
  } else if constexpr (E == 2) {
    const vec<T, 2> v = *(const device vec<T, 2>*)p;
    #pragma unroll
    for (int e = 0; e < 2; ++e) out[e] = float(v[e]);
  } else {
    #pragma unroll
    for (int e = 0; e < E; ++e) out[e] = float(p[e]);
  }
}
