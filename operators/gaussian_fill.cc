// GaussianFill: Y[i] normal with the given mean and standard deviation.
// No derivative: the result does not depend on any input's values.

#include "operators/fill_shape.h"
#include "operators/random_fill.h"

namespace stepnet {
namespace {

struct GaussianArgs : FillShape {
  float mean = 0, std = 0;
  int64_t dtype = 0;
};

void shape(const GaussianArgs& args, ShapeCall& call) {
  if (const auto shape = fill_shape(args, call)) call.set(0, random_fill_type(args.dtype), *shape);
}

void fill(const GaussianArgs& args, Call& call) { fill_normal(call.random_key, args.mean, args.std, call.out(0)); }

REGISTER(gaussian_fill) {
  auto spec = op<GaussianArgs>("GaussianFill");
  declare_fill(spec);
  return spec.doc("Random numbers of the normal distribution.")
      .arg("mean", &GaussianArgs::mean, 0.0f, "the mean")
      .arg("std", &GaussianArgs::std, 1.0f, "the standard deviation", float_at_least(0))
      .arg("dtype", &GaussianArgs::dtype, int64_t{1}, "FLOAT (1) or DOUBLE (13)")
      .output("output", "the random tensor")
      .any_type()
      .in_place("input", "output")
      .shape(shape)
      .random()
      .cpu(fill)
      .stop_gradient();
}

}  // namespace
}  // namespace stepnet
