// CUDA kernel for Delay. Meaning and derivative: see operators/shape/delay.cc.
#include "operators/shape/delay.h"

#include "gpu/runtime/launch.h"

namespace stepnet::gpu_delay {
namespace {

// The rows of first and X count as one tensor, of which row r is row r of Y, and the one behind these is last; with
// `reverse` both are read from their ends.
template <class T>
void forward(const DelayArgs& a, gpu::In<T> x, gpu::In<T> first, gpu::Out<T> y, gpu::Out<T> last, Call& call) {
  const Shape& shape = call.in(0).shape();
  const auto steps = static_cast<size_t>(shape[0]), row = static_cast<size_t>(shape.from(1).size());
  const bool reverse = a.reverse;
  const gpu::Divider rows(row);
  gpu::each(call, (steps + 1) * row, [=] __device__(size_t i) {
    const gpu::SplitIndex split = rows.split(i);
    const size_t k = split.quotient, column = split.remainder;
    const auto place = [&](size_t t) { return (reverse ? steps - 1 - t : t) * row + column; };
    const T value = k > 0 ? x[place(k - 1)] : first.data ? first[column] : T(0);
    if (k < steps && y.data) y[place(k)] = value;
    if (k == steps && last.data) last[column] = value;
  });
}

REGISTER(delay_cuda) { return cuda<DelayArgs>("Delay", forward<float>, forward<double>); }

}  // namespace
}  // namespace stepnet::gpu_delay
