// Products of matrices: MatMul, BatchMatMul, and MV, a matrix times a vector.
#include "operators/products/matmul.h"

#include "operators/products/result.h"
#include "stepnet/half.h"
#include "stepnet/matmul.h"
#include "stepnet/operator.h"

namespace stepnet::cpu_matmul {
namespace {

// MatMul: Y = op(A) op(B), where A and B are flattened to matrices before `axis_a` and `axis_b` and op() is the matrix
// or its transpose.
//
// The derivatives are MatMuls again: of A they read B, and of B they read A. A third input gives Y its shape, which is
// how a gradient gets all the dimensions of A back.

void matmul_infer(const MatMulArgs& args, ShapeCall& c) {
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
void matmul_forward(const MatMulArgs& args, In<T> x, In<T> z, Call& call) {
  const MatrixSizes a = flattened_matrix(call.in(0).shape(), args.axis_a, args.trans_a);
  const MatrixSizes b = flattened_matrix(call.in(1).shape(), args.axis_b, args.trans_b);
  with_result<T>(call, 0, [&](auto* y) {
    matmul(args.trans_a, args.trans_b, a.rows, b.columns, a.columns, x.data(), z.data(), y, call.accumulates(0),
           call.run.packs);
  });
}

double matmul_flops(const MatMulArgs& args, const ShapeCall& c) {
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
Gradient matmul_derivative_a(Formula& f) {
  const auto& a = f.args<MatMulArgs>();
  const Operand dy{f.dy("Y"), a.axis_y, a.trans_a}, b{f.x("B"), a.axis_b, a.trans_a == a.trans_b};
  return a.trans_a ? product(f, b, dy, f.x("A"), a.axis_a) : product(f, dy, b, f.x("A"), a.axis_a);
}

// Likewise dB' = A'^T dY; if B is stored transposed, dB = dY^T A'.
Gradient matmul_derivative_b(Formula& f) {
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
      .own_args({"axis_y"})
      .input("A", "[M, K] after flattening and transposing")
      .input("B", "[K, N] after flattening and transposing")
      .input("Y_shape", "a tensor of Y's shape, for a Y that is not [M, N]")
      .optional()
      .any_type()
      .shape_only()
      .output("Y", "[M, N], or like Y_shape")
      .accumulates()
      .shape(matmul_infer)
      .flops(matmul_flops)
      .example({"A=2,3", "B=3,4"})
      .example({"A=3,2", "B=3,4"}, {"trans_a=true"})
      .example({"A=2,3", "B=4,3"}, {"trans_b=true"})
      .example({"A=3,2", "B=4,3"}, {"trans_a=true", "trans_b=true"})
      .example({"A=2,3,2", "B=2,2,3"}, {"axis_a=2", "axis_b=1"})
      .example({"A=2,3,2", "B=3,2,2"}, {"axis_a=2", "axis_b=2", "trans_a=true", "trans_b=false"})
      .example({"A=2,0", "B=0,1"})
      .precision(Precision::half)
      .cpu(matmul_forward<float>, matmul_forward<double>)
      .cpu_halves(matmul_forward<float16>, matmul_forward<bfloat16>)
      .workspace(matmul_forward<float>, matmul_forward<double>, matmul_forward<float16>, matmul_forward<bfloat16>)
      .derivative("A", matmul_derivative_a)
      .derivative("B", matmul_derivative_b)
      .derivative("Y_shape", [](Formula&) { return Gradient::none(); });
}

// BatchMatMul: Y_i = op(A_i) op(B_i) for every matrix of a batch, where a matrix is the last two dimensions and op() is
// the matrix or its transpose. Without `broadcast` the dimensions before them are equal; with it, sizes of 1 repeat and
// missing leading ones count as 1.
//
// The derivatives are BatchMatMuls again, summed over the batch dimensions in which the operand repeats: of A they read
// B, and of B they read A.

void batch_matmul_infer(const BatchMatmulArgs& args, ShapeCall& c) {
  for (const int i : {0, 1})
    if (c.known(i))
      require(c.shape(i).rank() >= 2, "{} is {}, but a matrix has two dimensions", i == 0 ? "A" : "B", c.shape(i));
  if (!c.known(0) || !c.known(1)) return;
  const MatrixSizes a = batch_matrix(c.shape(0), args.trans_a), b = batch_matrix(c.shape(1), args.trans_b);
  require(a.columns == b.rows, "A {}{} has {} columns, but B {}{} has {} rows", c.shape(0),
          args.trans_a ? " transposed" : "", a.columns, c.shape(1), args.trans_b ? " transposed" : "", b.rows);
  Shape y = batches_of(args, c.shape(0), c.shape(1)).out;
  y.push_back(a.rows);
  y.push_back(b.columns);
  c.set(0, c.dtype(0), y);
}

template <class T>
void batch_matmul_forward(const BatchMatmulArgs& args, In<T> a, In<T> b, Call& call) {
  const MatrixSizes x = batch_matrix(call.in(0).shape(), args.trans_a),
                    z = batch_matrix(call.in(1).shape(), args.trans_b);
  with_result<T>(call, 0, [&](auto* y) {
    auto product = [&](int64_t i, int64_t j, int64_t k) {
      matmul(args.trans_a, args.trans_b, x.rows, z.columns, x.columns, a.data() + i * x.rows * x.columns,
             b.data() + j * z.rows * z.columns, y + k * x.rows * z.columns, call.accumulates(0));
    };
    BroadcastRuns(batches_of(args, call.in(0).shape(), call.in(1).shape())).each([&](const BroadcastRun& run) {
      for (int64_t i = 0; i < run.size; ++i)
        product(run.a + (run.a_moves ? i : 0), run.b + (run.b_moves ? i : 0), run.out + i);
    });
  });
}

double batch_matmul_flops(const BatchMatmulArgs& args, const ShapeCall& c) {
  if (!c.known(0) || !c.known(1)) return 0;
  const MatrixSizes a = batch_matrix(c.shape(0), args.trans_a), b = batch_matrix(c.shape(1), args.trans_b);
  const double batches = static_cast<double>(batches_of(args, c.shape(0), c.shape(1)).out.size());
  return 2.0 * batches * static_cast<double>(a.rows) * static_cast<double>(a.columns) * static_cast<double>(b.columns);
}

// The batch dimensions, as long as both operands have them.
int leading_rows(const BatchMatmulArgs&, const ShapeCall& c) {
  return c.known(0) && c.known(1) && c.shape(0).rank() == c.shape(1).rank() ? c.shape(0).rank() - 2 : 0;
}

bool has_one_batch(const ShapeCall& c) {
  if (!c.known(0) || !c.known(1) || c.shape(0).rank() != c.shape(1).rank()) return false;
  for (int d = 0; d + 2 < c.shape(0).rank(); ++d)
    if (c.shape(0)[d] != c.shape(1)[d]) return false;
  return true;
}

// A column of each matrix times a row of each. One or the other, transposed or not, has its elements one after another.
int64_t batch_outer_product(const BatchMatmulArgs& args, const ShapeCall& c) {
  if (!has_one_batch(c)) return 0;
  const MatrixSizes a = batch_matrix(c.shape(0), args.trans_a);
  return a.columns == 1 ? a.rows : 0;
}

// Matrices of one operand with one column of the other for each, or that, turned round.
MatrixVector batch_matrix_vector(const BatchMatmulArgs& args, const ShapeCall& c) {
  if (!has_one_batch(c)) return {};
  if (batch_matrix(c.shape(1), args.trans_b).columns == 1) return {0, args.trans_a};
  if (batch_matrix(c.shape(0), args.trans_a).rows == 1) return {1, !args.trans_b};
  return {};
}

// op(P) op(Q), summed to the shape of `like`.
Value product(Formula& f, Value p, bool trans_p, Value q, bool trans_q, Value like) {
  const bool broadcast = f.args<BatchMatmulArgs>().broadcast;
  std::vector<Argument> args = {make_arg("trans_a", trans_p), make_arg("trans_b", trans_q)};
  if (broadcast) args.push_back(make_arg("broadcast", true));
  const Value d = f.op("BatchMatMul", {p, q}, std::move(args));
  return broadcast ? f.op("SumReduceLike", {d, like}, {make_arg("broadcast", true)}) : d;
}

// Y = A' B' gives dA' = dY B'^T; if A is stored transposed, dA = B' dY^T.
Gradient batch_matmul_derivative_a(Formula& f) {
  const auto& a = f.args<BatchMatmulArgs>();
  if (a.trans_a) return product(f, f.x("B"), a.trans_b, f.dy("Y"), true, f.x("A"));
  return product(f, f.dy("Y"), false, f.x("B"), !a.trans_b, f.x("A"));
}

// Likewise dB' = A'^T dY; if B is stored transposed, dB = dY^T A'.
Gradient batch_matmul_derivative_b(Formula& f) {
  const auto& a = f.args<BatchMatmulArgs>();
  if (a.trans_b) return product(f, f.dy("Y"), true, f.x("A"), a.trans_a, f.x("B"));
  return product(f, f.x("A"), !a.trans_a, f.dy("Y"), false, f.x("B"));
}

REGISTER(batch_matmul) {
  return op<BatchMatmulArgs>("BatchMatMul")
      .doc(
          "Products of the matrices in two batches. A's gradient reads B, and B's reads A. With a third batch that is "
          "added see BAddBMM, summed over the batch AddBMM.")
      .arg("trans_a", &BatchMatmulArgs::trans_a, false, "A's matrices are transposed")
      .arg("trans_b", &BatchMatmulArgs::trans_b, false, "the same for B")
      .arg("broadcast", &BatchMatmulArgs::broadcast, false, "let batch sizes of 1 and missing batch dimensions repeat")
      .accepts("use_scratch", "it is about memory of GPUs")
      .input("A", "[..., M, K] after transposing")
      .input("B", "[..., K, N] after transposing")
      .output("Y", "[..., M, N]")
      .accumulates()
      .shape(batch_matmul_infer)
      .flops(batch_matmul_flops)
      .rowwise(leading_rows)
      .outer_product(batch_outer_product)
      .matrix_vector(batch_matrix_vector)
      .example({"A=2,2,3", "B=2,3,2"})
      .example({"A=2,3,2", "B=2,3,2"}, {"trans_a=true"})
      .example({"A=2,2,3", "B=2,2,3"}, {"trans_b=true"})
      .example({"A=2,3,2", "B=2,2,3"}, {"trans_a=true", "trans_b=true"})
      .example({"A=2,1,2,2", "B=3,2,2"}, {"broadcast=true"})
      .example({"A=2,3", "B=2,2,3"}, {"broadcast=true", "trans_b=true"})
      .example({"A=0,2,3", "B=1,3,1"}, {"broadcast=true"})
      .precision(Precision::half)
      .cpu(batch_matmul_forward<float>, batch_matmul_forward<double>)
      .cpu_halves(batch_matmul_forward<float16>, batch_matmul_forward<bfloat16>)
      .workspace(batch_matmul_forward<float>, batch_matmul_forward<double>, batch_matmul_forward<float16>,
                 batch_matmul_forward<bfloat16>)
      .derivative("A", batch_matmul_derivative_a)
      .derivative("B", batch_matmul_derivative_b);
}

// MV: Y = op(A) X, a matrix times a vector, where op() is the matrix or its transpose.
//
// dA = dY X^T (its transpose if A is stored transposed), which reads X; dX = op(A)^T dY, which reads A.

void mv_infer(const MVArgs& a, ShapeCall& c) {
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
void mv_forward(const MVArgs& args, In<T> a, In<T> x, Out<T> y) {
  matmul(args.trans, false, static_cast<int64_t>(y.size()), 1, static_cast<int64_t>(x.size()), a.data(), x.data(),
         y.data());
}

double mv_flops(const MVArgs&, const ShapeCall& c) {
  return c.known(0) ? 2.0 * static_cast<double>(c.shape(0).size()) : 0;
}

Gradient mv_derivative_a(Formula& f) {
  const Value x = f.x("X"), dy = f.dy("Y");
  return f.args<MVArgs>().trans ? f.op("Ger", {x, dy}) : f.op("Ger", {dy, x});
}

Gradient mv_derivative_x(Formula& f) {
  std::vector<Argument> args;
  if (!f.args<MVArgs>().trans) args.push_back(make_arg("trans", true));
  return f.op("MV", {f.x("A"), f.dy("Y")}, std::move(args));
}

REGISTER(mv) {
  return op<MVArgs>("MV")
      .own()
      .doc("A matrix times a vector. A's gradient reads X, and X's reads A.")
      .arg("trans", &MVArgs::trans, false, "A is transposed")
      .input("A", "[N, K] after transposing")
      .input("X", "[K]")
      .output("Y", "[N]")
      .shape(mv_infer)
      .flops(mv_flops)
      .example({"A=3,4", "X=4"})
      .example({"A=4,3", "X=4"}, {"trans=1"})
      .example({"A=3,0", "X=0"})
      .precision(Precision::half)
      .cpu(mv_forward<float>, mv_forward<double>, mv_forward<float16>, mv_forward<bfloat16>)
      .workspace(mv_forward<float>, mv_forward<double>, mv_forward<float16>, mv_forward<bfloat16>)
      .derivative("A", mv_derivative_a)
      .derivative("X", mv_derivative_x);
}

}  // namespace
}  // namespace stepnet::cpu_matmul
