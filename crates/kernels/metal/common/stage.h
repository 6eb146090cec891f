// Owns the copying of a tile from device memory to threadgroup memory by all threads of a threadgroup.

// Rows of a staged tile lie COLUMNS + 8 elements apart: 16 bytes of padding, against bank conflicts.
template <int COLUMNS>
inline constexpr uint staged_stride() {
  return COLUMNS + 8;
}

// Eight elements, from which those at and after `valid` are zeros. `aligned` promises a 16-byte boundary.
template <typename T>
inline void stage8(threadgroup T* to, const device T* from, uint valid, bool aligned) {
  if (aligned && valid >= 8) {
    *(threadgroup uint4*)to = *(const device uint4*)from;
  } else {
    for (uint i = 0; i < 8; ++i) to[i] = i < valid ? from[i] : T(0.0f);
  }
}

// ROWS x COLUMNS, rows `stride` elements apart; what lies outside of `rows` and `columns` becomes zero.
template <int ROWS, int COLUMNS, typename T>
inline void stage_tile(threadgroup T* to, const device T* from, ulong stride, uint rows, uint columns,
                       bool aligned, uint thread_index, uint threads) {
  constexpr uint chunks = COLUMNS / 8;
  for (uint chunk = thread_index; chunk < ROWS * chunks; chunk += threads) {
    const uint row = chunk / chunks;
    const uint column = chunk % chunks * 8;
    const uint valid = row < rows && column < columns ? columns - column : 0;
    stage8(to + row * staged_stride<COLUMNS>() + column, from + row * stride + column, valid, aligned);
  }
}
