// MatMul: Y = op(A) op(B), where A and B are flattened to matrices before `axis_a` and `axis_b` and op() is the matrix
// or its transpose.
//
// The derivatives are MatMuls again: of A they read B, and of B they read A. A third input gives Y its shape, which is
// how a gradient gets all the dimensions of A back.

#include "operators/products/matmul.h"

#include "core/compute/matmul.h"

namespace stepnet {
namespace {

void infer(const MatMulArgs& args, ShapeCall& c) {
  if (!c.known(0) || !c.known(1)) return;
  const MatrixSizes a = flattened_matrix(c.shape(0), args.axis_a, args.trans_a),
                    b = flattened_matrix(c.shape(1), args.axis_b, args.trans_b);
  require(a.columns == b.rows,
          "A {}{} is a matrix of [{}, {}] and B {}{} of [{}, {}], so A has {} columns but B {} rows", c.shape(0),
          args.trans_a ? " transposed" : "", a.rows, a.columns, c.shape(1), args.trans_b ? " transposed" : "", b.rows,
          b.columns, a.columns, b.rows);
  if (!c.has(2)) return c.set(0, c.dtype(0), Shape{a.rows, b.columns});
  if (!c.known(2)) return;
  const MatrixSizes y = flattened_matrix(c.shape(2), args.axis_y, false);
  require(y.rows == a.rows && y.columns == b.columns, "Y_shape {} is a matrix of [{}, {}], but the product is [{}, {}]",
          c.shape(2), y.rows, y.columns, a.rows, b.columns);
  c.set(0, c.dtype(0), c.shape(2));
}

template <class T>
void forward(const MatMulArgs& args, In<T> x, In<T> z, Out<T> y, Call& call) {
  const MatrixSizes a = flattened_matrix(call.in(0).shape(), args.axis_a, args.trans_a);
  const MatrixSizes b = flattened_matrix(call.in(1).shape(), args.axis_b, args.trans_b);
  matmul(args.trans_a, args.trans_b, a.rows, b.columns, a.columns, x.data(), z.data(), y.data(), call.accumulates(0),
         call.run.packs);
}

double flops(const MatMulArgs& args, const ShapeCall& c) {
  if (!c.known(0) || !c.known(1)) return 0;
  const MatrixSizes a = flattened_matrix(c.shape(0), args.axis_a, args.trans_a),
                    b = flattened_matrix(c.shape(1), args.axis_b, args.trans_b);
  return 2.0 * static_cast<double>(a.rows) * static_cast<double>(a.columns) * static_cast<double>(b.columns);
}

struct Operand {
  Value value;
  int32_t axis;
  bool transposed;
};

// P Q in the shape of `like`, flattened at `axis`.
Value product(Formula& f, const Operand& p, const Operand& q, Value like, int32_t axis) {
  std::vector<Argument> args;
  auto add = [&args](const char* name, int32_t value, int32_t usual) {
    if (value != usual) args.push_back(make_arg(name, value));
  };
  add("axis_a", p.axis, 1);
  add("axis_b", q.axis, 1);
  add("trans_a", p.transposed, 0);
  add("trans_b", q.transposed, 0);
  add("axis_y", axis, 1);
  return f.op("MatMul", {p.value, q.value, like}, std::move(args));
}

// Y = A' B' gives dA' = dY B'^T; if A is stored transposed, dA = B' dY^T.
Gradient derivative_a(Formula& f) {
  const auto& a = f.args<MatMulArgs>();
  const Operand dy{f.dy("Y"), a.axis_y, a.trans_a}, b{f.x("B"), a.axis_b, a.trans_a == a.trans_b};
  return a.trans_a ? product(f, b, dy, f.x("A"), a.axis_a) : product(f, dy, b, f.x("A"), a.axis_a);
}

// Likewise dB' = A'^T dY; if B is stored transposed, dB = dY^T A'.
Gradient derivative_b(Formula& f) {
  const auto& a = f.args<MatMulArgs>();
  const Operand dy{f.dy("Y"), a.axis_y, a.trans_b}, x{f.x("A"), a.axis_a, a.trans_a == a.trans_b};
  return a.trans_b ? product(f, dy, x, f.x("B"), a.axis_b) : product(f, x, dy, f.x("B"), a.axis_b);
}

REGISTER(matmul) {
  return op<MatMulArgs>("MatMul")
      .doc("Product of two matrices.")
      .arg("axis_a", &MatMulArgs::axis_a, 1, "A's rows are its dimensions before this one")
      .arg("axis_b", &MatMulArgs::axis_b, 1, "the same for B")
      .arg("trans_a", &MatMulArgs::trans_a, false, "A is transposed after flattening")
      .arg("trans_b", &MatMulArgs::trans_b, false, "the same for B")
      .arg("axis_y", &MatMulArgs::axis_y, 1, "where Y_shape is flattened; for gradients of operands with other axes")
      .input("A", "[M, K] after flattening and transposing")
      .input("B", "[K, N] after flattening and transposing")
      .input("Y_shape", "a tensor of Y's shape, for a Y that is not [M, N]")
      .optional()
      .any_type()
      .shape_only()
      .output("Y", "[M, N], or like Y_shape")
      .accumulates()
      .shape(infer)
      .flops(flops)
      .example({"A=2,3", "B=3,4"})
      .example({"A=3,2", "B=3,4"}, {"trans_a=true"})
      .example({"A=2,3", "B=4,3"}, {"trans_b=true"})
      .example({"A=3,2", "B=4,3"}, {"trans_a=true", "trans_b=true"})
      .example({"A=2,3,2", "B=2,2,3"}, {"axis_a=2", "axis_b=1"})
      .example({"A=2,3,2", "B=3,2,2"}, {"axis_a=2", "axis_b=2", "trans_a=true", "trans_b=false"})
      .example({"A=2,0", "B=0,1"})
      .cpu(forward<float>, forward<double>)
      .workspace(forward<float>, forward<double>)
      .derivative("A", derivative_a)
      .derivative("B", derivative_b)
      .derivative("Y_shape", [](Formula&) { return Gradient::none(); });
}

}  // namespace
}  // namespace stepnet
