// The arguments of Gather; see gather.cc.
#pragma once

namespace stepnet {

struct GatherArgs {
  bool dense_gradient = false;
};

}  // namespace stepnet
