// The arguments of Delay; see delay.cc.
#pragma once

namespace stepnet {

struct DelayArgs {
  bool reverse = false;
};

}  // namespace stepnet
