// Products added to a tensor, Y = beta M + alpha P: AddMV, AddR, AddBMM and BAddBMM; and Ger, the outer product that
// AddR adds. The derivative of M is beta dY and reads nothing.
#include "operators/products/added_product.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <string>

#include "core/compute/threads.h"
#include "core/operator/flops.h"
#include "stepnet/matmul.h"
#include "stepnet/operator.h"

namespace stepnet::cpu_added_product {
namespace {

OpBuilder<AddedArgs> added_product_op(const std::string& type) {
  OpBuilder<AddedArgs> b(type);
  b.own()
      .arg("beta", &AddedArgs::beta, 1.0F, "the factor of what is added; if it is 0, its values are not used")
      .arg("alpha", &AddedArgs::alpha, 1.0F, "the factor of the product");
  return b;
}

// y = alpha y + beta m, where y is the product.
template <class T>
void blend(const AddedArgs& a, In<T> m, Out<T> y) {
  const T alpha = static_cast<T>(a.alpha), beta = static_cast<T>(a.beta);
  auto range = [=, from = m.data(), to = y.data()](int64_t begin, int64_t end) {
    if (beta == T(0)) {
      for (int64_t i = begin; i < end; ++i) to[i] *= alpha;
    } else {
#pragma omp simd
      for (int64_t i = begin; i < end; ++i) to[i] = beta * from[i] + alpha * to[i];
    }
  };
  parallel_for(static_cast<int64_t>(y.size()), 0.4, std::ref(range));
}

// factor v
Value times(Formula& f, Value v, float factor) {
  return factor == 1 ? v : f.op("Scale", {v}, {make_arg("scale", factor)});
}

// The gradients of M, and of a factor of P from its gradient for an alpha of 1.
Gradient gradient_of_added(Formula& f, const char* output) { return times(f, f.dy(output), f.args<AddedArgs>().beta); }
Gradient times_alpha(Formula& f, Value gradient) { return times(f, gradient, f.args<AddedArgs>().alpha); }

// The same, checked; nothing if it is not known yet.
std::optional<BatchProduct> batch_product(const ShapeCall& c) {
  for (const int i : {1, 2})
    if (c.known(i))
      require(c.shape(i).rank() == 3, "{} is {}, but a batch of matrices has three dimensions", i == 1 ? "A" : "B",
              c.shape(i));
  if (!c.known(1) || !c.known(2)) return std::nullopt;
  const Shape &a = c.shape(1), &b = c.shape(2);
  require(a[0] == b[0], "A {} has {} matrices, but B {} has {}", a, a[0], b, b[0]);
  require(a[2] == b[1], "matrices of A {} have {} columns, but those of B {} have {} rows", a, a[2], b, b[1]);
  return batch_product(a, b);
}

double batch_product_flops(const AddedArgs&, const ShapeCall& c) {
  const auto product = batch_product(c);
  return product ? product->flops() + 3 * input_size(c, 0) : 0;
}

// The products of the batch, one after the other, or their sum.
template <class T>
void multiply_batch(const BatchProduct& p, bool sum, In<T> a, In<T> b, Out<T> y) {
  for (int64_t i = 0; i < p.batch; ++i)
    matmul(false, false, p.rows, p.columns, p.inner, a.data() + i * p.rows * p.inner,
           b.data() + i * p.inner * p.columns, y.data() + (sum ? 0 : i * p.rows * p.columns), sum && i > 0);
}

// Y has the shape of the product, and so must input 0 have.
void set_added(ShapeCall& c, const char* name, const Shape& product) {
  if (c.known(0)) require(c.shape(0) == product, "{} is {}, but the product is {}", name, c.shape(0), product);
  c.set(0, c.dtype(1), product);
}

// The shape of X Y^T, where X is input kX and Y the next; nothing if it is not known yet.
template <int kX>
std::optional<Shape> outer_product(const ShapeCall& c) {
  for (const int i : {kX, kX + 1})
    if (c.known(i))
      require(c.shape(i).rank() == 1, "{} is {}, but a vector has one dimension", i == kX ? "X" : "Y", c.shape(i));
  if (!c.known(kX) || !c.known(kX + 1)) return std::nullopt;
  return Shape{c.shape(kX)[0], c.shape(kX + 1)[0]};
}

// Calls fn(place, x[i] y[j]) for every element of the product. fn must not throw.
template <class T, class Fn>
void each_product(In<T> x, In<T> y, const Fn& fn) {
  const auto columns = static_cast<int64_t>(y.size());
  auto range = [=, &fn](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      for (int64_t j = 0; j < columns; ++j) fn(i * columns + j, x[i] * y[j]);
  };
  parallel_for(static_cast<int64_t>(x.size()), 0.4 * static_cast<double>(columns), std::ref(range));
}

// AddMV: Y = beta V + alpha A X, a matrix times a vector, added to a vector.
//
// dV = beta dY, which reads nothing; dA = alpha dY X^T, which reads X; dX = alpha A^T dY, which reads A.

void add_mv_infer(const AddedArgs&, ShapeCall& c) {
  if (c.known(1)) require(c.shape(1).rank() == 2, "A is {}, but a matrix has two dimensions", c.shape(1));
  if (c.known(2)) require(c.shape(2).rank() == 1, "X is {}, but a vector has one dimension", c.shape(2));
  if (!c.known(1)) return;
  const Shape& a = c.shape(1);
  if (c.known(2)) require(a[1] == c.shape(2)[0], "A {} has {} columns, but X {} elements", a, a[1], c.shape(2)[0]);
  set_added(c, "V", {a[0]});
}

double add_mv_flops(const AddedArgs&, const ShapeCall& c) { return 2 * input_size(c, 1) + 3 * input_size(c, 0); }

template <class T>
void add_mv_product(const AddedArgs&, In<T>, In<T> a, In<T> x, Out<T> y) {
  matmul(false, false, static_cast<int64_t>(y.size()), 1, static_cast<int64_t>(x.size()), a.data(), x.data(), y.data());
}

template <class T>
void add_mv_forward(const AddedArgs& args, In<T> v, In<T> a, In<T> x, Out<T> y) {
  add_mv_product(args, v, a, x, y);
  blend(args, v, y);
}

Gradient add_mv_derivative_a(Formula& f) { return times_alpha(f, f.op("Ger", {f.dy("Y"), f.x("X")})); }
Gradient add_mv_derivative_x(Formula& f) {
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
      .shape(add_mv_infer)
      .flops(add_mv_flops)
      .example({"V=3", "A=3,4", "X=4"})
      .example({"V=1", "A=1,2", "X=2"}, {"alpha=0.5", "beta=-2"})
      .example({"V=3", "A=3,0", "X=0"})
      .precision(Precision::half)
      .cpu(add_mv_forward<float>, add_mv_forward<double>)
      .workspace(add_mv_product<float>, add_mv_product<double>)
      .derivative("V", [](Formula& f) { return gradient_of_added(f, "Y"); })
      .derivative("A", add_mv_derivative_a)
      .derivative("X", add_mv_derivative_x);
}

// AddR: Z = beta M + alpha X Y^T, the outer product of two vectors, added to a matrix.
//
// dM = beta dZ, which reads nothing; dX = alpha dZ Y, which reads Y; dY = alpha dZ^T X, which reads X.

void add_r_infer(const AddedArgs&, ShapeCall& c) {
  if (const auto product = outer_product<1>(c)) set_added(c, "M", *product);
}

// Reads M before it writes Z at the same place, so that Z may be M.
template <class T>
void add_r_forward(const AddedArgs& args, In<T> m, In<T> x, In<T> y, Out<T> z) {
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
      .shape(add_r_infer)
      .example({"M=3,4", "X=3", "Y=4"})
      .example({"M=3,1", "X=3", "Y=1"}, {"alpha=0.5", "beta=-2"})
      .example({"M=0,4", "X=0", "Y=4"})
      .flops(flops_per_output(4))
      .precision(Precision::half)
      .cpu(add_r_forward<float>, add_r_forward<double>)
      .derivative("M", [](Formula& f) { return gradient_of_added(f, "Z"); })
      .derivative("X",
                  [](Formula& f) {
                    return times_alpha(f, f.op("MV", {f.dy("Z"), f.x("Y")}));
                  })
      .derivative("Y", [](Formula& f) {
        return times_alpha(f, f.op("MV", {f.dy("Z"), f.x("X")}, {make_arg("trans", true)}));
      });
}

// Ger: Z = X Y^T, the outer product of two vectors: Z[i, j] = X[i] Y[j].
//
// dX = dZ Y, which reads Y; dY = dZ^T X, which reads X.

void ger_infer(const NoArgs&, ShapeCall& c) {
  if (const auto product = outer_product<0>(c)) c.set(0, c.dtype(0), *product);
}

template <class T>
void ger_forward(In<T> x, In<T> y, Out<T> z) {
  each_product(x, y, [to = z.data()](int64_t at, T product) { to[at] = product; });
}

REGISTER(ger) {
  return op("Ger")
      .own()
      .doc("The outer product of two vectors. X's gradient reads Y, and Y's reads X.")
      .input("X", "[N]")
      .input("Y", "[M]")
      .output("Z", "[N, M]: Z[i, j] = X[i] Y[j]")
      .shape(ger_infer)
      .example({"X=3", "Y=4"})
      .example({"X=1", "Y=0"})
      .flops(flops_per_output(1))
      .precision(Precision::half)
      .cpu(ger_forward<float>, ger_forward<double>)
      .derivative("X",
                  [](Formula& f) {
                    return f.op("MV", {f.dy("Z"), f.x("Y")});
                  })
      .derivative("Y", [](Formula& f) {
        return f.op("MV", {f.dy("Z"), f.x("X")}, {make_arg("trans", true)});
      });
}

// AddBMM: Y = beta M + alpha (A_0 B_0 + A_1 B_1 + ...), the sum of a batch's matrix products.
//
// dM = beta dY, which reads nothing; dA_i = alpha dY B_i^T, which reads B; dB_i = alpha A_i^T dY, which reads A.

void add_bmm_infer(const AddedArgs&, ShapeCall& c) {
  if (const auto product = batch_product(c)) set_added(c, "M", {product->rows, product->columns});
}

template <class T>
void add_bmm_product(const AddedArgs&, In<T>, In<T> a, In<T> b, Out<T> y, Call& call) {
  multiply_batch(batch_product(call.in(1).shape(), call.in(2).shape()), true, a, b, y);
}

template <class T>
void add_bmm_forward(const AddedArgs& args, In<T> m, In<T> a, In<T> b, Out<T> y, Call& call) {
  if (call.in(1).dim(0) == 0) std::fill(y.begin(), y.end(), T(0));
  add_bmm_product(args, m, a, b, y, call);
  blend(args, m, y);
}

// dY is the gradient of every product: it repeats.
Gradient add_bmm_derivative_a(Formula& f) {
  return times_alpha(
      f, f.op("BatchMatMul", {f.dy("Y"), f.x("B")}, {make_arg("trans_b", true), make_arg("broadcast", true)}));
}
Gradient add_bmm_derivative_b(Formula& f) {
  return times_alpha(
      f, f.op("BatchMatMul", {f.x("A"), f.dy("Y")}, {make_arg("trans_a", true), make_arg("broadcast", true)}));
}

// Matrices side by side.
std::vector<int64_t> add_bmm_gpu_workspace(const AddedArgs&, const Call& c) {
  if (c.in(1).dim(0) <= 1) return {};
  return {static_cast<int64_t>(c.in(1).bytes())};
}

REGISTER(add_bmm) {
  return added_product_op("AddBMM")
      .doc(
          "The sum of a batch's matrix products, added to a matrix. M is not repeated; for one that is smaller see "
          "Add. M's gradient reads nothing of the forward pass, A's reads B, and B's reads A.")
      .input("M", "[N, P]")
      .input("A", "[batch, N, K]")
      .input("B", "[batch, K, P]")
      .output("Y", "[N, P]: beta M + alpha (A_0 B_0 + A_1 B_1 + ...)")
      .shape(add_bmm_infer)
      .flops(batch_product_flops)
      .gpu_workspace(add_bmm_gpu_workspace)
      .example({"M=2,3", "A=2,2,4", "B=2,4,3"})
      .example({"M=2,3", "A=3,2,1", "B=3,1,3"}, {"alpha=0.5", "beta=-2"})
      .example({"M=2,3", "A=0,2,4", "B=0,4,3"})
      .precision(Precision::half)
      .cpu(add_bmm_forward<float>, add_bmm_forward<double>)
      .workspace(add_bmm_product<float>, add_bmm_product<double>)
      .derivative("M", [](Formula& f) { return gradient_of_added(f, "Y"); })
      .derivative("A", add_bmm_derivative_a)
      .derivative("B", add_bmm_derivative_b);
}

// BAddBMM: Y_i = beta M_i + alpha A_i B_i for every matrix of a batch.
//
// dM = beta dY, which reads nothing; dA_i = alpha dY_i B_i^T, which reads B; dB_i = alpha A_i^T dY_i, which reads A.

void badd_bmm_infer(const AddedArgs&, ShapeCall& c) {
  if (const auto product = batch_product(c)) set_added(c, "M", {product->batch, product->rows, product->columns});
}

template <class T>
void badd_bmm_product(const AddedArgs&, In<T>, In<T> a, In<T> b, Out<T> y, Call& call) {
  multiply_batch(batch_product(call.in(1).shape(), call.in(2).shape()), false, a, b, y);
}

template <class T>
void badd_bmm_forward(const AddedArgs& args, In<T> m, In<T> a, In<T> b, Out<T> y, Call& call) {
  badd_bmm_product(args, m, a, b, y, call);
  blend(args, m, y);
}

Gradient badd_bmm_derivative_a(Formula& f) {
  return times_alpha(f, f.op("BatchMatMul", {f.dy("Y"), f.x("B")}, {make_arg("trans_b", true)}));
}
Gradient badd_bmm_derivative_b(Formula& f) {
  return times_alpha(f, f.op("BatchMatMul", {f.x("A"), f.dy("Y")}, {make_arg("trans_a", true)}));
}

REGISTER(badd_bmm) {
  return added_product_op("BAddBMM")
      .doc(
          "Products of the matrices in two batches, each added to a matrix of a third batch. M is not repeated; for "
          "one that is smaller see Add. M's gradient reads nothing of the forward pass, A's reads B, and B's reads A.")
      .input("M", "[batch, N, P]")
      .input("A", "[batch, N, K]")
      .input("B", "[batch, K, P]")
      .output("Y", "[batch, N, P]: beta M_i + alpha A_i B_i")
      .shape(badd_bmm_infer)
      .flops(batch_product_flops)
      .rowwise([](const AddedArgs&, const ShapeCall&) { return 1; })
      .example({"M=2,2,3", "A=2,2,4", "B=2,4,3"})
      .example({"M=2,2,3", "A=2,2,1", "B=2,1,3"}, {"alpha=0.5", "beta=-2"})
      .example({"M=2,2,3", "A=2,2,0", "B=2,0,3"})
      .precision(Precision::half)
      .cpu(badd_bmm_forward<float>, badd_bmm_forward<double>)
      .workspace(badd_bmm_product<float>, badd_bmm_product<double>)
      .derivative("M", [](Formula& f) { return gradient_of_added(f, "Y"); })
      .derivative("A", badd_bmm_derivative_a)
      .derivative("B", badd_bmm_derivative_b);
}

}  // namespace
}  // namespace stepnet::cpu_added_product
