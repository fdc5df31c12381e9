// CUDA kernels for UniformFill and UniformIntFill. Meaning and derivative: see operators/fill/uniform_fill.cc.
#include "operators/fill/uniform_fill.h"

#include "gpu/loops/random_fill.h"
#include "gpu/loops/scalar.h"

namespace stepnet::gpu_uniform_fill {
namespace {

// A bound that is an argument, or an input, which is read on the device.
template <class T>
gpu::Scalar bound(const Call& call, int input, const std::optional<T>& arg, T fallback) {
  if (call.has(input)) return gpu::Scalar(call.in(input));
  return gpu::Scalar(Tensor::scalar<T>(arg.value_or(fallback)));
}

// Bounds that are wrong are an error where the host waits; the elements are min then.
void uniform_fill(const UniformArgs& args, Call& call) {
  const gpu::Scalar min = bound(call, 1, args.min, 0.0F), max = bound(call, 2, args.max, 1.0F);
  const gpu::Bounds bounds = gpu::bounds(call, "min, which must be finite and at most max,");
  const uint64_t key = call.random_key;
  gpu::each(call, 1, [=] __device__(size_t) {
    const double width = max.value() - min.value();
    if (!(width >= 0 && isfinite(width))) bounds.report(static_cast<int64_t>(min.value()), gpu::kNoLimit);
  });
  gpu::fill_by_draws_any(call, call.out(0), [=] __device__(size_t i) {
    const double low = min.value(), width = max.value() - low;
    return width >= 0 ? low + width * random_uniform(key, i) : low;
  });
}

__host__ __device__ inline bool fits(double v) { return v >= INT32_MIN && v <= INT32_MAX; }

void uniform_int_fill(const UniformIntArgs& args, Call& call) {
  for (const int i : {1, 2})
    if (call.has(i))
      require(!is_floating(call.in(i).dtype()), "{} must be an integer, but is {}", i == 1 ? "min" : "max",
              call.in(i).str());
  const gpu::Scalar min = bound(call, 1, args.min, 0), max = bound(call, 2, args.max, 1);
  const gpu::Bounds bounds = gpu::bounds(call, "min, which like max must fit int32 and be less,");
  const uint64_t key = call.random_key;
  const auto y = gpu::out_span<int32_t>(call.out(0));
  gpu::each(call, std::max<size_t>(y.size, 1), [=] __device__(size_t i) {
    const double low = min.value(), high = max.value();
    const bool right = low < high && fits(low) && fits(high);
    if (i == 0 && !right) bounds.report(static_cast<int64_t>(low), gpu::kNoLimit);
    if (i >= y.size) return;
    y[i] = right ? static_cast<int32_t>(random_int(key, i, static_cast<int64_t>(low), static_cast<int64_t>(high))) : 0;
  });
}

REGISTER(uniform_fill_cuda) { return cuda<UniformArgs>("UniformFill", uniform_fill); }
REGISTER(uniform_int_fill_cuda) { return cuda<UniformIntArgs>("UniformIntFill", uniform_int_fill); }

}  // namespace
}  // namespace stepnet::gpu_uniform_fill
