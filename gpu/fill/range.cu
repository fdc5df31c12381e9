// CUDA kernels for Range and RangeFill. Meaning and derivative: see operators/fill/range.cc.
#include "operators/fill/range.h"

#include <array>

#include "gpu/runtime/launch.h"
#include "operators/loops/fill_shape.h"

namespace stepnet::gpu_range {
namespace {

// How many there are follows from the values, for which the host waits.
template <class T>
void range(Call& call, gpu::ElementType<T>) {
  std::array<Tensor, 3> given;
  for (int i = 0; i < call.inputs(); ++i) given.at(i) = copied_to(call.in(i), {});
  const auto numbers = read_range<T>(call.inputs(), [&](int i) -> const Tensor& { return given.at(i); });
  const auto y = gpu::out_span<T>(gpu::sized_output(call, 0, dtype_of<T>(), Shape{count_of(numbers)}));
  gpu::each(call, y.size, [=] __device__(size_t i) { y[i] = numbers[i]; });
}

void fill_range(const FillShape&, Call& call) {
  const auto y = gpu::out_span<float>(call.out(0));
  gpu::each(call, y.size, [=] __device__(size_t i) { y[i] = static_cast<float>(i); });
}

REGISTER(range_cuda) { return cuda("Range", range<float>, range<double>, range<int32_t>, range<int64_t>); }
REGISTER(range_fill_cuda) { return cuda<FillShape>("RangeFill", fill_range); }

}  // namespace
}  // namespace stepnet::gpu_range
