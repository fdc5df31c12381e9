// Copy: Y = X, in storage of its own. dX = Copy(dY).

#include "core/operator/operator.h"
#include "operators/loops/copy_elements.h"

namespace stepnet {
namespace {

REGISTER(copy) {
  return op("Copy")
      .doc("A copy of a tensor of any type.")
      .input("input", "the tensor")
      .any_type()
      .output("output", "its copy", like("input"))
      .any_type()
      .in_place("input", "output")
      .elementwise()
      .role(Role::copy)
      .example({"input=2,3"})
      .example({"input=string,2:one,two"})
      .cpu(copy_values)
      .derivative("input", [](Formula& f) { return f.op("Copy", {f.dy("output")}); });
}

}  // namespace
}  // namespace stepnet
