// AddCMul: C = T + value A B, element by element.
//
// dT = dC, with no operator; dA = value dC B, which reads B; dB = value dC A, which reads A.

#include "core/operator/flops.h"
#include "operators/pointwise/add_c.h"

namespace stepnet {
namespace {

template <class T>
void forward(const AddCArgs& args, In<T> t, In<T> a, In<T> b, Out<T> c) {
  add_combined(args, t, a, b, c, std::multiplies<T>());
}

REGISTER(add_cmul) {
  return add_c_op("AddCMul", "")
      .doc(
          "A product element by element, times a constant, added to a tensor. Nothing is repeated. T's gradient reads "
          "nothing of the forward pass, A's reads B, and B's reads A.")
      .in_place("A", "C", {"B"})
      .in_place("B", "C", {"A"})
      .flops(flops_per_output(3))
      .cpu(forward<float>, forward<double>)
      .derivative("A",
                  [](Formula& f) {
                    return times_value(f, f.op("Mul", {f.dy("C"), f.x("B")}));
                  })
      .derivative("B", [](Formula& f) {
        return times_value(f, f.op("Mul", {f.dy("C"), f.x("A")}));
      });
}

}  // namespace
}  // namespace stepnet
