// The arguments and sizes of LinearAttention; see linear_attention.cc. Threads: pure functions.
#pragma once

#include "stepnet/operator.h"

namespace stepnet {

struct LinearAttentionArgs {
  bool reverse = false;
  bool leaving = false;
};

// A pair is an element of the batch and one of its heads, which has a state of its own, [keys, values].
struct LinearAttentionSizes {
  explicit LinearAttentionSizes(const Call& call)
      : steps(call.in(0).shape()[0]),
        pairs(call.in(0).shape()[1] * call.in(0).shape()[2]),
        keys(call.in(0).shape()[3]),
        values(call.in(2).shape()[3]) {}

  constexpr int64_t state() const { return keys * values; }

  int64_t steps, pairs, keys, values;
};

template <class T>
struct LinearAttentionPointers {
  const T *q, *k, *v, *g, *first;  // g and first are null if they are not there
  T *y, *last;                     // null if they are not wanted
};

}  // namespace stepnet
