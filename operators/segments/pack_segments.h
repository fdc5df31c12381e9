// What the kernels of PackSegments and UnpackSegments share: their arguments.
#pragma once

#include <algorithm>
#include <cstdint>

namespace stepnet {

struct UnpackSegmentsArgs {
  static constexpr int64_t kNoMaximum = -1;
  int64_t max_length = kNoMaximum;

  // How much of a segment the packed tensor holds.
  int64_t kept(int64_t length) const { return max_length < 0 ? length : std::min(length, max_length); }
};

struct PackSegmentsArgs : UnpackSegmentsArgs {
  bool pad_minf = false, return_presence_mask = false;
};

}  // namespace stepnet
