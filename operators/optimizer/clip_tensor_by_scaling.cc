// ClipTensorByScaling: with t = threshold additional_threshold, Y = X t / val where val > t, else Y = X.
//
// `val` is the tensor's norm, or the common norm of several, that another operator has computed. No derivative: it
// changes gradients on their way to an optimizer.

#include "operators/optimizer/clip_tensor_by_scaling.h"

#include "core/operator/flops.h"
#include "operators/optimizer/optimizer.h"

namespace stepnet {
namespace {

void shape(const ScalingClipArgs&, ShapeCall& call) {
  require_one_value(call, 1, "val");
  require_one_value(call, 2, "additional_threshold");
  call.set_like(0, 0);
}

template <class T>
void clip(const ScalingClipArgs& args, In<T> x, Out<T> y, Call& call) {
  const double more = call.has(2) ? call.in(2).item<double>() : 1;
  if (!(more >= 0)) fail("additional_threshold is {}, but must be at least 0", more);
  const double limit = args.threshold * more;
  const auto val = call.in(1).item<double>();
  const T factor = val > limit ? static_cast<T>(limit / val) : T{1};
  if (factor == 1 && x.data() == y.data()) return;
  parallel_for(static_cast<int64_t>(x.size()), 0.3, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) y[i] = factor * x[i];
  });
}

REGISTER(clip_tensor_by_scaling) {
  return op<ScalingClipArgs>("ClipTensorByScaling")
      .doc(
          "Scales a tensor down if a value, such as its norm, is greater than a threshold, by their ratio. A value "
          "that is not a number is not greater. For the norm of several tensors together, with a check that it is "
          "finite, there is GlobalNormClip.")
      .required_arg("threshold", &ScalingClipArgs::threshold, "the greatest value that changes nothing",
                    greater_than(0))
      .input("input_tensor", "float or double, any shape")
      .input("val", "the value that is compared, one float or double")
      .types({DType::float32, DType::float64})
      .input("additional_threshold", "one value, at least 0, that the threshold is multiplied by")
      .types({DType::float32, DType::float64})
      .optional()
      .output("clipped", "the scaled tensor", like("input_tensor"))
      .in_place("input_tensor", "clipped")
      .shape(shape)
      .flops([](const auto&, const ShapeCall& c) { return input_size(c, 0) + 1 + int{c.has(2)}; })
      .cpu(clip<float>, clip<double>)
      .no_gradient("it changes gradients on their way to an optimizer")
      .example({"input_tensor=2,3", "val=1:4"}, {"threshold=0.5"})
      .example({"input_tensor=2,3", "val=1:4", "additional_threshold=float,1:3"}, {"threshold=2"})
      .example({"input_tensor=0", "val=1:4"}, {"threshold=0.5"});
}

}  // namespace
}  // namespace stepnet
