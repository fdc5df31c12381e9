// FCTransposed: Y = X W + b, with X flattened to [M, K] before `axis` and W to [K, N] before `axis_w`: an FC whose
// weights are stored the other way round.
//
// dX = dY W^T, dW = X^T dY, db = the sum of dY over its M rows. Each reads only the values in its formula.

#include "operators/products/fc_transposed.h"

#include "operators/products/fc_product.h"

namespace stepnet {
namespace {

OpBuilder<FcTransposedArgs>& declare(OpBuilder<FcTransposedArgs>& b, const char* axis, const char* axis_w) {
  return b.arg("axis", &FcTransposedArgs::axis, 1, axis)
      .arg("axis_w", &FcTransposedArgs::axis_w, 1, axis_w)
      .ignored_args({"float16_compute"});
}

REGISTER(fc_transposed) {
  auto b = op<FcTransposedArgs>("FCTransposed");
  declare(b, "X is flattened to a matrix whose rows are the dimensions before this one", "the same for W")
      .doc("Fully connected layer whose weights are [K, N]: Y = X W + b.")
      .input("X", "[M, K] after flattening")
      .input("W", "[K, N] after flattening")
      .input("b", "[N]");
  return declare_fc_output(b)
      .example({"X=2,3", "W=3,4", "b=4"})
      .example({"X=2,3,2", "W=2,4", "b=4"}, {"axis=2"})
      .example({"X=2,3,2", "W=3,2,4", "b=4"}, {"axis=1", "axis_w=2"})
      .example({"X=1,0", "W=0,3", "b=3"})
      .derivatives({"X", "W", "b"}, [](Formula& f) { return fc_derivatives(f, "FCTransposedGradient"); });
}

REGISTER(fc_transposed_gradient) {
  auto b = op<FcTransposedArgs>("FCTransposedGradient");
  declare(b, "as FCTransposed's", "as FCTransposed's")
      .doc("Gradients of FCTransposed. Outputs that are not wanted are left out or \"\", and cost nothing.")
      .input("X", "FCTransposed's X; its values are read for dW only")
      .input("W", "FCTransposed's W; its values are read for dX only")
      .input("dY", "gradient of FCTransposed's Y");
  return declare_fc_gradients(b, "X^T dY", "dY W^T").derivatives({"X", "W", "dY"}, [](Formula& f) {
    return fc_second_derivatives<FcTransposedArgs>(f, true);
  });
}

}  // namespace
}  // namespace stepnet
