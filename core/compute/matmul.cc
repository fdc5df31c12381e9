#include "stepnet/matmul.h"

#include <Eigen/Core>
#include <algorithm>
#include <array>
#include <atomic>
#include <cassert>
#include <functional>
#include <mutex>
#include <type_traits>

#include "core/compute/backend.h"
#include "core/compute/half_spans.h"
#include "core/compute/product.h"
#include "core/compute/row_product.h"
#include "core/compute/threads.h"
#include "core/compute/vector_math.h"
#include "core/tensor/dry_device.h"
#include "stepnet/error.h"
#include "stepnet/profiler.h"

namespace stepnet {
namespace {

std::atomic<bool> counting{false};
std::mutex counter_mutex;
MatmulCounters counters;

template <class T, class C = T>
struct Matmul {
  bool trans_a, trans_b;
  int64_t m, n, k;
  const T *a, *b, *bias;
  C* c;
  bool accumulate;
  WeightPacks* packs;
  int64_t ldb = 0, ldc = 0;     // from one stored row to the next
  const T* stored_b = nullptr;  // the matrix that B is columns of, by which `packs` knows it
  double flops() const { return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k); }
};

template <class T, class C>
void start_with_bias(const Matmul<T, C>& p) {
  using Sum = std::conditional_t<std::is_same_v<T, double>, double, float>;
  for (int64_t i = 0; i < p.m; ++i) {
    C* row = p.c + i * p.ldc;
    for (int64_t j = 0; j < p.n; ++j)
      row[j] = static_cast<C>((p.accumulate ? Sum(row[j]) : Sum(0)) + (p.bias ? Sum(p.bias[j]) : Sum(0)));
  }
}

constexpr double kNanosecondsPerElement = 0.045;  // of a matrix that a row is multiplied by

// Threads take whole rows of B, which memory gives faster than pieces of rows, and their sums are added up.
void row_times_plain(const RowProduct& row) {
  const int parts = parts_for(kNanosecondsPerElement * static_cast<double>(row.n) * static_cast<double>(row.k));
  if (parts == 1) return row_products().plain(row, 0, row.n);
  const auto sums =
      thread_buffer<float>(ThreadBuffer::lines, static_cast<size_t>(row.n) * static_cast<size_t>(parts - 1));
  auto part = [&row, parts, others = sums.data()](int i) {
    const int64_t first = row.k * i / parts;
    RowProduct rows = row;
    rows.a += first;
    rows.b += first * row.ldb;
    rows.k = row.k * (i + 1) / parts - first;
    if (i > 0) {
      rows.accumulate = false;
      rows.bias = nullptr;
      rows.c = others + (i - 1) * row.n;
    }
    row_products().plain(rows, 0, row.n);
  };
  parallel_parts(parts, std::ref(part));
  for (int i = 1; i < parts; ++i)
    vec_axpy(1.0F, {sums.data() + (i - 1) * row.n, static_cast<size_t>(row.n)}, {row.c, static_cast<size_t>(row.n)});
}

// Threads get blocks of so many outputs.
void row_in_blocks(const RowProduct& row, int64_t block, void (*kernel)(const RowProduct&, int64_t, int64_t)) {
  auto blocks = [&](int64_t begin, int64_t end) { kernel(row, begin * block, std::min(end * block, row.n)); };
  parallel_for((row.n + block - 1) / block, kNanosecondsPerElement * static_cast<double>(block * row.k),
               std::ref(blocks));
}

// The packed panels of the matrix that a row is multiplied by; null where it is read as it is.
const float* panels_for(const Matmul<float>& p) {
  if (!p.trans_b || !p.packs || !p.packs->holds(p.stored_b)) return nullptr;
  return p.packs->panels_of(p.b, p.n, p.k, p.ldb, row_products().panel_columns);
}

// One row: memory is the limit; for a matrix in the second-level cache, sums over the lanes of vectors are.
void row_product(const Matmul<float>& p) {
  constexpr int64_t kCacheLine = 16;
  const RowProductKernels& kernels = row_products();
  RowProduct row{p.n, p.k, p.a, p.b, p.c, p.accumulate, p.ldb, p.bias};
  if (!p.trans_b) return row_times_plain(row);
  const float* panels = panels_for(p);
  if (!panels) return row_in_blocks(row, kCacheLine, kernels.transposed);
  row.b = panels;
  row_in_blocks(row, kernels.panel_columns, kernels.panels);
}

// The same of halves, which become floats a few rows of B at a time, in a buffer of the thread.
template <class Half>
void plain_halves(const Matmul<Half, float>& p, const float* a, int64_t begin, int64_t end) {
  constexpr int64_t kRows = 8;
  const int64_t columns = end - begin;
  float* const rows = thread_buffer<float>(ThreadBuffer::product, static_cast<size_t>(kRows * columns)).data();
  for (int64_t i = 0; i < p.k; i += kRows) {
    const int64_t count = std::min(kRows, p.k - i);
    for (int64_t r = 0; r < count; ++r) convert_elements(p.b + (i + r) * p.ldb + begin, columns, rows + r * columns);
    row_products().plain({columns, count, a + i, rows, p.c + begin, p.accumulate || i > 0, columns, nullptr}, 0,
                         columns);
  }
}
template <class Half>
void transposed_halves(const Matmul<Half, float>& p, const float* a, int64_t begin, int64_t end) {
  float* const row = thread_buffer<float>(ThreadBuffer::product, static_cast<size_t>(p.k)).data();
  for (int64_t j = begin; j < end; ++j) {
    convert_elements(p.b + j * p.ldb, p.k, row);
    row_products().transposed({1, p.k, a, row, p.c + j, p.accumulate, p.k, nullptr}, 0, 1);
  }
}

template <class Half>
void row_product(const Matmul<Half, float>& p) {
  constexpr int64_t kBlock = 64;
  float* const a = thread_buffer<float>(ThreadBuffer::line, static_cast<size_t>(p.k)).data();
  convert_elements(p.a, p.k, a);
  auto blocks = [&](int64_t begin, int64_t end) {
    (p.trans_b ? transposed_halves<Half> : plain_halves<Half>)(p, a, begin * kBlock, std::min(end * kBlock, p.n));
  };
  parallel_for((p.n + kBlock - 1) / kBlock, kNanosecondsPerElement * static_cast<double>(kBlock * p.k),
               std::ref(blocks));
}

template <class Half>
void row_product(const Matmul<Half, Half>& p) {
  float* const sums = thread_buffer<float>(ThreadBuffer::lines, static_cast<size_t>(p.n)).data();
  for (int64_t j = 0; j < p.n; ++j) sums[j] = (p.accumulate ? float(p.c[j]) : 0) + (p.bias ? float(p.bias[j]) : 0);
  row_product(Matmul<Half, float>{p.trans_a, p.trans_b, 1, p.n, p.k, p.a, p.b, nullptr, sums, true, nullptr, p.ldb});
  convert_elements(sums, p.n, p.c);
}

// Part `index` of `count`: some columns of C, or if it has more rows than columns, some rows.
template <class T, class C>
ProductPart part_of(const Matmul<T, C>& p, int index, int count) {
  const T *a = p.a, *b = p.b, *bias = p.bias;
  C* c = p.c;
  ProductPart part{{.type = dtype_of<T>(),
                    .result = dtype_of<C>(),
                    .trans_a = p.trans_a,
                    .trans_b = p.trans_b,
                    .accumulate = p.accumulate,
                    .bias = p.bias != nullptr,
                    .m = p.m,
                    .n = p.n,
                    .k = p.k,
                    .lda = p.trans_a ? p.m : p.k,
                    .ldb = p.ldb,
                    .ldc = p.ldc,
                    .part = index}};
  constexpr int64_t kStep = 16;  // a vector, so that no part is left with the rest of one
  auto border = [&](int64_t size, int i) { return i == count ? size : size * i / count / kStep * kStep; };
  if (count > 1 && p.n >= p.m) {
    const int64_t first = border(p.n, index);
    part.key.n = border(p.n, index + 1) - first;
    b += first * (p.trans_b ? part.key.ldb : 1);
    c += first;
    if (bias) bias += first;
  } else if (count > 1) {
    const int64_t first = border(p.m, index);
    part.key.m = border(p.m, index + 1) - first;
    a += first * (p.trans_a ? 1 : part.key.lda);
    c += first * part.key.ldc;
  }
  part.a = a;
  part.b = b;
  part.bias = bias;
  part.c = c;
  return part;
}

constexpr int kMostParts = 64;

template <class T, class C>
int product_parts(const Matmul<T, C>& p) {
  constexpr double kFlopsPerNanosecond = 100;
  constexpr int64_t kLeast = 32;  // columns or rows of a part
  const auto most = static_cast<int>(std::min<int64_t>(kMostParts, std::max(p.m, p.n) / kLeast));
  return std::clamp(parts_for(p.flops() / kFlopsPerNanosecond), 1, std::max(most, 1));
}

template <class T, class C>
PreparedProduct prepared_part(const Matmul<T, C>& p, int index, int count, bool packed) {
  const ProductPart part = part_of(p, index, count);
  return packed ? p.packs->prepare(part) : cached_product(part);
}

// Returns false if oneDNN failed.
template <class T, class C>
bool run_parts(const Matmul<T, C>& p, int parts, bool packed) {
  std::array<PreparedProduct, kMostParts> prepared;
  for (int i = 0; i < parts; ++i) prepared[i] = prepared_part(p, i, parts, packed);
  std::atomic<bool> failed{false};
  auto run = [&](int i) {
    try {
      prepared[i].run();
    } catch (const dnnl::error&) {
      failed = true;
    }
  };
  parallel_parts(parts, std::ref(run));
  return !failed;
}

template <class T, class C>
void product(const Matmul<T, C>& p) {
  if (p.m == 1) {
    row_product(p);
    return;
  }
  const int parts = product_parts(p);
  const bool packed = p.packs && p.packs->holds(p.stored_b);
  bool done = true;
  try {
    if (parts == 1) {
      prepared_part(p, 0, 1, packed).run();
    } else {
      done = run_parts(p, parts, packed);
    }
  } catch (const dnnl::error&) {
    done = false;
  }
  if (!done) fail("the matrix product [{}, {}] x [{}, {}] failed in oneDNN", p.m, p.k, p.k, p.n);
}

void product(const Matmul<double>& p) {
  using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  const Eigen::Map<const Matrix> a(p.a, p.trans_a ? p.k : p.m, p.trans_a ? p.m : p.k);
  const Eigen::Map<const Matrix, 0, Eigen::OuterStride<>> b(p.b, p.trans_b ? p.n : p.k, p.trans_b ? p.k : p.n,
                                                            Eigen::OuterStride<>(p.ldb));
  Eigen::Map<Matrix, 0, Eigen::OuterStride<>> c(p.c, p.m, p.n, Eigen::OuterStride<>(p.ldc));
  if (!p.accumulate || p.bias) start_with_bias(p);
  if (p.trans_a && p.trans_b) {
    c.noalias() += a.transpose() * b.transpose();
  } else if (p.trans_a) {
    c.noalias() += a.transpose() * b;
  } else if (p.trans_b) {
    c.noalias() += a * b.transpose();
  } else {
    c.noalias() += a * b;
  }
}

// On a GPU products share a workspace, which the first of them makes.
struct Backendspace {
  Tensor bytes;
  Backendspace() {
    const MemoryScope scope(MemoryCategory::workspace);
    bytes = Tensor::empty(DType::uint8, {kDeviceProductWorkspace});
  }
};

// Takes what the product takes, and no more; Eigen's, of double, take nothing from the allocator.
template <class T, class C>
void dry_product(DryScope& dry, const Matmul<T, C>& p) {
  dry.product_flops += dry.times * p.flops();
  if (dry.claims() != DeviceKind::cpu && p.k > 0) dry.own<Backendspace>();
  if constexpr (!std::is_same_v<T, double>) {
    if (p.k == 0 || dry.claims() != DeviceKind::cpu) return;
    if (p.m == 1) {
      if constexpr (std::is_same_v<T, float>) panels_for(p);
      return;
    }
    const int parts = product_parts(p);
    const bool packed = p.packs && p.packs->holds(p.stored_b);
    for (int i = 0; i < parts; ++i) prepared_part(p, i, parts, packed);
  }
}

template <class T, class C>
void checked_product(const Matmul<T, C>& p) {
  if (p.m == 0 || p.n == 0) return;
  assert(p.ldb >= (p.trans_b ? p.k : p.n) && p.ldc >= p.n);
  if (DryScope* dry = DryScope::now()) return dry_product(*dry, p);
  if (p.k == 0) {
    if (!p.accumulate || p.bias) start_with_bias(p);
    return;
  }
  auto run = [&p] { product(p); };
  count_product(p.flops(), run);
}

// A product that is one column, as the row that its transpose is: rows have kernels of their own.
template <class T>
bool is_column(const Matmul<T>& p) {
  return p.n == 1 && p.m > 1 && p.ldc == 1 && (p.trans_b || p.ldb == 1) && !p.bias;
}
template <class T>
Matmul<T> as_row(const Matmul<T>& p) {
  Matmul<T> row = p;
  std::swap(row.m, row.n);
  std::swap(row.a, row.b);
  row.trans_a = false;
  row.trans_b = !p.trans_a;
  row.ldb = row.trans_b ? row.k : row.n;
  row.ldc = row.n;
  row.stored_b = row.b;
  return row;
}

}  // namespace

template <class T, class C>
void matmul(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, const T* a, const T* b, C* c, bool accumulate,
            WeightPacks* packs, const std::type_identity_t<T>* bias, ColumnsIn b_in, ColumnsIn c_in) {
  assert((std::is_same_v<T, C>) || !bias);
  Matmul<T, C> p{trans_a, trans_b, m, n, k, a, b, bias, c, accumulate, packs};
  p.stored_b = p.b;
  p.ldb = b_in.ld > 0 ? b_in.ld : (p.trans_b ? p.k : p.n);
  p.ldc = c_in.ld > 0 ? c_in.ld : p.n;
  if (p.b) p.b += b_in.first;
  if (p.c) p.c += c_in.first;
  if constexpr (std::is_same_v<T, C> && !std::is_same_v<T, double>)
    if (is_column(p)) return checked_product(as_row(p));
  checked_product(p);
}

template void matmul(bool, bool, int64_t, int64_t, int64_t, const float*, const float*, float*, bool, WeightPacks*,
                     const float*, ColumnsIn, ColumnsIn);
template void matmul(bool, bool, int64_t, int64_t, int64_t, const double*, const double*, double*, bool, WeightPacks*,
                     const double*, ColumnsIn, ColumnsIn);
template void matmul(bool, bool, int64_t, int64_t, int64_t, const float16*, const float16*, float16*, bool,
                     WeightPacks*, const float16*, ColumnsIn, ColumnsIn);
template void matmul(bool, bool, int64_t, int64_t, int64_t, const float16*, const float16*, float*, bool, WeightPacks*,
                     const float16*, ColumnsIn, ColumnsIn);
template void matmul(bool, bool, int64_t, int64_t, int64_t, const bfloat16*, const bfloat16*, bfloat16*, bool,
                     WeightPacks*, const bfloat16*, ColumnsIn, ColumnsIn);
template void matmul(bool, bool, int64_t, int64_t, int64_t, const bfloat16*, const bfloat16*, float*, bool,
                     WeightPacks*, const bfloat16*, ColumnsIn, ColumnsIn);

void count_product(double flops, FunctionRef<> run) {
  if (!counting.load(std::memory_order_relaxed)) return run();
  const double start = now_seconds();
  run();
  const double seconds = now_seconds() - start;
  const std::lock_guard lock(counter_mutex);
  counters.seconds += seconds;
  counters.flops += flops;
  ++counters.calls;
}

MatmulCounters matmul_counters() {
  const std::lock_guard lock(counter_mutex);
  return counters;
}

void count_matmuls(bool on) { counting.store(on, std::memory_order_relaxed); }

}  // namespace stepnet
