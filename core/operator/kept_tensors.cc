#include "core/operator/keep_values.h"

#include <utility>

namespace stepnet {
namespace {

bool& keeps() {
  thread_local bool keeps = false;
  return keeps;
}

using Settle = std::optional<KeptTensors> (*)(Blob&);

std::vector<Settle>& settlings() {
  static std::vector<Settle> all;
  return all;
}

}  // namespace

KeepValues::KeepValues(bool keep) : before_(std::exchange(keeps(), keep)) {}
KeepValues::~KeepValues() { keeps() = before_; }
bool KeepValues::now() { return keeps(); }

bool register_settling(Settle settle) {
  settlings().push_back(settle);
  return true;
}

KeptTensors settle_kept(Blob& blob) {
  for (const Settle settle : settlings())
    if (std::optional<KeptTensors> kept = settle(blob)) return std::move(*kept);
  return {};
}

}  // namespace stepnet
