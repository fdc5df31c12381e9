// The arguments of Wngrad and SparseWngrad; see wngrad.cc.
#pragma once

namespace stepnet {

struct WngradArgs {
  float epsilon = 0;
};

}  // namespace stepnet
