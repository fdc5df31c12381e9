// CUDA kernels for Cast and CastLike. Meaning and derivative: see operators/shape/cast.cc.
#include "operators/shape/cast.h"

#include "gpu/loops/elementwise.h"

namespace stepnet::gpu_cast {
namespace {

template <class From, class To>
struct Convert {
  constexpr To operator()(From x) const { return convert<From, To>(x); }
};

template <class From, class To>
void convert_all(const Call& call, const Tensor& x, Tensor& y) {
  gpu::map(call, gpu::in_span<From>(x), gpu::out_span<To>(y), Convert<From, To>());
}

void cast(Call& call) {
  const Tensor& x = call.in(0);
  Tensor& y = call.out(0);
  with_castable(x.dtype(), y.dtype(),
                [&](auto from, auto to) { convert_all<decltype(from), decltype(to)>(call, x, y); });
}

REGISTER(cast_cuda) { return cuda<CastArgs>("Cast", cast); }
REGISTER(cast_like_cuda) { return cuda("CastLike", cast); }

}  // namespace
}  // namespace stepnet::gpu_cast
