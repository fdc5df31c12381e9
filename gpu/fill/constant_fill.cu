// CUDA kernels for ConstantFill, DiagonalFill and ZerosLike. Meaning and derivative: see
// operators/fill/constant_fill.cc.
#include "operators/fill/constant_fill.h"

#include <algorithm>

#include "gpu/runtime/launch.h"
#include "stepnet/half.h"
#include "stepnet/shape.h"

namespace stepnet::gpu_constant_fill {
namespace {

template <class T>
void fill(const Call& call, T value, Tensor& y) {
  const auto to = gpu::out_span<T>(y);
  gpu::each(call, to.size, [=] __device__(size_t i) { to[i] = value; });
}

// With the value of a tensor, wherever it is.
template <class T>
void fill_with_tensor(const Call& call, const Tensor& value, Tensor& y) {
  if (value.device().kind == DeviceKind::cpu) return fill(call, value.span<T>()[0], y);
  const auto from = gpu::in_span<T>(value);
  const auto to = gpu::out_span<T>(y);
  gpu::each(call, to.size, [=] __device__(size_t i) { to[i] = from[0]; });
}

// Strings are on the CPU, whatever the operator's device.
void fill_any(const ConstantArgs& args, Call& call) {
  Tensor& y = call.out(0);
  if (y.dtype() == DType::string) {
    const std::string text = call.has(1) ? call.in(1).span<std::string>()[0] : read_constant<std::string>(args.value);
    std::ranges::fill(y.span<std::string>(), text);
    return;
  }
  if (call.has(1)) {
    const auto fill_from = [&](auto zero) { fill_with_tensor<decltype(zero)>(call, call.in(1), y); };
    if (!with_type(y.dtype(), fill_from)) with_half(y.dtype(), fill_from);
    return;
  }
  const auto fill_with = [&](auto zero) { fill(call, read_constant<decltype(zero)>(args.value), y); };
  if (!with_type(y.dtype(), fill_with) && !with_half(y.dtype(), fill_with))
    fail("argument \"dtype\" is {}, which cannot be filled", dtype_name(y.dtype()));
}

template <class T>
void fill_diagonal(const Call& call, T value, Tensor& y) {
  const auto to = gpu::out_span<T>(y);
  if (to.size == 0) return;
  const auto step = static_cast<size_t>(diagonal_step(y.shape()));
  const auto end = step * static_cast<size_t>(*std::min_element(y.shape().begin(), y.shape().end()));
  gpu::each(call, to.size, [=] __device__(size_t i) { to[i] = i < end && i % step == 0 ? value : T(0); });
}

void fill_any_diagonal(const ConstantArgs& args, Call& call) {
  Tensor& y = call.out(0);
  const auto fill_with = [&](auto zero) { fill_diagonal(call, read_constant<decltype(zero)>(args.value), y); };
  if (!with_type(y.dtype(), fill_with) && !with_half(y.dtype(), fill_with))
    fail("the elements would be {}, of which a diagonal cannot be", dtype_name(y.dtype()));
}

REGISTER(constant_fill_cuda) { return cuda<ConstantArgs>("ConstantFill", fill_any); }
REGISTER(diagonal_fill_cuda) { return cuda<ConstantArgs>("DiagonalFill", fill_any_diagonal); }

void fill_zero(Call& call) { call.out(0).fill_zero(); }

REGISTER(zeros_like_cuda) { return cuda("ZerosLike", fill_zero); }

}  // namespace
}  // namespace stepnet::gpu_constant_fill
