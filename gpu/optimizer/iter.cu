// Raises counters of Iter and AtomicIter that are on a GPU. Meaning: see operators/optimizer/iter.cc.
#include "operators/optimizer/iter.h"

#include "gpu/loops/scalar.h"

namespace stepnet::gpu_iter {
namespace {

// A new tensor, as an older value of the counter may still be read under another name.
void raise(Tensor& counter) {
  const Device device = counter.device();
  Tensor raised = Tensor::empty(DType::int64, counter.shape(), device);
  const auto to = reinterpret_cast<int64_t*>(raised.raw());
  if (counter.dtype() == DType::int32 || counter.dtype() == DType::int64) {
    const gpu::Indices from(counter);
    gpu::each(device.index, 1, [=] __device__(size_t) { to[0] = from[0] + 1; });
  } else {
    const gpu::Scalar from(counter);
    gpu::each(device.index, 1, [=] __device__(size_t) { to[0] = static_cast<int64_t>(from.value()) + 1; });
  }
  counter = raised;
}

const bool placed = (raise_on_device() = raise, true);

}  // namespace
}  // namespace stepnet::gpu_iter
