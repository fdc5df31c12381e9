// The arguments of AddCMul and AddCDiv; see add_c.cc.
#pragma once

namespace stepnet {

struct AddCArgs {
  float value = 1;
};

}  // namespace stepnet
