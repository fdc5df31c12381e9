// Mul: C = A * B, element by element, with broadcasting on request.
//
// dA = dC * B and dB = dC * A, summed over the dimensions in which the operand repeats. Of A the derivative reads B,
// and of B it reads A, each only if it is wanted.

#include "operators/elementwise_binary.h"

namespace stepnet {
namespace {

template <class T>
void forward(const BroadcastArgs& args, In<T> a, In<T> b, Out<T> c, Call& call) {
  elementwise_binary<std::multiplies<T>>(args, a, b, c, call);
}

Gradient derivative_a(Formula& f) {
  const auto& args = f.args<BroadcastArgs>();
  const Value product = f.op("Mul", {f.dy("C"), f.x("B")}, f.forward_args());
  if (!args.broadcast || args.aligned()) return product;
  return f.op("SumReduceLike", {product, f.x("A")}, f.forward_args());
}

Gradient derivative_b(Formula& f) {
  const auto& args = f.args<BroadcastArgs>();
  if (!args.broadcast) return f.op("Mul", {f.dy("C"), f.x("A")}, f.forward_args());
  // With an axis A has the shape of dC.
  const Value product = f.op("Mul", {f.dy("C"), f.x("A")}, args.aligned() ? std::vector<Argument>{} : f.forward_args());
  return f.op("SumReduceLike", {product, f.x("B")}, f.forward_args());
}

REGISTER(mul) {
  auto builder = op<BroadcastArgs>("Mul");
  builder.doc("Product of two tensors, element by element.");
  return add_broadcast_args(builder)
      .input("A", "any shape")
      .input("B", "A's shape, or with broadcast one that goes with it")
      .output("C", "A * B")
      .in_place("A", "C", {"B"})
      .in_place("B", "C", {"A"})
      .shape(infer_broadcast)
      .rowwise(broadcast_rows)
      .fused([](const BroadcastArgs& a, int) {
        return a.aligned() ? FusedBody{} : FusedBody{{FusedCode::mul, 0, 1}};
      })
      .cpu(forward<float>, forward<double>, forward<int32_t>, forward<int64_t>)
      .derivative("A", derivative_a)
      .derivative("B", derivative_b);
}

}  // namespace
}  // namespace stepnet
