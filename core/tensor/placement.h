// Tensors on the device where they are needed. Threads: pure functions.
#pragma once

#include "core/tensor/tensor.h"

namespace stepnet {

Tensor placed(const Tensor& value, Device device);     // a copy there
Tensor available(const Tensor& value, Device device);  // the tensor itself if it is there, else a copy

}  // namespace stepnet
