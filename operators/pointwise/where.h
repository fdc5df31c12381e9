// The arguments of Where; see where.cc.
#pragma once

namespace stepnet {

struct WhereArgs {
  bool enable_broadcast = false;
  bool broadcast_on_rows = false;  // the same by its name in the public format

  bool by_rows() const { return enable_broadcast || broadcast_on_rows; }
};

}  // namespace stepnet
