// Add: C = A + B, with broadcasting on request.
//
// dA = dC and dB = dC, summed over the dimensions in which the operand repeats. Nothing of the forward pass is read,
// and without broadcasting no operator is needed.

#include "operators/elementwise_binary.h"

namespace stepnet {
namespace {

template <class T>
void forward(const BroadcastArgs& args, In<T> a, In<T> b, Out<T> c, Call& call) {
  elementwise_binary<std::plus<T>>(args, a, b, c, call);
}

Gradient derivative_a(Formula& f) {
  const auto& args = f.args<BroadcastArgs>();
  if (!args.broadcast || args.aligned()) return f.dy("C");
  return f.op("SumReduceLike", {f.dy("C"), f.x("A")}, f.forward_args());
}

Gradient derivative_b(Formula& f) {
  if (!f.args<BroadcastArgs>().broadcast) return f.dy("C");
  return f.op("SumReduceLike", {f.dy("C"), f.x("B")}, f.forward_args());
}

REGISTER(add) {
  auto builder = op<BroadcastArgs>("Add");
  builder.doc("Sum of two tensors, element by element.");
  return add_broadcast_args(builder)
      .input("A", "any shape")
      .input("B", "A's shape, or with broadcast one that goes with it")
      .output("C", "A + B")
      .in_place("A", "C")
      .in_place("B", "C")
      .shape(infer_broadcast)
      .rowwise(broadcast_rows)
      .sums_inputs()
      .fused([](const BroadcastArgs& a, int) {
        return a.aligned() ? FusedBody{} : FusedBody{{FusedCode::add, 0, 1}};
      })
      .cpu(forward<float>, forward<double>, forward<int32_t>, forward<int64_t>)
      .derivative("A", derivative_a)
      .derivative("B", derivative_b);
}

}  // namespace
}  // namespace stepnet
