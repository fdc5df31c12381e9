#include "recurrent/step/counters.h"

#include <atomic>

#include "core/tensor/dry_device.h"

namespace stepnet {
namespace {
std::atomic<int64_t> copied{0}, initial{0}, spread{0};
std::atomic<int64_t> kept{0}, most_kept{0};  // now, and at the most
}  // namespace

RecurrentCounters recurrent_counters() { return {copied.load(), initial.load(), spread.load(), most_kept.load()}; }

void count_recurrent(const RecurrentCounters& more) {
  if (DryScope::now()) return;  // nothing moves
  copied += more.copied;
  initial += more.initial;
  spread += more.spread;
}

void KeptBytes::set(int64_t bytes) {
  if (bytes > 0 && DryScope::now()) return;
  const int64_t now = kept += bytes - bytes_;
  bytes_ = bytes;
  for (int64_t most = most_kept; most < now && !most_kept.compare_exchange_weak(most, now);) {
  }
}

}  // namespace stepnet
