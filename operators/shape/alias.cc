// Alias: Y is another name for X's storage; nothing is copied. The gradient of X is the gradient of Y itself.

#include "core/operator/operator.h"

namespace stepnet {
namespace {

void share(const Tensor& x, Tensor& y) { y = x; }

REGISTER(alias) {
  return op("Alias")
      .doc("Another name for the same storage: writing one in place changes the other.")
      .input("input", "a tensor of any type")
      .any_type()
      .output("output", "the same storage", like("input"))
      .any_type()
      .alias("input", "output")
      .role(Role::alias)
      .example({"input=2,3"})
      .cpu(share)
      .derivative("input", [](Formula& f) { return f.dy("output"); });
}

}  // namespace
}  // namespace stepnet
