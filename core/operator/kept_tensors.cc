#include "core/operator/kept_tensors.h"

#include <utility>

namespace stepnet {
namespace {

using Settle = std::optional<KeptTensors> (*)(Blob&);

std::vector<Settle>& settlings() {
  static std::vector<Settle> all;
  return all;
}

}  // namespace

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
