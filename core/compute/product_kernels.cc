#include "core/compute/product_kernels.h"

#include <algorithm>
#include <type_traits>

#include "core/compute/half_lanes.h"

namespace stepnet {
namespace {

constexpr int kLanes = 8, kVectors = 2;
constexpr int64_t kTileRows = 6, kPanelColumns = kLanes * kVectors;
// A panel of B takes 16 KB, half of the first-level cache, a block of A 96 KB of the second-level one. A matrix B that
// is not packed is packed block by block, of at most 512 KB.
constexpr int64_t kBlockDepth = 256, kBlockRows = 16 * kTileRows, kBlockColumns = 512;

// Few rows, and those that few columns are made of, are read where they are. A C of more elements than this does not
// stay in the cache.
constexpr int64_t kRowsUnpacked = 64, kColumnsUnpacked = 512, kLargeResult = 1 << 18;

typedef float Lanes __attribute__((vector_size(kLanes * sizeof(float))));

Lanes load(const float* p) {
  Lanes v;
  __builtin_memcpy(&v, p, sizeof(v));
  return v;
}
void store(float* p, Lanes v) { __builtin_memcpy(p, &v, sizeof(v)); }

// Where a tile goes.
struct Tile {
  float* c;
  int64_t ldc, columns;
  bool accumulate;
  const float* bias;
  bool fetch;  // it is not in the cache
};

template <int R>
void store_part(const Tile& tile, const Lanes (&sums)[R][kVectors]) {
  float row[kPanelColumns];
  for (int r = 0; r < R; ++r) {
    for (int v = 0; v < kVectors; ++v) store(row + v * kLanes, sums[r][v]);
    float* to = tile.c + r * tile.ldc;
    for (int64_t j = 0; j < tile.columns; ++j) {
      float sum = row[j];
      if (tile.bias) sum += tile.bias[j];
      to[j] = tile.accumulate ? sum + to[j] : sum;
    }
  }
}

// R rows of A, packed or `lda` elements apart, times one panel.
template <int R, bool kPacked>
void run_tile(int64_t depth, const float* a, int64_t lda, const float* b, const Tile& tile) {
  Lanes sums[R][kVectors] = {};
  if (tile.fetch)
    for (int r = 0; r < R; ++r)
      for (const int64_t end : {int64_t{0}, kPanelColumns - 1}) __builtin_prefetch(tile.c + r * tile.ldc + end, 1);
  for (int64_t p = 0; p < depth; ++p, a += kPacked ? R : 1, b += kPanelColumns) {
    Lanes x[kVectors];
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) x[v] = load(b + v * kLanes);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) sums[r][v] += a[kPacked ? r : r * lda] * x[v];
  }
  if (tile.columns < kPanelColumns) return store_part<R>(tile, sums);
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) {
      float* to = tile.c + r * tile.ldc + v * kLanes;
      Lanes sum = sums[r][v];
      if (tile.bias) sum += load(tile.bias + v * kLanes);
      store(to, tile.accumulate ? sum + load(to) : sum);
    }
}

template <bool kPacked>
void run_tile(int64_t rows, int64_t depth, const float* a, int64_t lda, const float* b, const Tile& tile) {
  static_assert(kTileRows == 6);
  switch (rows) {
    case 1:
      return run_tile<1, kPacked>(depth, a, lda, b, tile);
    case 2:
      return run_tile<2, kPacked>(depth, a, lda, b, tile);
    case 3:
      return run_tile<3, kPacked>(depth, a, lda, b, tile);
    case 4:
      return run_tile<4, kPacked>(depth, a, lda, b, tile);
    case 5:
      return run_tile<5, kPacked>(depth, a, lda, b, tile);
    default:
      return run_tile<6, kPacked>(depth, a, lda, b, tile);
  }
}

// How many of the `rows` that are left one tile takes. Tiles of one or two rows have too few sums to keep a CPU busy,
// so the last eight or seven rows are two tiles alike.
int64_t tile_rows(int64_t rows) {
  if (rows == 7 || rows == 8) return 4;
  return std::min(rows, kTileRows);
}

// [tiles][depth][rows of the tile], of rows that are stored one after another.
void pack_rows(const float* a, int64_t lda, int64_t rows, int64_t depth, float* to) {
  for (int64_t i = 0, taken = 0; i < rows; i += taken) {
    const float* from = a + i * lda;
    taken = tile_rows(rows - i);
    if (taken == kTileRows) {
      for (int64_t p = 0; p < depth; ++p, to += kTileRows)
#pragma GCC unroll 8
        for (int64_t r = 0; r < kTileRows; ++r) to[r] = from[r * lda + p];
    } else {
      for (int64_t p = 0; p < depth; ++p)
        for (int64_t r = 0; r < taken; ++r) *to++ = from[r * lda + p];
    }
  }
}

void transpose(Lanes (&rows)[kLanes]) {
  Lanes pairs[kLanes], fours[kLanes];
#pragma GCC unroll 4
  for (int i = 0; i < kLanes; i += 2) {
    pairs[i] = __builtin_shufflevector(rows[i], rows[i + 1], 0, 8, 1, 9, 4, 12, 5, 13);
    pairs[i + 1] = __builtin_shufflevector(rows[i], rows[i + 1], 2, 10, 3, 11, 6, 14, 7, 15);
  }
#pragma GCC unroll 2
  for (int i = 0; i < kLanes; i += 4)
#pragma GCC unroll 2
    for (int j = 0; j < 2; ++j) {
      fours[i + 2 * j] = __builtin_shufflevector(pairs[i + j], pairs[i + j + 2], 0, 1, 8, 9, 4, 5, 12, 13);
      fours[i + 2 * j + 1] = __builtin_shufflevector(pairs[i + j], pairs[i + j + 2], 2, 3, 10, 11, 6, 7, 14, 15);
    }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    rows[i] = __builtin_shufflevector(fours[i], fours[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
    rows[i + 4] = __builtin_shufflevector(fours[i], fours[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
  }
}

// A panel of what is stored by columns.
void pack_transposed_panel(const float* b, int64_t ld, int64_t columns, int64_t depth, float* to) {
  int64_t p = 0;
  if (columns == kPanelColumns)
    for (; p + kLanes <= depth; p += kLanes)
      for (int64_t j = 0; j < kPanelColumns; j += kLanes) {
        Lanes rows[kLanes];
#pragma GCC unroll 8
        for (int r = 0; r < kLanes; ++r) rows[r] = load(b + (j + r) * ld + p);
        transpose(rows);
#pragma GCC unroll 8
        for (int r = 0; r < kLanes; ++r) store(to + (p + r) * kPanelColumns + j, rows[r]);
      }
  for (; p < depth; ++p)
    for (int64_t j = 0; j < kPanelColumns; ++j) to[p * kPanelColumns + j] = j < columns ? b[j * ld + p] : 0;
}

void pack_plain_panel(const float* b, int64_t ld, int64_t columns, int64_t depth, float* to) {
  for (int64_t p = 0; p < depth; ++p, b += ld, to += kPanelColumns) {
    if (columns == kPanelColumns) {
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) store(to + v * kLanes, load(b + v * kLanes));
    } else {
      for (int64_t j = 0; j < kPanelColumns; ++j) to[j] = j < columns ? b[j] : 0;
    }
  }
}

int64_t whole_panels(int64_t n) { return (n + kPanelColumns - 1) / kPanelColumns * kPanelColumns; }

void pack_panel(bool transposed, const float* b, int64_t ld, int64_t columns, int64_t depth, float* to) {
  (transposed ? pack_transposed_panel : pack_plain_panel)(b, ld, columns, depth, to);
}

// Halves become float32 a tile, a row or a panel at a time, on the stack.
template <class Half>
void pack_rows(const Half* a, int64_t lda, int64_t rows, int64_t depth, float* to) {
  float tile[kTileRows * kBlockDepth];
  for (int64_t i = 0, taken = 0; i < rows; i += taken, to += taken * depth) {
    taken = tile_rows(rows - i);
    for (int64_t r = 0; r < taken; ++r) convert_lanes(a + (i + r) * lda, depth, tile + r * depth);
    pack_rows(tile, depth, taken, depth, to);
  }
}

// The same as pack_rows of rows that are stored as columns: what is stored together goes to all tiles.
template <class T>
void pack_columns(const T* a, int64_t lda, int64_t rows, int64_t depth, float* to) {
  float converted[kBlockRows];
  for (int64_t p = 0; p < depth; ++p, a += lda) {
    const float* row = converted;
    if constexpr (std::is_same_v<T, float>)
      row = a;
    else
      convert_lanes(a, rows, converted);
    for (int64_t i = 0, taken = 0; i < rows; i += taken) {
      taken = tile_rows(rows - i);
      float* tile = to + i * depth + p * taken;
      if (taken == kTileRows) {
#pragma GCC unroll 8
        for (int64_t r = 0; r < kTileRows; ++r) tile[r] = row[i + r];
      } else {
        for (int64_t r = 0; r < taken; ++r) tile[r] = row[i + r];
      }
    }
  }
}

template <class Half>
void pack_panel(bool transposed, const Half* b, int64_t ld, int64_t columns, int64_t depth, float* to) {
  float panel[kPanelColumns * kBlockDepth];
  const int64_t stored = transposed ? columns : depth, size = transposed ? depth : columns;
  for (int64_t i = 0; i < stored; ++i) convert_lanes(b + i * ld, size, panel + i * size);
  pack_panel(transposed, panel, size, columns, depth, to);
}

// Packs `columns` columns from j on of the rows from `at` on.
template <class T>
void pack_block(const StoredMatrix& shape, const T* b, int64_t at, int64_t depth, int64_t first, int64_t columns,
                float* packed) {
  for (int64_t j = first; j < first + columns; j += kPanelColumns, packed += depth * kPanelColumns) {
    const int64_t width = std::min(kPanelColumns, first + columns - j);
    const T* from = b + (shape.transposed ? j * shape.ld + at : at * shape.ld + j);
    pack_panel(shape.transposed, from, shape.ld, width, depth, packed);
  }
}

template <class T>
bool packs_rows(const FloatProduct<T>& f) {
  return !std::is_same_v<T, float> || f.trans_a || (f.m > kRowsUnpacked && f.n > kColumnsUnpacked);
}

// Adds what `depth` rows of B from `at` on give to `columns` columns of C from j on.
template <class T>
void run_block(const FloatProduct<T>& f, int64_t at, int64_t depth, int64_t first_column, int64_t columns,
               const float* panels, float* scratch) {
  const bool accumulate = f.accumulate || at > 0;
  const float* bias = at > 0 ? nullptr : f.bias;
  for (int64_t first = 0; first < f.m; first += kBlockRows) {
    const int64_t rows = std::min(kBlockRows, f.m - first);
    const T* a = f.a + (f.trans_a ? at * f.lda + first : first * f.lda + at);
    const bool packed = packs_rows(f);
    if (packed) f.trans_a ? pack_columns(a, f.lda, rows, depth, scratch) : pack_rows(a, f.lda, rows, depth, scratch);
    for (int64_t j = 0; j < columns; j += kPanelColumns)
      for (int64_t i = 0, taken = 0; i < rows; i += taken) {
        taken = tile_rows(rows - i);
        const Tile tile{.c = f.c + (first + i) * f.ldc + first_column + j,
                        .ldc = f.ldc,
                        .columns = std::min(kPanelColumns, columns - j),
                        .accumulate = accumulate,
                        .bias = bias ? bias + first_column + j : nullptr,
                        .fetch = f.m * f.n > kLargeResult};
        if (packed)
          run_tile<true>(taken, depth, scratch + i * depth, 0, panels + j * depth, tile);
        else if constexpr (std::is_same_v<T, float>)
          run_tile<false>(taken, depth, a + i * f.lda, f.lda, panels + j * depth, tile);
      }
  }
}

template <class T>
int64_t rows_floats(const FloatProduct<T>& f) {
  return packs_rows(f) ? std::min(f.m, kBlockRows) * std::min(f.k, kBlockDepth) : 0;
}

}  // namespace

int64_t packed_floats(const StoredMatrix& shape) { return whole_panels(shape.n) * shape.k; }

template <class T>
void pack_matrix(const StoredMatrix& shape, const T* b, float* packed) {
  for (int64_t at = 0; at < shape.k; at += kBlockDepth) {
    const int64_t depth = std::min(kBlockDepth, shape.k - at);
    pack_block(shape, b, at, depth, 0, shape.n, packed);
    packed += whole_panels(shape.n) * depth;
  }
}

template <class T>
int64_t product_scratch_floats(const FloatProduct<T>& f, bool packed) {
  const int64_t block = packed ? 0 : whole_panels(std::min(f.n, kBlockColumns)) * std::min(f.k, kBlockDepth);
  return rows_floats(f) + block;
}

template <class T>
void run_packed_product(const FloatProduct<T>& f, const float* packed_b, float* scratch) {
  for (int64_t at = 0; at < f.k; at += kBlockDepth)
    run_block(f, at, std::min(kBlockDepth, f.k - at), 0, f.n, packed_b + at * whole_panels(f.n), scratch);
}

template <class T>
void run_product(const FloatProduct<T>& f, const StoredMatrix& shape, const T* b, float* scratch) {
  float* const packed = scratch + rows_floats(f);
  for (int64_t j = 0; j < f.n; j += kBlockColumns)
    for (int64_t at = 0; at < f.k; at += kBlockDepth) {
      const int64_t depth = std::min(kBlockDepth, f.k - at), columns = std::min(kBlockColumns, f.n - j);
      pack_block(shape, b, at, depth, j, columns, packed);
      run_block(f, at, depth, j, columns, packed, scratch);
    }
}

template void pack_matrix(const StoredMatrix&, const float*, float*);
template void pack_matrix(const StoredMatrix&, const float16*, float*);
template void pack_matrix(const StoredMatrix&, const bfloat16*, float*);
template int64_t product_scratch_floats(const FloatProduct<float>&, bool);
template int64_t product_scratch_floats(const FloatProduct<float16>&, bool);
template int64_t product_scratch_floats(const FloatProduct<bfloat16>&, bool);
template void run_packed_product(const FloatProduct<float>&, const float*, float*);
template void run_packed_product(const FloatProduct<float16>&, const float*, float*);
template void run_packed_product(const FloatProduct<bfloat16>&, const float*, float*);
template void run_product(const FloatProduct<float>&, const StoredMatrix&, const float*, float*);
template void run_product(const FloatProduct<float16>&, const StoredMatrix&, const float16*, float*);
template void run_product(const FloatProduct<bfloat16>&, const StoredMatrix&, const bfloat16*, float*);

}  // namespace stepnet
