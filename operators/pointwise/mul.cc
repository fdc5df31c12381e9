// Mul: C = A * B, element by element, with broadcasting on request.
//
// dA = dC * B and dB = dC * A, summed over the dimensions in which the operand repeats. Of A the derivative reads B,
// and of B it reads A, each only if it is wanted.

#include "core/operator/flops.h"
#include "operators/pointwise/elementwise_binary.h"

namespace stepnet {
namespace {

template <class T>
void forward(const BroadcastArgs& args, In<T> a, In<T> b, Out<T> c, Call& call) {
  elementwise_binary<std::multiplies<T>>(args, a, b, c, call);
}

Gradient derivative_a(Formula& f) { return gradient_of_a(f, f.op("Mul", {f.dy("C"), f.x("B")}, f.forward_args())); }

// With an axis A has the shape of dC.
Gradient derivative_b(Formula& f) {
  const auto& args = f.args<BroadcastArgs>();
  const bool alike = args.broadcast && args.aligned();
  return gradient_of_b(f, f.op("Mul", {f.dy("C"), f.x("A")}, alike ? std::vector<Argument>{} : f.forward_args()));
}

REGISTER(mul) {
  return binary_op("Mul", "*", FusedCode::mul)
      .doc("Product of two tensors, element by element. A's gradient reads B, and B's reads A.")
      .in_place("A", "C", {"B"})
      .in_place("B", "C", {"A"})
      .flops(flops_per_output(1))
      .cpu(forward<float>, forward<double>, forward<int32_t>, forward<int64_t>)
      .derivative("A", derivative_a)
      .derivative("B", derivative_b);
}

}  // namespace
}  // namespace stepnet
