// Div: C = A / B, element by element, with broadcasting on request. Integers are truncated; they cannot be divided by
// 0.
//
// dA = dC / B and dB = -dC C / B, each summed over the dimensions in which the operand repeats. Of A the derivative
// reads B, of B it reads B and C.

#include "operators/pointwise/div.h"

#include <algorithm>
#include <type_traits>

#include "core/operator/flops.h"
#include "operators/pointwise/elementwise_binary.h"

namespace stepnet {
namespace {

template <class T>
void forward(const BroadcastArgs& args, In<T> a, In<T> b, Out<T> c, Call& call) {
  if constexpr (std::is_integral_v<T>)
    require(c.empty() || std::find(b.begin(), b.end(), T(0)) == b.end(),
            "B has a 0, by which integers cannot be divided");
  elementwise_binary<Quotient<T>>(args, a, b, c, call);
}

Gradient derivative_a(Formula& f) { return gradient_of_a(f, f.op("Div", {f.dy("C"), f.x("B")}, f.forward_args())); }

// B is the same in all places that are added up, so the sum is divided.
Gradient derivative_b(Formula& f) {
  const Gradient sum = gradient_of_b(f, f.op("Mul", {f.dy("C"), f.y("C")}));
  return f.op("Negative", {f.op("Div", {sum.dense, f.x("B")})});
}

REGISTER(div) {
  return binary_op("Div", "/")
      .doc(
          "Quotient of two tensors, element by element. Integers are truncated, and cannot be divided by 0. A's "
          "gradient reads B, and B's reads B and C.")
      .in_place("A", "C")
      .in_place("B", "C", {"A", "B"})
      .flops(flops_per_output(1))
      .cpu(forward<float>, forward<double>, forward<int32_t>, forward<int64_t>)
      .derivative("A", derivative_a)
      .derivative("B", derivative_b);
}

}  // namespace
}  // namespace stepnet
