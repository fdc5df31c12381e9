// MSRAFill: Y[i] normal with mean 0 and standard deviation sqrt(2 / fan_out), fan_out = size / second dimension
// (He et al. 2015, "Delving deep into rectifiers"). No derivative: the result does not depend on any input's values.

#include "operators/fill/random_fill.h"

namespace stepnet {
namespace {

void shape(const RandomFillArgs& args, ShapeCall& call) {
  const auto shape = fill_shape(args, call);
  if (!shape) return;
  require(shape->rank() >= 2, "MSRAFill needs at least two dimensions, but the shape is {}", shape->str());
  call.set(0, args.element_type(), *shape);
}

void fill(const RandomFillArgs&, Call& call) {
  Tensor& y = call.out(0);
  if (y.size() > 0) fill_normal(call.random_key, 0, msra_deviation(y.shape()), y);
}

REGISTER(msra_fill) {
  auto spec = op<RandomFillArgs>("MSRAFill");
  return declare_random_fill(spec)
      .doc(
          "Initial weights, normal with deviation sqrt(2 / fan_out), where fan_out is the size over the second "
          "dimension.")
      .shape(shape)
      .example({}, {"shape=2,3"})
      .example({"input=2,3"})
      .cpu(fill);
}

}  // namespace
}  // namespace stepnet
