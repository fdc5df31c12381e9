// The arguments of MV; see mv.cc.
#pragma once

namespace stepnet {

struct MVArgs {
  bool trans = false;
};

}  // namespace stepnet
