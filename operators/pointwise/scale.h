// The arguments of Scale; see scale.cc.
#pragma once

namespace stepnet {

struct ScaleArgs {
  float scale = 1;
};

}  // namespace stepnet
