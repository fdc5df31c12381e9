// Ger: Z = X Y^T, the outer product of two vectors: Z[i, j] = X[i] Y[j].
//
// dX = dZ Y, which reads Y; dY = dZ^T X, which reads X.

#include "core/operator/flops.h"
#include "operators/products/outer_product.h"

namespace stepnet {
namespace {

void infer(const NoArgs&, ShapeCall& c) {
  if (const auto product = outer_product<0>(c)) c.set(0, c.dtype(0), *product);
}

template <class T>
void forward(In<T> x, In<T> y, Out<T> z) {
  each_product(x, y, [to = z.data()](int64_t at, T product) { to[at] = product; });
}

REGISTER(ger) {
  return op("Ger")
      .doc("The outer product of two vectors. X's gradient reads Y, and Y's reads X.")
      .input("X", "[N]")
      .input("Y", "[M]")
      .output("Z", "[N, M]: Z[i, j] = X[i] Y[j]")
      .shape(infer)
      .example({"X=3", "Y=4"})
      .example({"X=1", "Y=0"})
      .flops(flops_per_output(1))
      .cpu(forward<float>, forward<double>)
      .derivative("X",
                  [](Formula& f) {
                    return f.op("MV", {f.dy("Z"), f.x("Y")});
                  })
      .derivative("Y", [](Formula& f) {
        return f.op("MV", {f.dy("Z"), f.x("X")}, {make_arg("trans", true)});
      });
}

}  // namespace
}  // namespace stepnet
