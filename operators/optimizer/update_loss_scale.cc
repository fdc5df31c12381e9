// UpdateLossScale: the scale of the loss for the next step of training in float16. After a step whose gradients were
// not all finite it is multiplied by backoff_factor; after growth_interval steps in a row that were, by growth_factor.
// (Micikevicius et al. 2018, "Mixed precision training".) No derivative: it is no part of the model.

#include "operators/optimizer/update_loss_scale.h"
#include "core/operator/operator.h"

namespace stepnet {
namespace {

void shape(const LossScaleArgs&, ShapeCall& call) {
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
      .shape(shape)
      .flops([](const auto&, const ShapeCall&) { return 1.0; })
      .cpu(update<float>, update<double>)
      .example({"scale=1:8", "good_steps=int32,1:3", "finite=bool,1:1"}, {"growth_interval=4"})
      .example({"scale=:8", "good_steps=int32,:3", "finite=bool,:0"})
      .no_gradient("it is no part of the model");
}

}  // namespace
}  // namespace stepnet
