#include "core/net/expansions.h"

#include <vector>

namespace stepnet {
namespace {

std::vector<void (*)(NetDef&)>& expansions() {
  static std::vector<void (*)(NetDef&)> all;
  return all;
}

std::vector<void (*)(NetDef&)>& strippings() {
  static std::vector<void (*)(NetDef&)> all;
  return all;
}

}  // namespace

void add_expansion(void (*expand)(NetDef&)) { expansions().push_back(expand); }

void expand_net(NetDef& net) {
  for (const auto expand : expansions()) expand(net);
}

void add_forward_only(void (*strip)(NetDef&)) { strippings().push_back(strip); }

NetDef forward_only(NetDef net) {
  for (const auto strip : strippings()) strip(net);
  return net;
}

}  // namespace stepnet
