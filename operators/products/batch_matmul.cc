// BatchMatMul: Y_i = op(A_i) op(B_i) for every matrix of a batch, where a matrix is the last two dimensions and op() is
// the matrix or its transpose. Without `broadcast` the dimensions before them are equal; with it, sizes of 1 repeat and
// missing leading ones count as 1.
//
// The derivatives are BatchMatMuls again, summed over the batch dimensions in which the operand repeats: of A they read
// B, and of B they read A.

#include "operators/products/batch_matmul.h"

#include "core/compute/matmul.h"

namespace stepnet {
namespace {

void infer(const BatchMatmulArgs& args, ShapeCall& c) {
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
void forward(const BatchMatmulArgs& args, In<T> a, In<T> b, Out<T> y, Call& call) {
  const MatrixSizes x = batch_matrix(call.in(0).shape(), args.trans_a),
                    z = batch_matrix(call.in(1).shape(), args.trans_b);
  auto product = [&](int64_t i, int64_t j, int64_t k) {
    matmul(args.trans_a, args.trans_b, x.rows, z.columns, x.columns, a.data() + i * x.rows * x.columns,
           b.data() + j * z.rows * z.columns, y.data() + k * x.rows * z.columns, call.accumulates(0));
  };
  BroadcastRuns(batches_of(args, call.in(0).shape(), call.in(1).shape())).each([&](const BroadcastRun& run) {
    for (int64_t i = 0; i < run.size; ++i)
      product(run.a + (run.a_moves ? i : 0), run.b + (run.b_moves ? i : 0), run.out + i);
  });
}

double flops(const BatchMatmulArgs& args, const ShapeCall& c) {
  if (!c.known(0) || !c.known(1)) return 0;
  const MatrixSizes a = batch_matrix(c.shape(0), args.trans_a), b = batch_matrix(c.shape(1), args.trans_b);
  const double batches = static_cast<double>(batches_of(args, c.shape(0), c.shape(1)).out.size());
  return 2.0 * batches * static_cast<double>(a.rows) * static_cast<double>(a.columns) * static_cast<double>(b.columns);
}

// The batch dimensions, as long as both operands have them.
int leading_rows(const BatchMatmulArgs&, const ShapeCall& c) {
  return c.known(0) && c.known(1) && c.shape(0).rank() == c.shape(1).rank() ? c.shape(0).rank() - 2 : 0;
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
Gradient derivative_a(Formula& f) {
  const auto& a = f.args<BatchMatmulArgs>();
  if (a.trans_a) return product(f, f.x("B"), a.trans_b, f.dy("Y"), true, f.x("A"));
  return product(f, f.dy("Y"), false, f.x("B"), !a.trans_b, f.x("A"));
}

// Likewise dB' = A'^T dY; if B is stored transposed, dB = dY^T A'.
Gradient derivative_b(Formula& f) {
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
      .ignored_args({"use_scratch"})
      .input("A", "[..., M, K] after transposing")
      .input("B", "[..., K, N] after transposing")
      .output("Y", "[..., M, N]")
      .accumulates()
      .shape(infer)
      .flops(flops)
      .rowwise(leading_rows)
      .example({"A=2,2,3", "B=2,3,2"})
      .example({"A=2,3,2", "B=2,3,2"}, {"trans_a=true"})
      .example({"A=2,2,3", "B=2,2,3"}, {"trans_b=true"})
      .example({"A=2,3,2", "B=2,2,3"}, {"trans_a=true", "trans_b=true"})
      .example({"A=2,1,2,2", "B=3,2,2"}, {"broadcast=true"})
      .example({"A=2,3", "B=2,2,3"}, {"broadcast=true", "trans_b=true"})
      .example({"A=0,2,3", "B=1,3,1"}, {"broadcast=true"})
      .cpu(forward<float>, forward<double>)
      .workspace(forward<float>, forward<double>)
      .derivative("A", derivative_a)
      .derivative("B", derivative_b);
}

}  // namespace
}  // namespace stepnet
