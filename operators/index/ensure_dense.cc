// EnsureDense: Y = X. It marks a blob whose gradient is wanted dense. The gradient of X is the gradient of Y itself.

#include "operators/loops/copy_elements.h"
#include "stepnet/operator.h"

namespace stepnet::cpu_ensure_dense {
namespace {

REGISTER(ensure_dense) {
  return op("EnsureDense")
      .doc("The identity; marks a blob whose gradient is wanted dense.")
      .input("input", "a tensor of any type")
      .any_type()
      .output("output", "the same values", like("input"))
      .any_type()
      .in_place("input", "output")
      .elementwise()
      .example({"input=2,3"})
      .cpu(copy_values)
      .derivative("input", [](Formula& f) { return f.dy("output"); });
}

}  // namespace
}  // namespace stepnet::cpu_ensure_dense
