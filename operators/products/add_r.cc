// AddR: Z = beta M + alpha X Y^T, the outer product of two vectors, added to a matrix.
//
// dM = beta dZ, which reads nothing; dX = alpha dZ Y, which reads Y; dY = alpha dZ^T X, which reads X.

#include "core/operator/flops.h"
#include "operators/products/added_product.h"
#include "operators/products/outer_product.h"

namespace stepnet {
namespace {

void infer(const AddedArgs&, ShapeCall& c) {
  if (const auto product = outer_product<1>(c)) set_added(c, "M", *product);
}

// Reads M before it writes Z at the same place, so that Z may be M.
template <class T>
void forward(const AddedArgs& args, In<T> m, In<T> x, In<T> y, Out<T> z) {
  const T alpha = static_cast<T>(args.alpha), beta = static_cast<T>(args.beta);
  each_product(x, y, [=, from = m.data(), to = z.data()](int64_t at, T product) {
    to[at] = (beta == T(0) ? T(0) : beta * from[at]) + alpha * product;
  });
}

REGISTER(add_r) {
  return added_product_op("AddR")
      .doc(
          "The outer product of two vectors, added to a matrix, which is not repeated. M's gradient reads nothing of "
          "the forward pass, X's reads Y, and Y's reads X.")
      .input("M", "[N, K]")
      .input("X", "[N]")
      .input("Y", "[K]")
      .output("Z", "[N, K]: beta M + alpha X Y^T")
      .in_place("M", "Z")
      .shape(infer)
      .example({"M=3,4", "X=3", "Y=4"})
      .example({"M=3,1", "X=3", "Y=1"}, {"alpha=0.5", "beta=-2"})
      .example({"M=0,4", "X=0", "Y=4"})
      .flops(flops_per_output(4))
      .cpu(forward<float>, forward<double>)
      .derivative("M", [](Formula& f) { return gradient_of_added(f, "Z"); })
      .derivative("X",
                  [](Formula& f) {
                    return times_alpha(f, f.op("MV", {f.dy("Z"), f.x("Y")}));
                  })
      .derivative("Y", [](Formula& f) {
        return times_alpha(f, f.op("MV", {f.dy("Z"), f.x("X")}, {make_arg("trans", true)}));
      });
}

}  // namespace
}  // namespace stepnet
