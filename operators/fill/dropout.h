// The arguments of Dropout and DropoutGrad, and whether an element stays; see dropout.cc.
#pragma once

#include "stepnet/random.h"

namespace stepnet {

struct DropoutArgs {
  float ratio = 0;
  bool is_test = false;
  bool channels = false;
  bool packed = false;
};

// Draw `index` of the operator with this key.
constexpr bool dropout_keeps(uint64_t key, uint64_t index, double ratio) { return random_uniform(key, index) >= ratio; }

}  // namespace stepnet
