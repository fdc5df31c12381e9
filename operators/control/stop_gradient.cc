// StopGradient: Y = X, where differentiation ends: X gets no gradient from here.

#include "operators/loops/copy_elements.h"
#include "stepnet/operator.h"

namespace stepnet::cpu_stop_gradient {
namespace {

REGISTER(stop_gradient) {
  return op("StopGradient")
      .doc("A copy through which no gradient flows back.")
      .input("input", "a tensor of any type")
      .any_type()
      .output("output", "its copy", like("input"))
      .any_type()
      .in_place("input", "output")
      .elementwise()
      .example({"input=2,3"})
      .cpu(copy_values)
      .stop_gradient();
}

}  // namespace
}  // namespace stepnet::cpu_stop_gradient
