// ZerosLike: zeros of X's type and shape. Derivative formulas use it in place of a gradient that does not exist; it
// reads X's shape only, so X is not kept for it. No derivative.

#include "core/operator/operator.h"

namespace stepnet {
namespace {

void fill(Call& call) { call.out(0).fill_zero(); }

REGISTER(zeros_like) {
  return op("ZerosLike")
      .doc("Zeros of the input's type and shape.")
      .input("X", "any tensor; its values are not read")
      .any_type()
      .shape_only()
      .output("Y", "zeros", like("X"))
      .any_type()
      .example({"X=2,3"})
      .cpu(fill)
      .stop_gradient();
}

}  // namespace
}  // namespace stepnet
