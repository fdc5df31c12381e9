#include "core/net_expansions.h"

#include <vector>

namespace stepnet {
namespace {

std::vector<void (*)(NetDef&)>& expansions() {
  static std::vector<void (*)(NetDef&)> all;
  return all;
}

}  // namespace

bool register_expansion(void (*expand)(NetDef&)) {
  expansions().push_back(expand);
  return true;
}

void expand_net(NetDef& net) {
  for (const auto expand : expansions()) expand(net);
}

}  // namespace stepnet
