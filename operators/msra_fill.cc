// MSRAFill: Y[i] normal with mean 0 and standard deviation sqrt(2 / fan_out), fan_out = size / second dimension
// (He et al. 2015, "Delving deep into rectifiers"). No derivative: the result does not depend on any input's values.

#include <cmath>

#include "operators/fill_shape.h"
#include "operators/random_fill.h"

namespace stepnet {
namespace {

struct MsraArgs : FillShape {
  int64_t dtype = 0;
};

void shape(const MsraArgs& args, ShapeCall& call) {
  const auto shape = fill_shape(args, call);
  if (!shape) return;
  require(shape->rank() >= 2, "MSRAFill needs at least two dimensions, but the shape is {}", shape->str());
  call.set(0, random_fill_type(args.dtype), *shape);
}

void fill(const MsraArgs&, Call& call) {
  Tensor& y = call.out(0);
  if (y.size() == 0) return;
  const auto fan_out = static_cast<double>(y.size() / y.dim(1));
  fill_normal(call.random_key, 0, std::sqrt(2 / fan_out), y);
}

REGISTER(msra_fill) {
  auto spec = op<MsraArgs>("MSRAFill");
  declare_fill(spec);
  return spec
      .doc(
          "Initial weights, normal with deviation sqrt(2 / fan_out), where fan_out is the size over the second "
          "dimension.")
      .arg("dtype", &MsraArgs::dtype, int64_t{1}, "FLOAT (1) or DOUBLE (13)")
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
