// Sub: C = A - B, with broadcasting on request.
//
// dA = dC and dB = -dC, summed over the dimensions in which the operand repeats. Nothing of the forward pass is read.

#include "operators/elementwise_binary.h"

namespace stepnet {
namespace {

template <class T>
void forward(const BroadcastArgs& args, In<T> a, In<T> b, Out<T> c, Call& call) {
  elementwise_binary<std::minus<T>>(args, a, b, c, call);
}

Gradient derivative_a(Formula& f) {
  const auto& args = f.args<BroadcastArgs>();
  if (!args.broadcast || args.aligned()) return f.dy("C");
  return f.op("SumReduceLike", {f.dy("C"), f.x("A")}, f.forward_args());
}

Gradient derivative_b(Formula& f) {
  const Value negative = f.op("Negative", {f.dy("C")});
  if (!f.args<BroadcastArgs>().broadcast) return negative;
  return f.op("SumReduceLike", {negative, f.x("B")}, f.forward_args());
}

REGISTER(sub) {
  auto builder = op<BroadcastArgs>("Sub");
  builder.doc("Difference of two tensors, element by element.");
  return add_broadcast_args(builder)
      .input("A", "any shape")
      .input("B", "A's shape, or with broadcast one that goes with it")
      .output("C", "A - B")
      .in_place("A", "C")
      .in_place("B", "C")
      .shape(infer_broadcast)
      .rowwise(broadcast_rows)
      .fused([](const BroadcastArgs& a, int) {
        return a.aligned() ? FusedBody{} : FusedBody{{FusedCode::sub, 0, 1}};
      })
      .cpu(forward<float>, forward<double>, forward<int32_t>, forward<int64_t>)
      .derivative("A", derivative_a)
      .derivative("B", derivative_b);
}

}  // namespace
}  // namespace stepnet
