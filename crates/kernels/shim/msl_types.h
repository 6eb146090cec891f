// Owns MSL's address spaces, scalars, vectors and their constructors, for all targets. C++14, like MSL, with clang's
// extensions.
#pragma once
#pragma clang system_header

#if defined(MSL_FLAT)
#define device
#define constant const
#define threadgroup
#elif defined(MSL_PTX)
// Params arrive by value in the parameter bank, so constant memory is whatever a const reference can name.
#define device __attribute__((address_space(1)))
#define constant const
#define threadgroup __attribute__((address_space(3)))
#else
#define device __attribute__((address_space(1)))
#define constant const __attribute__((address_space(2)))
#define threadgroup __attribute__((address_space(3)))
#endif
#define thread
#define kernel

typedef _Float16 half;
typedef __bf16 bfloat;
typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
typedef ulong size_t;

#define MSL_VECTORS(T)                                      \
  typedef T T##2 __attribute__((ext_vector_type(2)));       \
  typedef T T##3 __attribute__((ext_vector_type(3)));       \
  typedef T T##4 __attribute__((ext_vector_type(4)));
MSL_VECTORS(float) MSL_VECTORS(half) MSL_VECTORS(bfloat)
MSL_VECTORS(int) MSL_VECTORS(uint) MSL_VECTORS(short) MSL_VECTORS(ushort)
MSL_VECTORS(char) MSL_VECTORS(uchar) MSL_VECTORS(long) MSL_VECTORS(ulong)
#undef MSL_VECTORS

namespace msl {
template <class T, int N> struct VectorOf { typedef T type __attribute__((ext_vector_type(N))); };

template <class T> struct Shape { static constexpr int lanes = 0; };
template <class T> struct Shape<T __attribute__((ext_vector_type(2)))> { static constexpr int lanes = 2; };
template <class T> struct Shape<T __attribute__((ext_vector_type(3)))> { static constexpr int lanes = 3; };
template <class T> struct Shape<T __attribute__((ext_vector_type(4)))> { static constexpr int lanes = 4; };

template <class V, class A> inline void append(V& v, int& at, A a) {
  if constexpr (Shape<A>::lanes != 0) {
    for (int k = 0; k < Shape<A>::lanes; k++) v[at++] = a[k];
  } else {
    v[at++] = a;
  }
}

// float4(1.0f), float4(half4), float4(float2, 0.0f, 1.0f)
template <class V> inline V make() { return V{}; }
template <class V, class A> inline V make(A a) {
  if constexpr (Shape<A>::lanes != 0) {
    static_assert(Shape<A>::lanes == Shape<V>::lanes, "vectors of different lengths");
    return __builtin_convertvector(a, V);
  } else {
    V v{};
    for (int k = 0; k < Shape<V>::lanes; k++) v[k] = a;
    return v;
  }
}
template <class V, class A, class B, class... C> inline V make(A a, B b, C... c) {
  V v{};
  int at = 0;
  append(v, at, a);
  append(v, at, b);
  int unused[] = {0, (append(v, at, c), 0)...};
  (void)unused;
  return v;
}
}  // namespace msl

namespace metal {
template <class T, int N> using vec = typename msl::VectorOf<T, N>::type;
enum class mem_flags { mem_none = 0, mem_device = 1, mem_threadgroup = 2, mem_texture = 4 };
}  // namespace metal

template <class T, class U> inline T as_type(U u) {
  static_assert(sizeof(T) == sizeof(U), "as_type between sizes");
  return __builtin_bit_cast(T, u);
}

constexpr half operator""h(long double v) { return (half)v; }
constexpr half operator""h(unsigned long long v) { return (half)v; }
