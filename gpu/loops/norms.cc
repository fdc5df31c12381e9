// Which normalisations the device's library is asked for.
#include "gpu/loops/norms.h"

#include <atomic>

namespace stepnet::gpu {
namespace {

std::atomic<bool> asked{true};

bool counts(DType dtype, int64_t elements) {
  return asked && (dtype == DType::float32 || dtype == DType::float64) && vendor_norms().there && elements > 0 &&
         elements <= vendor_norms().most_elements;
}

// What is known to run: kernels have the batch as a dimension of their grid.
constexpr int64_t kMostTrained = 880'801, kMostEvaluated = 65'535;

}  // namespace

void use_vendor_norms(bool use) { asked = use; }

bool vendor_takes(const VendorChannels& c, NormRun run) {
  if (c.epsilon < vendor_norms().least_epsilon || !counts(c.dtype, c.outer * c.count * c.inner)) return false;
  if (run == NormRun::evaluation) return c.outer <= kMostEvaluated;
  return c.outer <= kMostTrained && c.outer * c.inner > 1;  // of one element there is no variance divided by m - 1
}

bool vendor_takes(const VendorRows& rows) {
  return rows.count <= kMostEvaluated && counts(rows.dtype, rows.count * rows.size);
}

}  // namespace stepnet::gpu
