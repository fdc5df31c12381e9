// ZeroGradient: computes nothing, and gives its input a gradient of zeros: for a blob that nobody else uses where the
// gradient of every output is asked for. dX = ConstantFill(X), zeros like X.

#include "stepnet/operator.h"

namespace stepnet::cpu_zero_gradient {
namespace {

void nothing(Call&) {}

REGISTER(zero_gradient) {
  return op("ZeroGradient")
      .doc("Gives its input a gradient of zeros; has no output.")
      .input("input", "a tensor of any type")
      .any_type()
      .shape_only()
      .example({"input=2,3"})
      .example_net(R"(op { type: "Split" input: "X" output: "Y" output: "Z" arg { name: "axis" i: 1 } }
                      op { type: "ZeroGradient" input: "Z" })",
                   {"X=2,4"}, {"Y"})
      .cpu(nothing)
      .derivative("input", [](Formula& f) {
        const Value zeros = f.op("ConstantFill", {f.x("input")}, {make_arg("value", 0.0f)});
        f.set_reads({false});
        return zeros;
      });
}

}  // namespace
}  // namespace stepnet::cpu_zero_gradient
