// FC: Y = X W^T + b, with X flattened to [M, K] before `axis` and W to [N, K] before `axis_w`.
//
// dX = dY W, dW = dY^T X, db = the sum of dY over its M rows. Each reads only the values in its formula: what needs
// dX alone need not keep X.

#include "operators/products/fc.h"

#include "operators/products/fc_product.h"

namespace stepnet {
namespace {

OpBuilder<FcArgs>& declare(OpBuilder<FcArgs>& b, const char* axis, const char* axis_w) {
  return b.arg("axis", &FcArgs::axis, 1, axis)
      .arg("axis_w", &FcArgs::axis_w, 1, axis_w)
      .ignored_args({"float16_compute"});
}

REGISTER(fc) {
  auto b = op<FcArgs>("FC");
  declare(b, "X is flattened to a matrix whose rows are the dimensions before this one", "the same for W")
      .doc("Fully connected layer: Y = X W^T + b.")
      .input("X", "[M, K] after flattening")
      .input("W", "[N, K] after flattening")
      .input("b", "[N]");
  return declare_fc_output(b)
      .example({"X=2,3", "W=4,3", "b=4"})
      .example({"X=2,3,2", "W=4,2", "b=4"}, {"axis=2"})
      .example({"X=2,3,2", "W=2,2,6", "b=4"}, {"axis=1", "axis_w=2"})
      .example({"X=0,3", "W=1,3", "b=1"})
      .derivatives({"X", "W", "b"}, [](Formula& f) { return fc_derivatives(f, "FCGradient"); });
}

REGISTER(fc_gradient) {
  auto b = op<FcArgs>("FCGradient");
  declare(b, "as FC's", "as FC's")
      .doc("Gradients of FC. Outputs that are not wanted are left out or \"\", and cost nothing.")
      .input("X", "FC's X; its values are read for dW only")
      .input("W", "FC's W; its values are read for dX only")
      .input("dY", "gradient of FC's Y");
  return declare_fc_gradients(b, "dY^T X", "dY W").derivatives({"X", "W", "dY"}, [](Formula& f) {
    return fc_second_derivatives<FcArgs>(f, false);
  });
}

}  // namespace
}  // namespace stepnet
