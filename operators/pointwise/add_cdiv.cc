// AddCDiv: C = T + value A / B, element by element.
//
// dT = dC, with no operator; dA = value dC / B, which reads B; dB = -value dC A / B^2, which reads A and B.

#include "core/operator/flops.h"
#include "operators/pointwise/add_c.h"

namespace stepnet {
namespace {

template <class T>
void forward(const AddCArgs& args, In<T> t, In<T> a, In<T> b, Out<T> c) {
  add_combined(args, t, a, b, c, std::divides<T>());
}

Gradient derivative_b(Formula& f) {
  const Value quotient = f.op("Div", {f.x("A"), f.x("B")});
  return times_value(f, f.op("Mul", {f.op("Div", {f.dy("C"), f.x("B")}), quotient}), -1);
}

REGISTER(add_cdiv) {
  return add_c_op("AddCDiv", " /")
      .doc(
          "A quotient element by element, times a constant, added to a tensor. Nothing is repeated. T's gradient reads "
          "nothing of the forward pass, A's reads B, and B's reads A and B.")
      .in_place("A", "C", {"B"})
      .in_place("B", "C", {"A", "B"})
      .flops(flops_per_output(3))
      .cpu(forward<float>, forward<double>)
      .derivative("A",
                  [](Formula& f) {
                    return times_value(f, f.op("Div", {f.dy("C"), f.x("B")}));
                  })
      .derivative("B", derivative_b);
}

}  // namespace
}  // namespace stepnet
