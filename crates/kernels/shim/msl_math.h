// Owns MSL's mathematics on top of each target's msl::exp2f and its like. Arguments have one type, as MSL asks.
#pragma once
#pragma clang system_header

namespace metal {
template <class T> inline T max(T a, T b) { return __builtin_elementwise_max(a, b); }
template <class T> inline T min(T a, T b) { return __builtin_elementwise_min(a, b); }
template <class T> inline T clamp(T x, T low, T high) { return min(max(x, low), high); }
template <class T> inline T abs(T x) { return __builtin_elementwise_abs(x); }
template <class T> inline T fma(T a, T b, T c) { return __builtin_elementwise_fma(a, b, c); }
template <class T> inline T select(T a, T b, bool choose_b) { return choose_b ? b : a; }
inline float fmax(float a, float b) { return __builtin_fmaxf(a, b); }
inline float fmin(float a, float b) { return __builtin_fminf(a, b); }

#define MSL_UNARY(name)                                        \
  inline float name(float x) { return msl::name(x); }          \
  inline half name(half x) { return (half)msl::name((float)x); }
MSL_UNARY(exp) MSL_UNARY(exp2) MSL_UNARY(log) MSL_UNARY(log2) MSL_UNARY(sqrt) MSL_UNARY(rsqrt)
MSL_UNARY(tanh) MSL_UNARY(sin) MSL_UNARY(cos) MSL_UNARY(fabs) MSL_UNARY(floor) MSL_UNARY(ceil) MSL_UNARY(rint)
#undef MSL_UNARY
inline float pow(float a, float b) { return msl::pow(a, b); }

namespace precise {
inline float exp(float x) { return metal::exp(x); }
inline float exp2(float x) { return metal::exp2(x); }
inline float log(float x) { return metal::log(x); }
inline float sqrt(float x) { return metal::sqrt(x); }
inline float rsqrt(float x) { return msl::precise_rsqrt(x); }
inline float tanh(float x) { return metal::tanh(x); }
}  // namespace precise
namespace fast {
inline float exp(float x) { return metal::exp(x); }
inline float exp2(float x) { return metal::exp2(x); }
inline float log(float x) { return metal::log(x); }
inline float sqrt(float x) { return metal::sqrt(x); }
inline float rsqrt(float x) { return metal::rsqrt(x); }
inline float tanh(float x) { return metal::tanh(x); }
}  // namespace fast

template <class V> inline auto dot(V a, V b) -> decltype(a[0] * b[0]) {
  auto sum = a[0] * b[0];
  for (int k = 1; k < msl::Shape<V>::lanes; k++) sum += a[k] * b[k];
  return sum;
}
inline uint popcount(uint x) { return (uint)__builtin_popcount(x); }
inline uint clz(uint x) { return x ? (uint)__builtin_clz(x) : 32u; }
inline uint ctz(uint x) { return x ? (uint)__builtin_ctz(x) : 32u; }
}  // namespace metal
