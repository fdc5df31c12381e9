// UnscaleGradients: gradients of a loss that was multiplied by `scale` are divided by it, and `finite` says whether all
// of their elements were finite; if not, the optimizer's step is to be skipped. The gradients of float16 nets are often
// too small for it, and a scaled loss makes all of them larger.
//
// No derivative: it changes gradients on their way to an optimizer.

#include <atomic>
#include <cmath>

#include "core/compute/threads.h"
#include "core/operator/flops.h"
#include "core/operator/operator.h"
#include "core/tensor/half.h"

namespace stepnet {
namespace {

void shape(const NoArgs&, ShapeCall& call) {
  require(call.outputs() == call.inputs(), "{} gradients need {} outputs behind the first, but there are {}",
          call.inputs() - 1, call.inputs() - 1, call.outputs() - 1);
  if (call.known(0)) require(call.shape(0).size() == 1, "scale must be one value, but has shape {}", call.shape(0));
  call.set(0, DType::boolean, Shape{1});
  for (int i = 1; i < call.inputs(); ++i) {
    if (!call.known(i)) continue;
    require(is_floating(call.dtype(i)), "gradient {} must be floating, but is {}", i - 1, call.in(i));
    call.set_like(i, i);
  }
}

// Whether all were finite.
template <class T>
bool divide(In<T> from, double factor, Out<T> to) {
  using Real = std::conditional_t<std::is_same_v<T, double>, double, float>;
  std::atomic<bool> finite = true;
  parallel_for(static_cast<int64_t>(from.size()), 0.5, [&](int64_t begin, int64_t end) {
    bool good = true;
    for (int64_t i = begin; i < end; ++i) {
      const auto value = static_cast<Real>(from[i]);
      good &= std::isfinite(value);
      to[i] = static_cast<T>(value * static_cast<Real>(factor));
    }
    if (!good) finite.store(false, std::memory_order_relaxed);
  });
  return finite;
}

void unscale(Call& call) {
  const double factor = 1 / call.in(0).item<double>();
  bool finite = true;
  for (int i = 1; i < call.inputs(); ++i) {
    const Tensor& from = call.in(i);
    Tensor& to = call.out(i);
    const auto divide_all = [&](auto zero) {
      using T = decltype(zero);
      finite &= divide<T>(from.span<T>(), factor, to.span<T>());
    };
    if (with_half(from.dtype(), divide_all)) continue;
    from.dtype() == DType::float64 ? divide_all(double{}) : divide_all(float{});
  }
  *call.out(0).data<bool>() = finite;
}

REGISTER(unscale_gradients) {
  return op("UnscaleGradients")
      .doc("Divides gradients by the scale that their loss had, and says whether all of them are finite.")
      .input("scale", "one float or double")
      .types({DType::float32, DType::float64})
      .input("gradients", "floating, any shapes")
      .any_type()
      .variadic()
      .output("finite", "bool [1]: whether all elements are finite")
      .types({DType::boolean})
      .output("outputs", "the gradients, divided")
      .any_type()
      .variadic()
      .in_place("gradients", "outputs")
      .shape(shape)
      .flops([](const auto&, const ShapeCall& c) {
        double elements = 0;
        for (int i = 1; i < c.inputs(); ++i) elements += input_size(c, i);
        return elements + 1;
      })
      .cpu(unscale)
      .no_gradient("it changes gradients on their way to an optimizer")
      .example({"scale=1:4", "gradients0=2,3", "gradients1=float,4"}, {}, 2)
      .example({"scale=:0.5", "gradients0=bfloat16,3"}, {}, 1)
      .example({"scale=1:4", "gradients0=0,3", "gradients1=float16,1"}, {}, 2);
}

}  // namespace
}  // namespace stepnet
