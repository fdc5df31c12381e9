#include "core/tensor/placement.h"

namespace stepnet {

Tensor placed(const Tensor& value, Device device) {
  Tensor copy = Tensor::empty(value.dtype(), value.shape(), device);
  copy.copy_from(value);
  return copy;
}

Tensor available(const Tensor& value, Device device) {
  return value.device() == device ? value : placed(value, device);
}

}  // namespace stepnet
