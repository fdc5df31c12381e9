// The arguments of Where; see where.cc.
#pragma once

namespace stepnet {

struct WhereArgs {
  bool enable_broadcast = false;
};

}  // namespace stepnet
