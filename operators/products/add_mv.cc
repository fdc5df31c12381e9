// AddMV: Y = beta V + alpha A X, a matrix times a vector, added to a vector.
//
// dV = beta dY, which reads nothing; dA = alpha dY X^T, which reads X; dX = alpha A^T dY, which reads A.

#include "core/compute/matmul.h"
#include "operators/products/added_product.h"

namespace stepnet {
namespace {

void infer(const AddedArgs&, ShapeCall& c) {
  if (c.known(1)) require(c.shape(1).rank() == 2, "A is {}, but a matrix has two dimensions", c.shape(1));
  if (c.known(2)) require(c.shape(2).rank() == 1, "X is {}, but a vector has one dimension", c.shape(2));
  if (!c.known(1)) return;
  const Shape& a = c.shape(1);
  if (c.known(2)) require(a[1] == c.shape(2)[0], "A {} has {} columns, but X {} elements", a, a[1], c.shape(2)[0]);
  set_added(c, "V", {a[0]});
}

double flops(const AddedArgs&, const ShapeCall& c) { return 2 * input_size(c, 1) + 3 * input_size(c, 0); }

template <class T>
void product(const AddedArgs&, In<T>, In<T> a, In<T> x, Out<T> y) {
  matmul(false, false, static_cast<int64_t>(y.size()), 1, static_cast<int64_t>(x.size()), a.data(), x.data(), y.data());
}

template <class T>
void forward(const AddedArgs& args, In<T> v, In<T> a, In<T> x, Out<T> y) {
  product(args, v, a, x, y);
  blend(args, v, y);
}

Gradient derivative_a(Formula& f) { return times_alpha(f, f.op("Ger", {f.dy("Y"), f.x("X")})); }
Gradient derivative_x(Formula& f) {
  return times_alpha(f, f.op("MV", {f.x("A"), f.dy("Y")}, {make_arg("trans", true)}));
}

REGISTER(add_mv) {
  return added_product_op("AddMV")
      .doc(
          "A matrix times a vector, added to a vector, which is not repeated. V's gradient reads nothing of the "
          "forward pass, A's reads X, and X's reads A.")
      .input("V", "[N]")
      .input("A", "[N, K]")
      .input("X", "[K]")
      .output("Y", "[N]: beta V + alpha A X")
      .shape(infer)
      .flops(flops)
      .example({"V=3", "A=3,4", "X=4"})
      .example({"V=1", "A=1,2", "X=2"}, {"alpha=0.5", "beta=-2"})
      .example({"V=3", "A=3,0", "X=0"})
      .cpu(forward<float>, forward<double>)
      .workspace(product<float>, product<double>)
      .derivative("V", [](Formula& f) { return gradient_of_added(f, "Y"); })
      .derivative("A", derivative_a)
      .derivative("X", derivative_x);
}

}  // namespace
}  // namespace stepnet
