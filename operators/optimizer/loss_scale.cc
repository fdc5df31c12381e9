// The scale of the loss when nets of float16 are trained: UnscaleGradients takes it off the gradients again, and
// UpdateLossScale chooses the next one.
#include "operators/optimizer/loss_scale.h"

#include <atomic>
#include <cmath>

#include "core/compute/threads.h"
#include "core/operator/flops.h"
#include "stepnet/half.h"
#include "stepnet/operator.h"

namespace stepnet::cpu_loss_scale {
namespace {

// UnscaleGradients: gradients of a loss that was multiplied by `scale` are divided by it, and `finite` says whether all
// of their elements were finite; if not, the optimizer's step is to be skipped. The gradients of float16 nets are often
// too small for it, and a scaled loss makes all of them larger.
//
// No derivative: it changes gradients on their way to an optimizer.

void unscaled_shape(const NoArgs&, ShapeCall& call) {
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
      .own()
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
      .shape(unscaled_shape)
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

// UpdateLossScale: the scale of the loss for the next step of training in float16. After a step whose gradients were
// not all finite it is multiplied by backoff_factor; after growth_interval steps in a row that were, by growth_factor.
// (Micikevicius et al. 2018, "Mixed precision training".) No derivative: it is no part of the model.

void check_scale(const LossScaleArgs&, ShapeCall& call) {
  constexpr const char* kNames[] = {"scale", "good_steps", "finite"};
  for (int i = 0; i < 3; ++i)
    if (call.known(i))
      require(call.shape(i).size() == 1, "{} must be one value, but has shape {}", kNames[i], call.shape(i));
}

template <class T>
void update(const LossScaleArgs& args, In<T> scale, In<int32_t> good_steps, In<bool> finite, Out<T> new_scale,
            Out<int32_t> new_steps) {
  const LossScale<T> next = updated_scale(LossScale<T>{scale[0], good_steps[0]}, finite[0], args);
  new_scale[0] = next.scale;
  new_steps[0] = next.good_steps;
}

REGISTER(update_loss_scale) {
  return op<LossScaleArgs>("UpdateLossScale")
      .own()
      .doc("Makes the scale of the loss smaller after gradients that overflowed, and larger after many that did not.")
      .arg("growth_factor", &LossScaleArgs::growth_factor, 2.0F, "of the scale after growth_interval good steps",
           greater_than(0))
      .arg("backoff_factor", &LossScaleArgs::backoff_factor, 0.5F, "of the scale after a step that overflowed",
           greater_than(0))
      .arg("growth_interval", &LossScaleArgs::growth_interval, int64_t{2000}, "good steps in a row", at_least(1))
      .input("scale", "one floating value")
      .input("good_steps", "steps without overflow since the scale was changed, one int32")
      .types({DType::int32})
      .input("finite", "whether this step's gradients were: one bool, as UnscaleGradients gives it")
      .types({DType::boolean})
      .output("scale", "for the next step", like("scale"))
      .output("good_steps", "with this step", like("good_steps"))
      .types({DType::int32})
      .in_place("scale", "scale")
      .in_place("good_steps", "good_steps")
      .shape(check_scale)
      .flops([](const auto&, const ShapeCall&) { return 1.0; })
      .cpu(update<float>, update<double>)
      .example({"scale=1:8", "good_steps=int32,1:3", "finite=bool,1:1"}, {"growth_interval=4"})
      .example({"scale=:8", "good_steps=int32,:3", "finite=bool,:0"})
      .no_gradient("it is no part of the model");
}

}  // namespace
}  // namespace stepnet::cpu_loss_scale
