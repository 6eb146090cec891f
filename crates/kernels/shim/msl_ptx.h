// Owns MSL's built-ins on NVIDIA GPUs, as PTX (sm_80 and later). Threadgroups are one-dimensional for lane numbering.
#pragma once
#pragma clang system_header

namespace ptx {
extern threadgroup __attribute__((aligned(128))) char shared[];
constexpr uint all_lanes = 0xffffffffu;

struct Position {
  uint x, y, z;
  operator uint() const { return x; }
  operator ushort() const { return (ushort)x; }
  operator uint2() const { uint2 v = {x, y}; return v; }
  operator uint3() const { uint3 v = {x, y, z}; return v; }
};
inline Position threadgroup_position_in_grid() { return {(uint)__nvvm_read_ptx_sreg_ctaid_x(), (uint)__nvvm_read_ptx_sreg_ctaid_y(), (uint)__nvvm_read_ptx_sreg_ctaid_z()}; }
inline Position threadgroups_per_grid() { return {(uint)__nvvm_read_ptx_sreg_nctaid_x(), (uint)__nvvm_read_ptx_sreg_nctaid_y(), (uint)__nvvm_read_ptx_sreg_nctaid_z()}; }
inline Position threads_per_threadgroup() { return {(uint)__nvvm_read_ptx_sreg_ntid_x(), (uint)__nvvm_read_ptx_sreg_ntid_y(), (uint)__nvvm_read_ptx_sreg_ntid_z()}; }
inline Position thread_position_in_threadgroup() { return {(uint)__nvvm_read_ptx_sreg_tid_x(), (uint)__nvvm_read_ptx_sreg_tid_y(), (uint)__nvvm_read_ptx_sreg_tid_z()}; }
inline Position threads_per_grid() {
  const Position g = threadgroups_per_grid(), n = threads_per_threadgroup();
  return {g.x * n.x, g.y * n.y, g.z * n.z};
}
inline Position thread_position_in_grid() {
  const Position g = threadgroup_position_in_grid(), n = threads_per_threadgroup(), p = thread_position_in_threadgroup();
  return {g.x * n.x + p.x, g.y * n.y + p.y, g.z * n.z + p.z};
}
inline uint thread_index_in_threadgroup() { return (uint)__nvvm_read_ptx_sreg_tid_x(); }
inline uint thread_index_in_simdgroup() { return (uint)__nvvm_read_ptx_sreg_tid_x() & 31u; }
inline uint simdgroup_index_in_threadgroup() { return (uint)__nvvm_read_ptx_sreg_tid_x() >> 5; }
inline uint simdgroups_per_threadgroup() { return ((uint)__nvvm_read_ptx_sreg_ntid_x() + 31u) >> 5; }
inline uint threads_per_simdgroup() { return 32; }

// Shuffles move 32 bits; narrower types ride inside.
template <class T> inline int to_bits(T v) {
  if constexpr (sizeof(T) == 4) return __builtin_bit_cast(int, v);
  else return (int)__builtin_bit_cast(ushort, v);
}
template <class T> inline T from_bits(int v) {
  if constexpr (sizeof(T) == 4) return __builtin_bit_cast(T, v);
  else return __builtin_bit_cast(T, (ushort)v);
}

}  // namespace ptx

namespace msl {
inline float exp2(float x) { return __nvvm_ex2_approx_f(x); }
inline float exp(float x) { return __nvvm_ex2_approx_f(x * 1.4426950408889634f); }
inline float log2(float x) { return __nvvm_lg2_approx_f(x); }
inline float log(float x) { return __nvvm_lg2_approx_f(x) * 0.6931471805599453f; }
inline float sqrt(float x) { return __nvvm_sqrt_rn_f(x); }
inline float rsqrt(float x) { return __nvvm_rsqrt_approx_f(x); }
inline float precise_rsqrt(float x) { return 1.0f / __nvvm_sqrt_rn_f(x); }
inline float tanh(float x) { float y; asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x)); return y; }
inline float sin(float x) { return __nvvm_sin_approx_f(x); }
inline float cos(float x) { return __nvvm_cos_approx_f(x); }
inline float fabs(float x) { return __nvvm_fabs_f(x); }
inline float floor(float x) { return __nvvm_floor_f(x); }
inline float ceil(float x) { return __nvvm_ceil_f(x); }
inline float rint(float x) { float y; asm("cvt.rni.f32.f32 %0, %1;" : "=f"(y) : "f"(x)); return y; }
inline float pow(float a, float b) { return exp2(b * log2(a)); }
}  // namespace msl

namespace metal {
inline void threadgroup_barrier(mem_flags) { __syncthreads(); }
inline void simdgroup_barrier(mem_flags) { __nvvm_bar_warp_sync(ptx::all_lanes); }
template <class T> inline T simd_shuffle_xor(T v, ushort mask) { return ptx::from_bits<T>(__nvvm_shfl_sync_bfly_i32(ptx::all_lanes, ptx::to_bits(v), mask, 31)); }
template <class T> inline T simd_shuffle(T v, ushort lane) { return ptx::from_bits<T>(__nvvm_shfl_sync_idx_i32(ptx::all_lanes, ptx::to_bits(v), lane, 31)); }
template <class T> inline T simd_broadcast(T v, ushort lane) { return simd_shuffle(v, lane); }
template <class T> inline T simd_shuffle_down(T v, ushort delta) { return ptx::from_bits<T>(__nvvm_shfl_sync_down_i32(ptx::all_lanes, ptx::to_bits(v), delta, 31)); }
template <class T> inline T simd_shuffle_up(T v, ushort delta) { return ptx::from_bits<T>(__nvvm_shfl_sync_up_i32(ptx::all_lanes, ptx::to_bits(v), delta, 0)); }
template <class T> inline T simd_sum(T v) {
#pragma unroll
  for (int m = 16; m; m >>= 1) v += simd_shuffle_xor(v, (ushort)m);
  return v;
}
template <class T> inline T simd_max(T v) {
#pragma unroll
  for (int m = 16; m; m >>= 1) v = __builtin_elementwise_max(v, simd_shuffle_xor(v, (ushort)m));
  return v;
}
template <class T> inline T simd_min(T v) {
#pragma unroll
  for (int m = 16; m; m >>= 1) v = __builtin_elementwise_min(v, simd_shuffle_xor(v, (ushort)m));
  return v;
}
template <class T> inline T simd_prefix_inclusive_sum(T v) {
  const uint lane = ptx::thread_index_in_simdgroup();
#pragma unroll
  for (uint d = 1; d < 32; d <<= 1) {
    const T below = simd_shuffle_up(v, (ushort)d);
    if (lane >= d) v += below;
  }
  return v;
}
template <class T> inline T simd_prefix_exclusive_sum(T v) { return simd_prefix_inclusive_sum(v) - v; }
inline bool simd_any(bool v) { return simd_max((int)v) != 0; }
inline bool simd_all(bool v) { return simd_min((int)v) != 0; }

// Two elements a lane, in the layout of an 8x8 block of mma.
template <class T, int Columns, int Rows> struct simdgroup_matrix {
  vec<T, 2> elements;
  simdgroup_matrix() = default;
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

enum memory_order { memory_order_relaxed };
struct atomic_uint { uint value; };
inline uint atomic_load_explicit(threadgroup atomic_uint* p, memory_order) { return __atomic_load_n(&p->value, __ATOMIC_RELAXED); }
inline void atomic_store_explicit(threadgroup atomic_uint* p, uint v, memory_order) { __atomic_store_n(&p->value, v, __ATOMIC_RELAXED); }
inline uint atomic_fetch_add_explicit(threadgroup atomic_uint* p, uint v, memory_order) { return __atomic_fetch_add(&p->value, v, __ATOMIC_RELAXED); }
}  // namespace metal

// The fragment helpers of common/fragment.h in mma's layout and at its full size.
#define METTLE_OWN_FRAGMENTS
inline ushort frag_row(ushort lane) { return lane >> 2; }
inline ushort frag_col(ushort lane) { return 2 * (lane & 3); }
inline float row_sum(float v) { v += metal::simd_shuffle_xor(v, 1); return v + metal::simd_shuffle_xor(v, 2); }
inline float row_max(float v) {
  v = __builtin_elementwise_max(v, metal::simd_shuffle_xor(v, 1));
  return __builtin_elementwise_max(v, metal::simd_shuffle_xor(v, 2));
}

namespace ptx {
template <class T> inline uint shared_address(const threadgroup T* p) { return (uint)(ulong)p; }
template <class T> inline uint pair(metal::vec<T, 2> v) { return __builtin_bit_cast(uint, v); }
inline void load_x4(uint (&r)[4], uint at) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];" : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at) : "memory");
}
inline void load_x2(uint (&r)[2], uint at) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1}, [%2];" : "=r"(r[0]), "=r"(r[1]) : "r"(at) : "memory");
}
inline void load_x4_transposed(uint (&r)[4], uint at) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];" : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at) : "memory");
}
template <class T> struct Mma;
#define PTX_MMA(T, NAME)                                                                                                \
  template <> struct Mma<T> {                                                                                           \
    static inline void run(metal::vec<float, 2>& low, metal::vec<float, 2>& high, const uint (&a)[4], const uint (&b)[2]) { \
      float c0 = low[0], c1 = low[1], c2 = high[0], c3 = high[1];                                                       \
      asm("mma.sync.aligned.m16n8k16.row.col.f32." NAME "." NAME ".f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};" \
          : "+f"(c0), "+f"(c1), "+f"(c2), "+f"(c3) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1])); \
      low[0] = c0; low[1] = c1; high[0] = c2; high[1] = c3;                                                             \
    }                                                                                                                   \
  };
PTX_MMA(half, "f16")
PTX_MMA(bfloat, "bf16")
#undef PTX_MMA
}  // namespace ptx

// acc += A · Bᵀ: A at [8 TM][8 TK], B at [8 TN][8 TK], both rows of threadgroup memory. TM 1 computes a second, unused row.
template <int TM, int TN, int TK, class T>
inline void tile_mma(metal::simdgroup_matrix<float, 8, 8> (&acc)[TM][TN], const threadgroup T* a, uint a_stride, const threadgroup T* b, uint b_stride) {
  static_assert(TK % 2 == 0 && (TM == 1 || TM % 2 == 0), "mma works on 16x16 of A");
  const uint lane = ptx::thread_index_in_simdgroup();
#pragma unroll
  for (int k = 0; k < TK; k += 2) {
    uint bs[TN][2];
    if constexpr (TN % 2 == 0) {
#pragma unroll
      for (int j = 0; j < TN; j += 2) {
        uint two[4];
        ptx::load_x4(two, ptx::shared_address(b + (8 * j + (lane & 7) + (lane >> 4) * 8) * b_stride + 8 * k + ((lane >> 3) & 1) * 8));
        bs[j][0] = two[0]; bs[j][1] = two[1]; bs[j + 1][0] = two[2]; bs[j + 1][1] = two[3];
      }
    } else {
#pragma unroll
      for (int j = 0; j < TN; j++) ptx::load_x2(bs[j], ptx::shared_address(b + (8 * j + (lane & 7)) * b_stride + 8 * k + ((lane >> 3) & 1) * 8));
    }
#pragma unroll
    for (int i = 0; i < TM; i += 2) {
      uint as[4];
      if constexpr (TM == 1) {
        uint half_tile[2];
        ptx::load_x2(half_tile, ptx::shared_address(a + (lane & 7) * a_stride + 8 * k + ((lane >> 3) & 1) * 8));
        as[0] = half_tile[0]; as[1] = 0; as[2] = half_tile[1]; as[3] = 0;
      } else {
        ptx::load_x4(as, ptx::shared_address(a + (8 * i + (lane & 15)) * a_stride + 8 * k + (lane >> 4) * 8));
      }
#pragma unroll
      for (int j = 0; j < TN; j++) {
        metal::vec<float, 2> unused = {0.0f, 0.0f};
        if constexpr (TM == 1) ptx::Mma<T>::run(acc[i][j].elements, unused, as, bs[j]);
        else ptx::Mma<T>::run(acc[i][j].elements, acc[i + 1][j].elements, as, bs[j]);
      }
    }
  }
}

// acc += A · B: A in fragments, [8 TM][8 TK]; B at [8 TK][8 TN], rows of threadgroup memory.
template <int TM, int TN, int TK, class T>
inline void tile_mma_rows(metal::simdgroup_matrix<float, 8, 8> (&acc)[TM][TN], metal::simdgroup_matrix<T, 8, 8> (&a)[TM][TK], const threadgroup T* b, uint b_stride) {
  static_assert(TK % 2 == 0 && TN % 2 == 0 && (TM == 1 || TM % 2 == 0), "mma works on 16x16 of A and 16 of n at a time");
  const uint lane = ptx::thread_index_in_simdgroup();
#pragma unroll
  for (int k = 0; k < TK; k += 2) {
#pragma unroll
    for (int j = 0; j < TN; j += 2) {
      uint two[4];
      ptx::load_x4_transposed(two, ptx::shared_address(b + (8 * k + (lane & 15)) * b_stride + 8 * j + (lane >> 4) * 8));
#pragma unroll
      for (int n = 0; n < 2; n++) {
        const uint bs[2] = {two[2 * n], two[2 * n + 1]};
#pragma unroll
        for (int i = 0; i < TM; i += 2) {
          if constexpr (TM == 1) {
            const uint as[4] = {ptx::pair<T>(a[0][k].elements), 0, ptx::pair<T>(a[0][k + 1].elements), 0};
            metal::vec<float, 2> unused = {0.0f, 0.0f};
            ptx::Mma<T>::run(acc[0][j + n].elements, unused, as, bs);
          } else {
            const uint as[4] = {ptx::pair<T>(a[i][k].elements), ptx::pair<T>(a[i + 1][k].elements), ptx::pair<T>(a[i][k + 1].elements), ptx::pair<T>(a[i + 1][k + 1].elements)};
            ptx::Mma<T>::run(acc[i][j + n].elements, acc[i + 1][j + n].elements, as, bs);
          }
        }
      }
    }
  }
}

// The asynchronous copies of common/stage.h.
#define METTLE_OWN_ASYNC_COPY
template <class T> inline void async_copy16(threadgroup T* to, const device T* from, bool inside) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" : : "r"(ptx::shared_address(to)), "l"(from), "r"(inside ? 16 : 0) : "memory");
}
inline void async_commit() { asm volatile("cp.async.commit_group;" : : : "memory"); }
template <int PENDING> inline void async_wait() { asm volatile("cp.async.wait_group %0;" : : "n"(PENDING) : "memory"); }

// Of common/quantized.h: the compiler would make two of it.
#define METTLE_OWN_MASKED_OR
inline uint masked_or(uint bits, uint mask, uint other) {
  uint both;
  asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(both) : "r"(bits), "r"(mask), "r"(other));
  return both;
}
