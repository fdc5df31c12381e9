// Sub: C = A - B, with broadcasting on request.
//
// dA = dC and dB = -dC, summed over the dimensions in which the operand repeats. Nothing of the forward pass is read.

#include "core/operator/flops.h"
#include "operators/pointwise/elementwise_binary.h"

namespace stepnet {
namespace {

template <class T>
void forward(const BroadcastArgs& args, In<T> a, In<T> b, Out<T> c, Call& call) {
  elementwise_binary<std::minus<T>>(args, a, b, c, call);
}

REGISTER(sub) {
  return binary_op("Sub", "-", FusedCode::sub)
      .doc("Difference of two tensors, element by element.")
      .in_place("A", "C")
      .in_place("B", "C")
      .flops(flops_per_output(1))
      .cpu(forward<float>, forward<double>, forward<int32_t>, forward<int64_t>)
      .derivative("A", [](Formula& f) { return gradient_of_a(f, f.dy("C")); })
      .derivative("B", [](Formula& f) { return gradient_of_b(f, f.op("Negative", {f.dy("C")})); });
}

}  // namespace
}  // namespace stepnet
