// CUDA kernels for the operators of operators/pointwise/bits.cc, where their meaning and derivatives stand.
#include "operators/loops/bits.h"

#include "gpu/runtime/accumulate.h"
#include "gpu/runtime/launch.h"

namespace stepnet::gpu_bits {
namespace {

// Limits are rounded to the element type, as those of Clip.
template <class T>
void clip_with_bits(const ClipWithBitsArgs& a, gpu::In<T> x, gpu::Out<T> y, gpu::Out<uint8_t> bits, Call& call) {
  using A = gpu::Accumulate<T>;
  const ClipWithBits<A> fn{static_cast<T>(a.min), static_cast<T>(a.max), static_cast<A>(a.alpha)};
  const auto size = static_cast<int64_t>(x.size);
  gpu::each(call, bits.size, [=] __device__(size_t at) {
    unsigned byte = 0;
    each_of_byte(static_cast<int64_t>(at), size, [&](int64_t i) {
      const A v = x[i];
      byte |= static_cast<unsigned>(fn.is_within(v)) << (i % 8);
      y[i] = fn.value(v);
    });
    bits[at] = static_cast<uint8_t>(byte);
  });
}

template <class T>
void select_by_bits(const SelectByBitsArgs& a, gpu::In<T> x, gpu::In<uint8_t> bits, gpu::Out<T> y, Call& call) {
  using A = gpu::Accumulate<T>;
  const SelectByBits<A> fn{static_cast<A>(a.alpha), static_cast<A>(1 / (1 - static_cast<double>(a.ratio)))};
  gpu::each(call, y.size, [=] __device__(size_t i) { y[i] = fn((bits[i / 8] >> (i % 8) & 1) != 0, x[i]); });
}

REGISTER(clip_with_bits_cuda) {
  return cuda<ClipWithBitsArgs>("ClipWithBits", clip_with_bits<float>, clip_with_bits<double>, clip_with_bits<float16>,
                                clip_with_bits<bfloat16>);
}
REGISTER(select_by_bits_cuda) {
  return cuda<SelectByBitsArgs>("SelectByBits", select_by_bits<float>, select_by_bits<double>, select_by_bits<float16>,
                                select_by_bits<bfloat16>);
}

}  // namespace
}  // namespace stepnet::gpu_bits
