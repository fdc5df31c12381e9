// Fully connected layers: FC, FCTransposed and FCColumns, and their gradients.
#include "operators/products/fc.h"

#include "operators/products/fc_product.h"

namespace stepnet::cpu_fc {
namespace {

// FC: Y = X W^T + b, with X flattened to [M, K] before `axis` and W to [N, K] before `axis_w`. Without b, the product
// alone.
//
// dX = dY W, dW = dY^T X, db = the sum of dY over its M rows. Each reads only the values in its formula: what needs
// dX alone need not keep X.

template <class Args>
OpBuilder<Args>& declare(OpBuilder<Args>& b, const char* axis, const char* axis_w) {
  return b.arg("axis", &Args::axis, 1, axis)
      .arg("axis_w", &Args::axis_w, 1, axis_w)
      .accepts("float16_compute", "sums of products of a half type are in float")
      .accepts("freeze_bias", "no operator of the public format reads it either");
}

REGISTER(fc) {
  auto b = op<FcArgs>("FC");
  declare(b, "X is flattened to a matrix whose rows are the dimensions before this one", "the same for W")
      .doc("Fully connected layer: Y = X W^T + b, or without b the product alone.")
      .input("X", "[M, K] after flattening")
      .input("W", "[N, K] after flattening")
      .input("b", "[N]")
      .optional();
  return declare_fc_output(b)
      .precision(Precision::half)
      .example({"X=2,3", "W=4,3", "b=4"})
      .example({"X=2,3,2", "W=4,2", "b=4"}, {"axis=2"})
      .example({"X=2,3,2", "W=2,2,6", "b=4"}, {"axis=1", "axis_w=2"})
      .example({"X=2,3", "W=4,3"})
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
    return fc_second_derivatives(f, "FC");
  });
}

// FCTransposed: Y = X W + b, with X flattened to [M, K] before `axis` and W to [K, N] before `axis_w`: an FC whose
// weights are stored the other way round.
//
// dX = dY W^T, dW = X^T dY, db = the sum of dY over its M rows. Each reads only the values in its formula.

REGISTER(fc_transposed) {
  auto b = op<FcTransposedArgs>("FCTransposed");
  declare(b, "X is flattened to a matrix whose rows are the dimensions before this one", "the same for W")
      .doc("Fully connected layer whose weights are [K, N]: Y = X W + b, or without b the product alone.")
      .input("X", "[M, K] after flattening")
      .input("W", "[K, N] after flattening")
      .input("b", "[N]")
      .optional();
  return declare_fc_output(b)
      .precision(Precision::half)
      .example({"X=2,3", "W=3,4", "b=4"})
      .example({"X=2,3,2", "W=2,4", "b=4"}, {"axis=2"})
      .example({"X=2,3,2", "W=3,2,4", "b=4"}, {"axis=1", "axis_w=2"})
      .example({"X=2,3", "W=3,4"})
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
    return fc_second_derivatives(f, "FCTransposed");
  });
}

// FCColumns: an FC whose rows are some columns of a wider FC's: Y = X W[:, first : first + k]^T + b, with X flattened
// to [M, k] before `axis` and W to [N, K]. An FC of parts laid side by side is the sum of one FCColumns for each part.
//
// dX = dY W[:, window], dW = dY^T X in the window and zero beside it, db = the sum of dY over its M rows. Each reads
// only the values in its formula.
//
// `first` is a number, or follows from the other parts, of which only the shapes are read: with `before` of them in
// front of X, the window begins behind those; with `from_end`, it ends in front of the rest. Parts on the other side
// are there so that all of W's columns can be checked to have a part.

void declare(OpBuilder<FcColumnsArgs>& b) {
  b.arg("axis", &FcColumnsArgs::axis, 1, "X is flattened to a matrix whose rows are the dimensions before this one");
  b.arg("first", &FcColumnsArgs::first, int64_t{0}, "the first of W's columns that X is multiplied by; not with parts",
        at_least(0));
  b.arg("before", &FcColumnsArgs::before, int64_t{0},
        "how many of the parts have the columns before X's; the others follow X's", at_least(0));
  b.arg("from_end", &FcColumnsArgs::from_end, false, "columns are counted from W's last one, not from its first");
}

REGISTER(fc_columns) {
  auto b = op<FcColumnsArgs>("FCColumns");
  b.own();
  declare(b);
  b.doc("Fully connected layer with some columns of the weights: Y = X W[:, first : first + k]^T + b.")
      .input("X", "[M, k] after flattening")
      .input("W", "[N, K]")
      .input("b", "[N]")
      .optional()
      .input("parts", "what the other columns of W are for, in order, flattened as X is; values are not read")
      .optional()
      .shape_only()
      .variadic();
  return declare_fc_output(b)
      .example({"X=2,3", "W=4,5", "b=4"}, {"first=1"})
      .example({"X=2,3", "W=4,6", "b=4", "parts0=2,1", "parts1=2,2"}, {"before=1"})
      .example({"X=2,2,3", "W=4,6", "parts0=2,2,2"}, {"axis=2", "from_end=true"})
      .example({"X=2,0", "W=3,2", "b=3"}, {"first=2"})
      .derivatives({"X", "W", "b"}, [](Formula& f) { return fc_derivatives(f, "FCColumnsGradient"); })
      .variadic_derivative("parts", [](Formula&, int) { return Gradient::none(); });
}

REGISTER(fc_columns_gradient) {
  auto b = op<FcColumnsArgs>("FCColumnsGradient");
  b.own();
  declare(b);
  b.doc("Gradients of FCColumns. Outputs that are not wanted are left out or \"\", and cost nothing.")
      .input("X", "FCColumns' X; its values are read for dW only")
      .input("W", "FCColumns' W; its values are read for dX only")
      .input("dY", "gradient of FCColumns' Y")
      .input("parts", "as FCColumns'")
      .optional()
      .shape_only()
      .variadic();
  return declare_fc_gradients(b, "dY^T X in the columns of X, else zero", "dY W[:, first : first + k]")
      .derivatives({"X", "W", "dY"}, [](Formula& f) { return fc_second_derivatives(f, "FCColumns"); })
      .variadic_derivative("parts", [](Formula&, int) { return Gradient::none(); });
}

}  // namespace
}  // namespace stepnet::cpu_fc
