// AddBMM: Y = beta M + alpha (A_0 B_0 + A_1 B_1 + ...), the sum of a batch's matrix products.
//
// dM = beta dY, which reads nothing; dA_i = alpha dY B_i^T, which reads B; dB_i = alpha A_i^T dY, which reads A.

#include <algorithm>

#include "operators/products/added_product.h"

namespace stepnet {
namespace {

void infer(const AddedArgs&, ShapeCall& c) {
  if (const auto product = batch_product(c)) set_added(c, "M", {product->rows, product->columns});
}

template <class T>
void product(const AddedArgs&, In<T>, In<T> a, In<T> b, Out<T> y, Call& call) {
  multiply_batch(batch_product(call.in(1).shape(), call.in(2).shape()), true, a, b, y);
}

template <class T>
void forward(const AddedArgs& args, In<T> m, In<T> a, In<T> b, Out<T> y, Call& call) {
  if (call.in(1).dim(0) == 0) std::fill(y.begin(), y.end(), T(0));
  product(args, m, a, b, y, call);
  blend(args, m, y);
}

// dY is the gradient of every product: it repeats.
Gradient derivative_a(Formula& f) {
  return times_alpha(
      f, f.op("BatchMatMul", {f.dy("Y"), f.x("B")}, {make_arg("trans_b", true), make_arg("broadcast", true)}));
}
Gradient derivative_b(Formula& f) {
  return times_alpha(
      f, f.op("BatchMatMul", {f.x("A"), f.dy("Y")}, {make_arg("trans_a", true), make_arg("broadcast", true)}));
}

// Matrices side by side.
std::vector<int64_t> gpu_workspace(const AddedArgs&, const Call& c) {
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
      .shape(infer)
      .flops(batch_product_flops)
      .gpu_workspace(gpu_workspace)
      .example({"M=2,3", "A=2,2,4", "B=2,4,3"})
      .example({"M=2,3", "A=3,2,1", "B=3,1,3"}, {"alpha=0.5", "beta=-2"})
      .example({"M=2,3", "A=0,2,4", "B=0,4,3"})
      .cpu(forward<float>, forward<double>)
      .workspace(product<float>, product<double>)
      .derivative("M", [](Formula& f) { return gradient_of_added(f, "Y"); })
      .derivative("A", derivative_a)
      .derivative("B", derivative_b);
}

}  // namespace
}  // namespace stepnet
