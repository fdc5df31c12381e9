// The iteration counter: an int64 tensor of one element that Iter and AtomicIter raise. Threads: none of its own.
#pragma once

#include "stepnet/workspace.h"

namespace stepnet {

// Raises the counter in `blob` by one. An empty blob starts at 0, if `may_start`; one of another number type becomes
// int64. Throws Error if it holds no single number.
void raise_counter(Blob& blob, bool may_start);

// The same for a counter that is a tensor of one number on a GPU; gpu/optimizer/iter.cu puts it here.
using RaiseOnDevice = void (*)(Tensor& counter);
RaiseOnDevice& raise_on_device();

}  // namespace stepnet
