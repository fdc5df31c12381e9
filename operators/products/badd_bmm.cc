// BAddBMM: Y_i = beta M_i + alpha A_i B_i for every matrix of a batch.
//
// dM = beta dY, which reads nothing; dA_i = alpha dY_i B_i^T, which reads B; dB_i = alpha A_i^T dY_i, which reads A.

#include "operators/products/added_product.h"

namespace stepnet {
namespace {

void infer(const AddedArgs&, ShapeCall& c) {
  if (const auto product = batch_product(c)) set_added(c, "M", {product->batch, product->rows, product->columns});
}

template <class T>
void product(const AddedArgs&, In<T>, In<T> a, In<T> b, Out<T> y, Call& call) {
  multiply_batch(batch_product(call.in(1).shape(), call.in(2).shape()), false, a, b, y);
}

template <class T>
void forward(const AddedArgs& args, In<T> m, In<T> a, In<T> b, Out<T> y, Call& call) {
  product(args, m, a, b, y, call);
  blend(args, m, y);
}

Gradient derivative_a(Formula& f) {
  return times_alpha(f, f.op("BatchMatMul", {f.dy("Y"), f.x("B")}, {make_arg("trans_b", true)}));
}
Gradient derivative_b(Formula& f) {
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
      .shape(infer)
      .flops(batch_product_flops)
      .rowwise([](const AddedArgs&, const ShapeCall&) { return 1; })
      .example({"M=2,2,3", "A=2,2,4", "B=2,4,3"})
      .example({"M=2,2,3", "A=2,2,1", "B=2,1,3"}, {"alpha=0.5", "beta=-2"})
      .example({"M=2,2,3", "A=2,2,0", "B=2,0,3"})
      .cpu(forward<float>, forward<double>)
      .workspace(product<float>, product<double>)
      .derivative("M", [](Formula& f) { return gradient_of_added(f, "Y"); })
      .derivative("A", derivative_a)
      .derivative("B", derivative_b);
}

}  // namespace
}  // namespace stepnet
