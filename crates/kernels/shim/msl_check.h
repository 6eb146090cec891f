// Owns declarations of what needs a GPU, for the strict check: nothing is ever called.
#pragma once
#pragma clang system_header

namespace msl {
float exp(float); float exp2(float); float log(float); float log2(float); float sqrt(float); float rsqrt(float);
float precise_rsqrt(float); float tanh(float); float sin(float); float cos(float); float fabs(float);
float floor(float); float ceil(float); float rint(float); float pow(float, float);
}  // namespace msl

namespace metal {
void threadgroup_barrier(mem_flags);
void simdgroup_barrier(mem_flags);
template <class T> T simd_sum(T);
template <class T> T simd_max(T);
template <class T> T simd_min(T);
template <class T> T simd_prefix_inclusive_sum(T);
template <class T> T simd_prefix_exclusive_sum(T);
template <class T> T simd_shuffle_xor(T, ushort);
template <class T> T simd_shuffle(T, ushort);
template <class T> T simd_broadcast(T, ushort);
template <class T> T simd_shuffle_down(T, ushort);
template <class T> T simd_shuffle_up(T, ushort);
bool simd_any(bool);
bool simd_all(bool);

// Two elements that can be indexed: what else Apple's type can do is not known here.
template <class T> struct matrix_elements {
  thread T& operator[](int);
};
template <class T, int Columns, int Rows> struct simdgroup_matrix {
  simdgroup_matrix() = default;
  explicit simdgroup_matrix(T);
  thread matrix_elements<T>& thread_elements();
};
typedef simdgroup_matrix<half, 8, 8> simdgroup_half8x8;
typedef simdgroup_matrix<bfloat, 8, 8> simdgroup_bfloat8x8;
typedef simdgroup_matrix<float, 8, 8> simdgroup_float8x8;
template <class T, int C, int R> simdgroup_matrix<T, C, R> make_filled_simdgroup_matrix(T);
template <class T> void simdgroup_load(thread simdgroup_matrix<T, 8, 8>&, const device T*, ulong = 8, ulong2 = 0, bool = false);
template <class T> void simdgroup_load(thread simdgroup_matrix<T, 8, 8>&, const threadgroup T*, ulong = 8, ulong2 = 0, bool = false);
template <class T> void simdgroup_store(simdgroup_matrix<T, 8, 8>, device T*, ulong = 8, ulong2 = 0, bool = false);
template <class T> void simdgroup_store(simdgroup_matrix<T, 8, 8>, threadgroup T*, ulong = 8, ulong2 = 0, bool = false);
template <class D, class A, class B, class C>
void simdgroup_multiply_accumulate(thread simdgroup_matrix<D, 8, 8>&, simdgroup_matrix<A, 8, 8>, simdgroup_matrix<B, 8, 8>, simdgroup_matrix<C, 8, 8>);

enum memory_order { memory_order_relaxed };
struct atomic_uint { uint value; };
uint atomic_load_explicit(threadgroup atomic_uint*, memory_order);
void atomic_store_explicit(threadgroup atomic_uint*, uint, memory_order);
uint atomic_fetch_add_explicit(threadgroup atomic_uint*, uint, memory_order);
}  // namespace metal
