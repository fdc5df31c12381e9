// FMod: C = A - t B, element by element, with broadcasting on request, where t = TruncDiv(A, B) is the quotient without
// its fraction: the remainder, with A's sign. Integers cannot be divided by 0.
//
// dA = dC, which reads nothing; dB = -dC t, which reads A and B. Each is summed over the dimensions in which the
// operand repeats. t is constant almost everywhere: gradients end at TruncDiv.

#include "operators/pointwise/fmod.h"

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
  elementwise_binary<Remainder<T>>(args, a, b, c, call);
}

template <class T>
void quotient(const BroadcastArgs& args, In<T> a, In<T> b, Out<T> c, Call& call) {
  elementwise_binary<WholeQuotient<T>>(args, a, b, c, call);
}

Gradient derivative_b(Formula& f) {
  const Value whole = f.op("TruncDiv", {f.x("A"), f.x("B")}, f.forward_args());
  return gradient_of_b(f, f.op("Negative", {f.op("Mul", {f.dy("C"), whole})}));
}

REGISTER(fmod) {
  return binary_op("FMod", "mod")
      .doc(
          "The remainder of a division, with A's sign, element by element; NaN where B is 0. A's gradient reads "
          "nothing of the forward pass, and B's reads A and B.")
      .in_place("A", "C", {"B"})
      .in_place("B", "C", {"B"})
      .flops(flops_per_output(1))
      .cpu(forward<float>, forward<double>, forward<int32_t>, forward<int64_t>)
      .derivative("A", [](Formula& f) { return gradient_of_a(f, f.dy("C")); })
      .derivative("B", derivative_b);
}

REGISTER(trunc_div) {
  return binary_op("TruncDiv", "/")
      .doc("The quotient without its fraction, element by element; NaN where B is 0. Gradients end here.")
      .flops(flops_per_output(1))
      .cpu(quotient<float>, quotient<double>)
      .stop_gradient();
}

}  // namespace
}  // namespace stepnet
