// Owns MSL's built-ins on the emulated machine.
#pragma once
#pragma clang system_header
#include "emulator.h"

namespace emu {
// A position converts to whatever type the kernel declared.
struct Position {
  Vec3 v;
  operator uint() const { return v.x; }
  operator ushort() const { return (ushort)v.x; }
  operator uint2() const { return (uint2){v.x, v.y}; }
  operator uint3() const { return (uint3){v.x, v.y, v.z}; }
};
inline void* buffer(Thread& t, int index) { return t.group->buffers[index]; }
inline void* threadgroup_memory(Thread& t) { return t.group->memory; }
inline Position threadgroup_position_in_grid(Thread& t) { return {t.group->position}; }
inline Position threadgroups_per_grid(Thread& t) { return {t.group->grid}; }
inline Position threads_per_threadgroup(Thread& t) { return {t.group->threads}; }
inline Position thread_position_in_threadgroup(Thread& t) { return {t.position}; }
inline Position threads_per_grid(Thread& t) {
  const Vec3 g = t.group->grid, n = t.group->threads;
  return {{g.x * n.x, g.y * n.y, g.z * n.z}};
}
inline Position thread_position_in_grid(Thread& t) {
  const Vec3 g = t.group->position, n = t.group->threads, p = t.position;
  return {{g.x * n.x + p.x, g.y * n.y + p.y, g.z * n.z + p.z}};
}
inline uint thread_index_in_threadgroup(Thread& t) { return t.index; }
inline uint thread_index_in_simdgroup(Thread& t) { return t.lane; }
inline uint simdgroup_index_in_threadgroup(Thread& t) { return t.index / 32; }
inline uint simdgroups_per_threadgroup(Thread& t) { return (t.group->size + 31) / 32; }
inline uint threads_per_simdgroup(Thread&) { return 32; }

// A lane's part of a collective: what it brings, what it takes away, and an operand.
template <class T> struct Part { T in, out; int operand; };
struct Add { template <class T> static T apply(T a, T b) { return a + b; } };
struct Max { template <class T> static T apply(T a, T b) { return __builtin_elementwise_max(a, b); } };
struct Min { template <class T> static T apply(T a, T b) { return __builtin_elementwise_min(a, b); } };

template <class T> inline Part<T>& part(Simdgroup& g, uint lane) { return *(Part<T>*)g.slot[lane]; }

// In butterfly order, as hardware does it.
template <class T, class Op> inline T reduce(T value, Site site) {
  Part<T> mine{value, value, 0};
  meet(&mine, +[](Simdgroup& g) {
    T v[32];
    for (uint l = 0; l < g.size; l++) v[l] = part<T>(g, l).in;
    for (uint step = 16; step; step >>= 1)
      for (uint l = 0; l < step; l++) if (l + step < g.size) v[l] = Op::apply(v[l], v[l + step]);
    for (uint l = 0; l < g.size; l++) part<T>(g, l).out = v[0];
  }, site);
  return mine.out;
}

template <class T, bool Inclusive> inline T prefix_sum(T value, Site site) {
  Part<T> mine{value, value, 0};
  meet(&mine, +[](Simdgroup& g) {
    T sum = T(0);
    for (uint l = 0; l < g.size; l++) {
      Part<T>& p = part<T>(g, l);
      if (Inclusive) p.out = sum += p.in; else { p.out = sum; sum += p.in; }
    }
  }, site);
  return mine.out;
}

enum class Shuffle { Xor, From, Down, Up };
template <class T, Shuffle Kind> inline T shuffle(T value, int operand, Site site) {
  Part<T> mine{value, value, operand};
  meet(&mine, +[](Simdgroup& g) {
    for (uint l = 0; l < g.size; l++) {
      Part<T>& p = part<T>(g, l);
      int from = Kind == Shuffle::Xor ? (int)l ^ p.operand : Kind == Shuffle::From ? p.operand
               : Kind == Shuffle::Down ? (int)l + p.operand : (int)l - p.operand;
      // MSL leaves a lane that reads past the end undefined: poison it.
      if (from < 0 || from >= (int)g.size) __builtin_memset(&p.out, 0xff, sizeof p.out);
      else p.out = part<T>(g, (uint)from).in;
    }
  }, site);
  return mine.out;
}
}  // namespace emu

namespace msl {
inline float exp(float x) { return __builtin_expf(x); }
inline float exp2(float x) { return __builtin_exp2f(x); }
inline float log(float x) { return __builtin_logf(x); }
inline float log2(float x) { return __builtin_log2f(x); }
inline float sqrt(float x) { return __builtin_sqrtf(x); }
inline float rsqrt(float x) { return 1.0f / __builtin_sqrtf(x); }
inline float precise_rsqrt(float x) { return 1.0f / __builtin_sqrtf(x); }
inline float tanh(float x) { return __builtin_tanhf(x); }
inline float sin(float x) { return __builtin_sinf(x); }
inline float cos(float x) { return __builtin_cosf(x); }
inline float fabs(float x) { return __builtin_fabsf(x); }
inline float floor(float x) { return __builtin_floorf(x); }
inline float ceil(float x) { return __builtin_ceilf(x); }
inline float rint(float x) { return __builtin_rintf(x); }
inline float pow(float a, float b) { return __builtin_powf(a, b); }
}  // namespace msl

// Default arguments are evaluated where the call stands: a fault names that line.
#define MSL_HERE emu::Site{__builtin_FILE(), __builtin_LINE()}
namespace metal {
inline void threadgroup_barrier(mem_flags flags, emu::Site site = MSL_HERE) { emu::barrier((int)flags, site); }
inline void simdgroup_barrier(mem_flags, emu::Site site = MSL_HERE) { emu::meet(nullptr, +[](emu::Simdgroup&) {}, site); }
template <class T> inline T simd_sum(T v, emu::Site site = MSL_HERE) { return emu::reduce<T, emu::Add>(v, site); }
template <class T> inline T simd_max(T v, emu::Site site = MSL_HERE) { return emu::reduce<T, emu::Max>(v, site); }
template <class T> inline T simd_min(T v, emu::Site site = MSL_HERE) { return emu::reduce<T, emu::Min>(v, site); }
template <class T> inline T simd_prefix_inclusive_sum(T v, emu::Site site = MSL_HERE) { return emu::prefix_sum<T, true>(v, site); }
template <class T> inline T simd_prefix_exclusive_sum(T v, emu::Site site = MSL_HERE) { return emu::prefix_sum<T, false>(v, site); }
template <class T> inline T simd_shuffle_xor(T v, ushort mask, emu::Site site = MSL_HERE) { return emu::shuffle<T, emu::Shuffle::Xor>(v, mask, site); }
template <class T> inline T simd_shuffle(T v, ushort lane, emu::Site site = MSL_HERE) { return emu::shuffle<T, emu::Shuffle::From>(v, lane, site); }
template <class T> inline T simd_broadcast(T v, ushort lane, emu::Site site = MSL_HERE) { return emu::shuffle<T, emu::Shuffle::From>(v, lane, site); }
template <class T> inline T simd_shuffle_down(T v, ushort delta, emu::Site site = MSL_HERE) { return emu::shuffle<T, emu::Shuffle::Down>(v, delta, site); }
template <class T> inline T simd_shuffle_up(T v, ushort delta, emu::Site site = MSL_HERE) { return emu::shuffle<T, emu::Shuffle::Up>(v, delta, site); }
inline bool simd_any(bool v, emu::Site site = MSL_HERE) { return emu::reduce<int, emu::Max>(v, site) != 0; }
inline bool simd_all(bool v, emu::Site site = MSL_HERE) { return emu::reduce<int, emu::Min>(v, site) != 0; }

// Two elements a lane, in the lane layout of Apple's GPUs.
template <class T, int Columns, int Rows> struct simdgroup_matrix {
  static_assert(Columns == 8 && Rows == 8, "simdgroup matrices are 8x8");
  vec<T, 2> elements;
  simdgroup_matrix() { __builtin_memset(&elements, 0xff, sizeof elements); }
  explicit simdgroup_matrix(T diagonal) {
    const int l = (int)emu::current->lane, r = 4 * (l >> 4) + ((l >> 1) & 3), c = 4 * ((l >> 3) & 1) + 2 * (l & 1);
    elements[0] = r == c ? diagonal : T(0);
    elements[1] = r == c + 1 ? diagonal : T(0);
  }
  vec<T, 2>& thread_elements() { return elements; }
};
typedef simdgroup_matrix<half, 8, 8> simdgroup_half8x8;
typedef simdgroup_matrix<bfloat, 8, 8> simdgroup_bfloat8x8;
typedef simdgroup_matrix<float, 8, 8> simdgroup_float8x8;

template <class T, int C, int R> inline simdgroup_matrix<T, C, R> make_filled_simdgroup_matrix(T value) {
  simdgroup_matrix<T, C, R> m;
  m.elements[0] = m.elements[1] = value;
  return m;
}
inline int matrix_row(uint l) { return (int)(4 * (l >> 4) + ((l >> 1) & 3)); }
inline int matrix_column(uint l) { return (int)(4 * ((l >> 3) & 1) + 2 * (l & 1)); }

// All lanes read together, as a real simdgroup does: the meeting comes first for loads, last for stores.
#define MSL_LOAD_STORE(SPACE)                                                                                           \
  template <class T> inline void simdgroup_load(simdgroup_matrix<T, 8, 8>& m, const SPACE T* p, ulong stride = 8,       \
                                                ulong2 origin = 0, bool transposed = false, emu::Site site = MSL_HERE) {\
    simdgroup_barrier(mem_flags::mem_none, site);                                                                       \
    const int r = matrix_row(emu::current->lane), c = matrix_column(emu::current->lane);                                \
    for (int k = 0; k < 2; k++) {                                                                                       \
      const int row = transposed ? c + k : r, column = transposed ? r : c + k;                                          \
      m.elements[k] = p[(origin.y + row) * stride + origin.x + column];                                                 \
    }                                                                                                                   \
  }                                                                                                                     \
  template <class T> inline void simdgroup_store(simdgroup_matrix<T, 8, 8> m, SPACE T* p, ulong stride = 8,             \
                                                 ulong2 origin = 0, bool transposed = false, emu::Site site = MSL_HERE){\
    const int r = matrix_row(emu::current->lane), c = matrix_column(emu::current->lane);                                \
    for (int k = 0; k < 2; k++) {                                                                                       \
      const int row = transposed ? c + k : r, column = transposed ? r : c + k;                                          \
      p[(origin.y + row) * stride + origin.x + column] = m.elements[k];                                                 \
    }                                                                                                                   \
    simdgroup_barrier(mem_flags::mem_none, site);                                                                       \
  }
#if defined(MSL_FLAT)
MSL_LOAD_STORE()
#else
MSL_LOAD_STORE(device)
MSL_LOAD_STORE(threadgroup)
#endif
#undef MSL_LOAD_STORE

template <class D, class A, class B, class C>
inline void simdgroup_multiply_accumulate(simdgroup_matrix<D, 8, 8>& d, const simdgroup_matrix<A, 8, 8>& a, const simdgroup_matrix<B, 8, 8>& b,
                                          const simdgroup_matrix<C, 8, 8>& c, emu::Site site = MSL_HERE) {
  struct Operands { simdgroup_matrix<D, 8, 8>* d; const simdgroup_matrix<A, 8, 8>* a; const simdgroup_matrix<B, 8, 8>* b; const simdgroup_matrix<C, 8, 8>* c; };
  Operands mine{&d, &a, &b, &c};
  emu::meet(&mine, +[](emu::Simdgroup& g) {
    if (g.size != 32) emu::fail("a matrix operation needs all 32 lanes");
    float x[64], y[64], z[64];
    for (uint l = 0; l < 32; l++) {
      const Operands& o = *(Operands*)g.slot[l];
      const int at = matrix_row(l) * 8 + matrix_column(l);
      for (int k = 0; k < 2; k++) x[at + k] = (float)o.a->elements[k], y[at + k] = (float)o.b->elements[k], z[at + k] = (float)o.c->elements[k];
    }
    for (int i = 0; i < 8; i++)
      for (int k = 0; k < 8; k++)
        for (int j = 0; j < 8; j++) z[i * 8 + j] += x[i * 8 + k] * y[k * 8 + j];
    for (uint l = 0; l < 32; l++) {
      const Operands& o = *(Operands*)g.slot[l];
      const int at = matrix_row(l) * 8 + matrix_column(l);
      for (int k = 0; k < 2; k++) o.d->elements[k] = (D)z[at + k];
    }
  }, site);
}

// Fibers of one threadgroup share an OS thread, so plain memory is atomic between them.
enum memory_order { memory_order_relaxed };
struct atomic_uint { uint value; };
inline uint atomic_load_explicit(threadgroup atomic_uint* p, memory_order) { return p->value; }
inline void atomic_store_explicit(threadgroup atomic_uint* p, uint v, memory_order) { p->value = v; }
inline uint atomic_fetch_add_explicit(threadgroup atomic_uint* p, uint v, memory_order) { uint old = p->value; p->value = old + v; return old; }
}  // namespace metal

// The asynchronous copies of common/stage.h.
#define METTLE_OWN_ASYNC_COPY
template <class T> inline void async_copy16(threadgroup T* to, const device T* from, bool inside, emu::Site site = MSL_HERE) {
  emu::copy_begin((void*)to, inside ? (const void*)from : nullptr, site);
}
inline void async_commit() { emu::copies_commit(); }
template <int PENDING> inline void async_wait() { emu::copies_wait(PENDING); }
#undef MSL_HERE
