// MV: Y = op(A) X, a matrix times a vector, where op() is the matrix or its transpose.
//
// dA = dY X^T (its transpose if A is stored transposed), which reads X; dX = op(A)^T dY, which reads A.

#include "operators/products/mv.h"

#include "core/compute/matmul.h"
#include "core/operator/operator.h"

namespace stepnet {
namespace {

void infer(const MVArgs& a, ShapeCall& c) {
  if (c.known(0)) require(c.shape(0).rank() == 2, "A is {}, but a matrix has two dimensions", c.shape(0));
  if (c.known(1)) require(c.shape(1).rank() == 1, "X is {}, but a vector has one dimension", c.shape(1));
  if (!c.known(0)) return;
  const Shape& matrix = c.shape(0);
  const int64_t rows = matrix[a.trans ? 1 : 0], columns = matrix[a.trans ? 0 : 1];
  if (c.known(1))
    require(c.shape(1)[0] == columns, "A {}{} has {} columns, but X {} elements", matrix, a.trans ? " transposed" : "",
            columns, c.shape(1)[0]);
  c.set(0, c.dtype(0), Shape{rows});
}

template <class T>
void forward(const MVArgs& args, In<T> a, In<T> x, Out<T> y) {
  matmul(args.trans, false, static_cast<int64_t>(y.size()), 1, static_cast<int64_t>(x.size()), a.data(), x.data(),
         y.data());
}

double flops(const MVArgs&, const ShapeCall& c) {
  return c.known(0) ? 2.0 * static_cast<double>(c.shape(0).size()) : 0;
}

Gradient derivative_a(Formula& f) {
  const Value x = f.x("X"), dy = f.dy("Y");
  return f.args<MVArgs>().trans ? f.op("Ger", {x, dy}) : f.op("Ger", {dy, x});
}

Gradient derivative_x(Formula& f) {
  std::vector<Argument> args;
  if (!f.args<MVArgs>().trans) args.push_back(make_arg("trans", true));
  return f.op("MV", {f.x("A"), f.dy("Y")}, std::move(args));
}

REGISTER(mv) {
  return op<MVArgs>("MV")
      .doc("A matrix times a vector. A's gradient reads X, and X's reads A.")
      .arg("trans", &MVArgs::trans, false, "A is transposed")
      .input("A", "[N, K] after transposing")
      .input("X", "[K]")
      .output("Y", "[N]")
      .shape(infer)
      .flops(flops)
      .example({"A=3,4", "X=4"})
      .example({"A=4,3", "X=4"}, {"trans=1"})
      .example({"A=3,0", "X=0"})
      .cpu(forward<float>, forward<double>)
      .workspace(forward<float>, forward<double>)
      .derivative("A", derivative_a)
      .derivative("X", derivative_x);
}

}  // namespace
}  // namespace stepnet
