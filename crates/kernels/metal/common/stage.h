// Owns the copying of rows from device memory to threadgroup memory.

// Copies that go on behind the back of the thread that started them: `to` may change from then on, and holds what was
// copied after async_wait and a barrier. async_wait leaves the newest PENDING commits under way. The emulator and NVIDIA
// bring their own; Apple's GPUs gain nothing from them, so there they are plain copies, which no device profile chooses.
#ifndef METTLE_OWN_ASYNC_COPY
// Sixteen bytes, both sides at multiples of 16; zeros where not `inside`.
template <typename T>
inline void async_copy16(threadgroup T* to, const device T* from, bool inside) {
  *(threadgroup uint4*)to = inside ? *(const device uint4*)from : uint4(0u);
}
inline void async_commit() {}
template <int PENDING>
inline void async_wait() {}
#endif

// Rows of a staged tile lie COLUMNS + 8 elements apart: 16 bytes of padding, against bank conflicts.
template <int COLUMNS>
inline constexpr uint staged_stride() {
  return COLUMNS + 8;
}

// Eight elements, from which those at and after `valid` are zeros. `aligned` promises 16-byte boundaries, and that
// `valid` is 0 or at least 8. With more than one stage the copy is asynchronous, and all must be aligned.
template <int STAGES, typename T>
inline void stage8(threadgroup T* to, const device T* from, uint valid, bool aligned) {
  if constexpr (STAGES > 1) {
    async_copy16(to, from, valid >= 8);
  } else if (aligned) {
    *(threadgroup uint4*)to = valid >= 8 ? *(const device uint4*)from : uint4(0u);
  } else {
    for (uint i = 0; i < 8; ++i) to[i] = i < valid ? from[i] : T(0.0f);
  }
}

// Chunks of eight columns that each of THREADS threads copies of a tile.
template <int ROWS, int COLUMNS, int THREADS>
inline constexpr uint staged_share() {
  return (ROWS * (COLUMNS / 8) + THREADS - 1) / THREADS;
}

// ROWS x COLUMNS, rows `stride` elements apart; what lies outside of `rows` and `columns` becomes zero.
template <int STAGES, int ROWS, int COLUMNS, int THREADS, typename T>
inline void stage_tile(threadgroup T* to, const device T* from, ulong stride, uint rows, uint columns,
                       bool aligned, uint thread_index) {
  constexpr uint chunks = COLUMNS / 8;
  #pragma unroll
  for (uint i = 0; i < staged_share<ROWS, COLUMNS, THREADS>(); ++i) {
    const uint chunk = i * THREADS + thread_index;
    const uint row = chunk / chunks;
    const uint column = chunk % chunks * 8;
    const bool inside = row < rows && column < columns;
    if (ROWS * chunks % THREADS == 0 || row < ROWS) {
      stage8<STAGES>(to + row * staged_stride<COLUMNS>() + column, from + (inside ? row : 0) * stride + column,
                     inside ? columns - column : 0, aligned);
    }
  }
}
