// CUDA kernels for Wngrad and SparseWngrad. Meaning: see operators/optimizer/wngrad.cc. The parameter comes first: it
// reads b as it was.
#include "operators/optimizer/wngrad.h"

#include "gpu/loops/optimizer.h"
#include "gpu/loops/total.h"

namespace stepnet::gpu_wngrad {
namespace {

// b = b + the sum of the gradient's squares / (b + epsilon).
template <class T>
void grow(const Call& call, gpu::In<T> grad, const T* b, double epsilon, T* new_b) {
  gpu::total_squares(call, grad, [=] __device__(double squares) {
    const double base = static_cast<double>(*b);
    *new_b = static_cast<T>(base + squares / (base + epsilon));
  });
}

template <class T>
void wngrad(const WngradArgs& args, gpu::In<T> param, gpu::In<T> b, gpu::In<T> grad, const Tensor& lr,
            gpu::Out<T> new_param, gpu::Out<T> new_b, gpu::Out<T> effective, gpu::Out<T> update, Call& call) {
  const gpu::Scalar base(lr);
  const double epsilon = static_cast<double>(args.epsilon);
  const auto rate = [=] __device__() { return static_cast<T>(base.value() / (static_cast<double>(b[0]) + epsilon)); };
  gpu::each(call, param.size, [=] __device__(size_t i) {
    const T step = rate() * grad[i];
    new_param[i] = param[i] + step;
    if (update.data) update[i] = step;
  });
  if (effective.data) gpu::each(call, 1, [=] __device__(size_t) { effective[0] = rate(); });
  grow(call, grad, b.data, epsilon, new_b.data);
}

// Table and b are in place: the outputs hold their values.
template <class T>
void sparse_wngrad(const WngradArgs& args, gpu::Out<T> param, gpu::Out<T> b, Call& call) {
  const gpu::In<T> grad = gpu::in_span<T>(call.in(3));
  const Shape& table = call.in(0).shape();
  const int64_t row = table.size_between(1, table.rank());
  const double epsilon = static_cast<double>(args.epsilon);
  gpu::for_each_row(call, call.in(2), table[0], row, gpu::RateOf<double>{gpu::Scalar(call.in(4))},
                    [=] __device__(double lr, int64_t k, int64_t at, int64_t column) {
                      const T rate = static_cast<T>(lr / (static_cast<double>(b[0]) + epsilon));
                      param[at * row + column] += rate * grad[k * row + column];
                    });
  if (call.in(3).size() > 0) grow(call, grad, b.data, 0.0, b.data);
}

REGISTER(wngrad_cuda) { return cuda<WngradArgs>("Wngrad", wngrad<float>, wngrad<double>); }
REGISTER(sparse_wngrad_cuda) { return cuda<WngradArgs>("SparseWngrad", sparse_wngrad<float>, sparse_wngrad<double>); }

}  // namespace
}  // namespace stepnet::gpu_wngrad
