// The arguments of Scan, and the order of its timesteps; see scan.cc.
#pragma once

#include "stepnet/shape.h"

namespace stepnet {

struct ScanArgs {
  bool reverse = false;
  bool leaving = false;
};

// What is scanned: `steps` rows of `inner` elements, of which row(k) is where the k-th that is computed begins.
struct ScanRows {
  ScanRows(const ScanArgs& a, const Shape& x) : steps(x[0]), inner(x.from(1).size()), reverse(a.reverse) {}

  constexpr int64_t row(int64_t k) const { return (reverse ? steps - 1 - k : k) * inner; }

  int64_t steps, inner;
  bool reverse;
};

}  // namespace stepnet
