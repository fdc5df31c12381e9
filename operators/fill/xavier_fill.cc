// XavierFill: Y[i] uniform in [-a, a), a = sqrt(3 / fan_in), fan_in = elements per first index, so that Y X has the
// variance of X (Glorot and Bengio 2010, "Understanding the difficulty of training deep feedforward neural networks",
// by the fan-in alone). No derivative: the result does not depend on any input's values.

#include "operators/fill/random_fill.h"

namespace stepnet {
namespace {

void shape(const RandomFillArgs& args, ShapeCall& call) {
  const auto shape = fill_shape(args, call);
  if (!shape) return;
  require(shape->rank() >= 1, "XavierFill needs at least one dimension, but the shape is {}", shape->str());
  call.set(0, args.element_type(), *shape);
}

void fill(const RandomFillArgs&, Call& call) {
  Tensor& y = call.out(0);
  if (y.size() > 0) fill_centred(call.random_key, xavier_limit(y.shape()), y);
}

REGISTER(xavier_fill) {
  auto spec = op<RandomFillArgs>("XavierFill");
  return declare_random_fill(spec)
      .doc("Initial weights, uniform in +-sqrt(3 / fan_in), where fan_in is the size over the first dimension.")
      .shape(shape)
      .example({}, {"shape=2,3"})
      .example({"input=2,3"})
      .cpu(fill);
}

}  // namespace
}  // namespace stepnet
