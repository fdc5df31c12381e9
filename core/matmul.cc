#include "core/matmul.h"

#include <omp.h>

#include <Eigen/Core>
#include <algorithm>
#include <atomic>
#include <mutex>

#include "core/error.h"
#include "core/onednn_product.h"
#include "core/parallel.h"
#include "core/profile.h"

namespace stepnet {
namespace {

std::atomic<bool> counting{false};
std::mutex counter_mutex;
MatmulCounters counters;

// Floating-point operations below which another thread costs more than it saves, above all on a busy machine.
constexpr double kFlopsPerThread = 2e6;

int threads_for(double flops) {
  if (serial_here()) return 1;
  return static_cast<int>(std::clamp(flops / kFlopsPerThread, 1.0, static_cast<double>(threads())));
}

// oneDNN takes the number of threads from OpenMP; a caller that runs serially must not open a region.
class ThreadLimit {
 public:
  explicit ThreadLimit(int wanted) : before_(omp_get_max_threads()) {
    changed_ = wanted != before_;
    if (changed_) omp_set_num_threads(wanted);
  }
  ~ThreadLimit() {
    if (changed_) omp_set_num_threads(before_);
  }

 private:
  int before_;
  bool changed_;
};

void product(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, const float* a, const float* b, float* c,
             bool accumulate, WeightPacks* packs) {
  const double flops = 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  const ProductKey key{trans_a, trans_b, accumulate, m, n, k, threads_for(flops)};
  const ThreadLimit limit(key.threads);
  try {
    if (packs && packs->holds(b)) {
      packs->multiply(key, a, b, c);
    } else {
      cached_product(key).run(a, b, c);
    }
  } catch (const dnnl::error& e) {
    fail("the matrix product [{}, {}] x [{}, {}] failed in oneDNN: {}", m, k, k, n, e.what());
  }
}

void product(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, const double* a, const double* b, double* c,
             bool accumulate, WeightPacks* /*packs*/) {
  using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  const Eigen::Map<const Matrix> ma(a, trans_a ? k : m, trans_a ? m : k);
  const Eigen::Map<const Matrix> mb(b, trans_b ? n : k, trans_b ? k : n);
  Eigen::Map<Matrix> mc(c, m, n);
  if (!accumulate) mc.setZero();
  if (trans_a && trans_b) {
    mc.noalias() += ma.transpose() * mb.transpose();
  } else if (trans_a) {
    mc.noalias() += ma.transpose() * mb;
  } else if (trans_b) {
    mc.noalias() += ma * mb.transpose();
  } else {
    mc.noalias() += ma * mb;
  }
}

template <class T>
void checked_product(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, const T* a, const T* b, T* c,
                     bool accumulate, WeightPacks* packs) {
  if (m == 0 || n == 0) return;
  if (k == 0) {
    if (!accumulate) std::fill(c, c + m * n, T{0});
    return;
  }
  if (!counting.load(std::memory_order_relaxed)) {
    product(trans_a, trans_b, m, n, k, a, b, c, accumulate, packs);
    return;
  }
  const double start = now_seconds();
  product(trans_a, trans_b, m, n, k, a, b, c, accumulate, packs);
  const double seconds = now_seconds() - start;
  const std::lock_guard lock(counter_mutex);
  counters.seconds += seconds;
  counters.flops += 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  ++counters.calls;
}

}  // namespace

void matmul(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, const float* a, const float* b, float* c,
            bool accumulate, WeightPacks* packs) {
  checked_product(trans_a, trans_b, m, n, k, a, b, c, accumulate, packs);
}

void matmul(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, const double* a, const double* b, double* c,
            bool accumulate, WeightPacks* packs) {
  checked_product(trans_a, trans_b, m, n, k, a, b, c, accumulate, packs);
}

MatmulCounters matmul_counters() {
  const std::lock_guard lock(counter_mutex);
  return counters;
}

void count_matmuls(bool on) { counting.store(on, std::memory_order_relaxed); }

}  // namespace stepnet
