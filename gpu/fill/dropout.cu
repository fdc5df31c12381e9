// CUDA kernels for Dropout and DropoutGrad. Meaning and derivative: see operators/fill/dropout.cc.
#include "operators/fill/dropout.h"

#include "gpu/runtime/accumulate.h"
#include "gpu/runtime/launch.h"
#include "operators/loops/bits.h"

namespace stepnet::gpu_dropout {
namespace {

template <class T>
void dropout(const DropoutArgs& args, gpu::In<T> x, gpu::Out<T> y, Call& call) {
  const Shape& shape = call.in(0).shape();
  const size_t size = args.channels ? static_cast<size_t>(shape.size_between(2, shape.rank())) : 1;
  const double ratio = args.ratio;
  const bool keeps_all = args.is_test;
  const auto scale = static_cast<gpu::Accumulate<T>>(args.is_test ? 1 : 1 / (1 - ratio));
  const uint64_t key = call.random_key;
  if (args.packed && call.wants(1)) {
    const auto bits = gpu::out_span<uint8_t>(call.out(1));
    const auto elements = static_cast<int64_t>(y.size);
    return gpu::each(call, bits.size, [=] __device__(size_t at) {
      unsigned byte = 0;
      each_of_byte(static_cast<int64_t>(at), elements, [&](int64_t i) {
        const bool keep = keeps_all || dropout_keeps(key, static_cast<size_t>(i) / size, ratio);
        byte |= static_cast<unsigned>(keep) << (i % 8);
        y[i] = keep ? x[i] * scale : 0;
      });
      bits[at] = static_cast<uint8_t>(byte);
    });
  }
  const auto mask = call.wants(1) ? gpu::out_span<bool>(call.out(1)) : gpu::Out<bool>{};
  gpu::each(call, y.size, [=] __device__(size_t i) {
    const bool keep = keeps_all || dropout_keeps(key, i / size, ratio);
    y[i] = keep ? x[i] * scale : 0;
    if (mask.data) mask[i] = keep;
  });
}

template <class T>
void gradient(const DropoutArgs& args, gpu::In<T> dy, gpu::In<bool> mask, gpu::Out<T> dx, Call& call) {
  const bool keeps_all = args.is_test;
  const auto scale = static_cast<gpu::Accumulate<T>>(args.is_test ? 1 : 1 / (1 - static_cast<double>(args.ratio)));
  gpu::each(call, dx.size, [=] __device__(size_t i) { dx[i] = keeps_all || mask[i] ? dy[i] * scale : 0; });
}

REGISTER(dropout_cuda) {
  return cuda<DropoutArgs>("Dropout", dropout<float>, dropout<double>, dropout<float16>, dropout<bfloat16>);
}
REGISTER(dropout_grad_cuda) {
  return cuda<DropoutArgs>("DropoutGrad", gradient<float>, gradient<double>, gradient<float16>, gradient<bfloat16>);
}

}  // namespace
}  // namespace stepnet::gpu_dropout
