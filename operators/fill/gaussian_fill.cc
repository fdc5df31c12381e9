// GaussianFill: Y[i] normal with the given mean and standard deviation.
// No derivative: the result does not depend on any input's values.

#include "operators/fill/gaussian_fill.h"

namespace stepnet {
namespace {

void shape(const GaussianArgs& args, ShapeCall& call) {
  if (const auto shape = fill_shape(args, call)) call.set(0, args.element_type(), *shape);
}

void fill(const GaussianArgs& args, Call& call) { fill_normal(call.random_key, args.mean, args.std, call.out(0)); }

REGISTER(gaussian_fill) {
  auto spec = op<GaussianArgs>("GaussianFill");
  return declare_random_fill(spec)
      .doc("Random numbers of the normal distribution.")
      .arg("mean", &GaussianArgs::mean, 0.0f, "the mean")
      .arg("std", &GaussianArgs::std, 1.0f, "the standard deviation", float_at_least(0))
      .shape(shape)
      .example({}, {"shape=2,3"})
      .example({"input=2,3"})
      .example({"input=int64,2:2,3"}, {"input_as_shape=1", "extra_shape=2"})
      .example({}, {"shape=2,3", "mean=2", "std=0.5"})
      .cpu(fill);
}

}  // namespace
}  // namespace stepnet
