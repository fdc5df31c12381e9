// What MaskByLength's kernels share.
#pragma once

namespace stepnet {

struct MaskByLengthArgs {
  bool beyond = false;
};

}  // namespace stepnet
