#include "recurrent/counters.h"

#include <atomic>

namespace stepnet {
namespace {
std::atomic<int64_t> copied{0}, initial{0}, spread{0};
}

RecurrentCounters recurrent_counters() { return {copied.load(), initial.load(), spread.load()}; }

void count_recurrent(const RecurrentCounters& more) {
  copied += more.copied;
  initial += more.initial;
  spread += more.spread;
}

}  // namespace stepnet
