// Pow: Y = X^e, element by element. The exponent e is the argument "exponent", or the second input, which goes with X
// as B goes with A in Mul.
//
// dX = dY e X^(e - 1) and de = dY Y ln(X), each summed over the dimensions in which the operand repeats. Of X the
// derivative reads X and e; of e it reads X and Y, and is NaN where X is not positive.

#include "operators/pointwise/pow.h"

#include <cmath>

#include "core/operator/flops.h"
#include "operators/pointwise/activation.h"
#include "operators/pointwise/elementwise_binary.h"

namespace stepnet {
namespace {

template <class T>
void forward(const PowArgs& a, In<T> x, In<T> exponent, Out<T> y, Call& call) {
  if (!a.exponent) return elementwise_binary<Power<T>>(a, x, exponent, y, call);
  const T e = static_cast<T>(*a.exponent);
  if (e == T(1)) return each_element(x, y, 0.3, [](T v) { return v; });
  if (e == T(2)) return each_element(x, y, 0.3, [](T v) { return v * v; });
  each_element(x, y, 10, [=](T v) { return std::pow(v, e); });
}

void infer(const PowArgs& a, ShapeCall& c) {
  require(c.has(1) || a.exponent, "there is no exponent: give the argument \"exponent\" or a second input");
  require(!c.has(1) || !a.exponent, "the exponent is given both as an argument and as the second input; give one");
  if (c.has(1)) {
    infer_broadcast(a, c);
  } else {
    c.set_like(0, 0);
  }
}

int rows(const PowArgs& a, const ShapeCall& c) { return c.has(1) ? broadcast_rows(a, c) : Shape::kMaxRank; }

Gradient derivative_of_constant(Formula& f, float e) {
  if (e == 0) return f.op("ZerosLike", {f.dy("Y")});
  if (e == 1) return f.dy("Y");
  const Value slope = f.op("Pow", {f.x("X")}, {make_arg("exponent", e - 1)});
  return f.op("Scale", {f.op("Mul", {f.dy("Y"), slope})}, {make_arg("scale", e)});
}

Gradient derivative_x(Formula& f) {
  if (const auto& e = f.args<PowArgs>().exponent) return derivative_of_constant(f, *e);
  const Value exponent = f.x("exponent");
  const Value one = f.op("ConstantFill", {exponent}, {make_arg("value", 1.0F)});
  const Value power = f.op("Pow", {f.x("X"), f.op("Sub", {exponent, one})}, f.forward_args());
  const Value scaled = f.op("Mul", {f.dy("Y"), exponent}, f.forward_args());
  return gradient_of_a<PowArgs>(f, f.op("Mul", {scaled, power}), "X");
}

// With an axis X has the shape of dY.
Gradient derivative_exponent(Formula& f) {
  const auto& args = f.args<PowArgs>();
  const bool alike = args.broadcast && args.aligned();
  const Value product = f.op("Mul", {f.dy("Y"), f.y("Y")});
  const Value repeated =
      f.op("Mul", {product, f.op("Log", {f.x("X")})}, alike ? std::vector<Argument>{} : f.forward_args());
  return gradient_of_b<PowArgs>(f, repeated, "exponent");
}

REGISTER(pow) {
  auto builder = op<PowArgs>("Pow");
  builder.doc("X to the power of the exponent, element by element.");
  return add_broadcast_args(builder)
      .arg("exponent", &PowArgs::exponent, {}, "the exponent, unless it is an input")
      .input("X", "any shape")
      .input("exponent", "X's shape, or with broadcast one that goes with it")
      .optional()
      .output("Y", "X^exponent")
      .in_place("X", "Y", {"X", "exponent"})
      .in_place("exponent", "Y", {"X"})
      .shape(infer)
      .rowwise(rows)
      .example({"X=3,4,0.5..2"}, {"exponent=2.5"})
      .example({"X=3,4,0.5..2"}, {"exponent=0"})
      .example({"X=3,4,0.5..2"}, {"exponent=1"})
      .example({"X=3,4,0.5..2"}, {"exponent=2"})
      .example({"X=2,3,0.5..2", "exponent=2,3"})
      .example({"X=2,3,0.5..2", "exponent=3"}, {"broadcast=1"})
      .example({"X=2,1,3,0.5..2", "exponent=2,1"}, {"broadcast=1"})
      .example({"X=2,3,2,0.5..2", "exponent=3"}, {"broadcast=1", "axis=1"})
      .flops(flops_per_output(1))
      .cpu(forward<float>, forward<double>)
      .derivative("X", derivative_x)
      .derivative("exponent", derivative_exponent);
}

}  // namespace
}  // namespace stepnet
