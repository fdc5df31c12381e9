// ZeroGradient: computes nothing, and gives its input a gradient of zeros: for a blob that nobody else uses where the
// gradient of every output is asked for. dX = ConstantFill(X), zeros like X.

#include "core/operator.h"

namespace stepnet {
namespace {

void nothing(Call&) {}

REGISTER(zero_gradient) {
  return op("ZeroGradient")
      .doc("Gives its input a gradient of zeros; has no output.")
      .input("input", "a tensor of any type")
      .any_type()
      .shape_only()
      .cpu(nothing)
      .derivative("input", [](Formula& f) { return f.op("ConstantFill", {f.x("input")}, {make_arg("value", 0.0f)}); });
}

}  // namespace
}  // namespace stepnet
