// Operators on one tensor that have no arguments, element by element: Y = f(X). A row here is an operator; its function
// of one element stands in unary.h, and gpu/pointwise/unary.cu has the same rows.
//
// The derivatives are formulas of other operators. Those that read Y, not X, say so: a step net may drop X after the
// forward pass.
#include "operators/pointwise/unary.h"

#include <numbers>

#include "core/operator/flops.h"
#include "operators/pointwise/activation.h"

namespace stepnet::cpu_unary {
namespace {

template <class Fn, class T>
void forward(In<T> x, Out<T> y) {
  each_element(x, y, 1.0, Fn());
}

// `type`, which is `formula` of X, with all but its kernels and its derivative. `values`: of its example.
OpBuilder<NoArgs> unary(const char* type, const char* doc, const char* formula, const char* values = "-2..2") {
  OpBuilder<NoArgs> b(type);
  b.doc(std::string(doc) + ", element by element.")
      .input("X", "any shape")
      .output("Y", formula, like("X"))
      .elementwise()
      .example({std::string("X=3,4,") + values});
  return b;
}

Value scaled(Formula& f, Value v, float factor) { return f.op("Scale", {v}, {make_arg("scale", factor)}); }

// dX = dY where X > 0, -dY where X < 0, and 0 where X is 0.
REGISTER(abs) {
  return activation("Abs", "X")
      .doc("The absolute value, element by element.")
      .output("Y", "|X|", like("X"))
      .fused({{FusedCode::abs, 0}})
      .cpu_by_instructions();
}

REGISTER(abs_gradient) {
  auto builder = activation_gradient("Abs", zero_by_read, "X");
  return accept_broadcast_args(builder)
      .output("dX", "dY with the sign of X")
      .in_place("dY", "dX")
      .fused({{FusedCode::if_positive, 0, 1},
              {FusedCode::negative, 0},
              {FusedCode::negative, 1},
              {FusedCode::if_positive, 3, 4},
              {FusedCode::either, 2, 5}})
      .cpu_by_instructions();
}

// NaN outside of [-1, 1]. dX = -dY / sin(Y), which is infinite at the bounds.
REGISTER(acos) {
  return unary("Acos", "The inverse cosine", "acos(X), from 0 to pi", "-0.9..0.9")
      .in_place("X", "Y")
      .flops(flops_per_output(1))
      .cpu(forward<InverseCosine, float>, forward<InverseCosine, double>)
      .derivative("X", [](Formula& f) {
        return f.op("Negative", {f.op("Div", {f.dy("Y"), f.op("Sin", {f.y("Y")})})});
      });
}

// NaN outside of [-1, 1]. dX = dY / cos(Y), which is infinite at the bounds.
REGISTER(asin) {
  return unary("Asin", "The inverse sine", "asin(X), from -pi/2 to pi/2", "-0.9..0.9")
      .in_place("X", "Y")
      .flops(flops_per_output(1))
      .cpu(forward<InverseSine, float>, forward<InverseSine, double>)
      .derivative("X", [](Formula& f) {
        return f.op("Div", {f.dy("Y"), f.op("Cos", {f.y("Y")})});
      });
}

// dX = dY / (1 + X^2). Cos(Y)^2 is the same, but inexact where X is large.
REGISTER(atan) {
  return unary("Atan", "The inverse tangent", "atan(X), from -pi/2 to pi/2")
      .in_place("X", "Y", {"X"})
      .flops(flops_per_output(1))
      .cpu(forward<InverseTangent, float>, forward<InverseTangent, double>)
      .derivative("X", [](Formula& f) {
        const Value x = f.x("X"), one = f.op("ConstantFill", {x}, {make_arg("value", 1.0F)});
        return f.op("Div", {f.dy("Y"), f.op("Add", {f.op("Sqr", {x}), one})});
      });
}

// dX = dY / (3 Y^2), which is infinite at 0.
REGISTER(cbrt) {
  return unary("Cbrt", "The cube root", "the number whose cube is X", "0.5..2")
      .example({"X=3,4,-2..-0.5"})
      .in_place("X", "Y")
      .flops(flops_per_output(1))
      .cpu(forward<CubeRoot, float>, forward<CubeRoot, double>)
      .derivative("X", [](Formula& f) {
        const Value square = f.op("Sqr", {f.y("Y")});
        return f.op("Div", {f.dy("Y"), f.op("Add", {f.op("Add", {square, square}), square})});
      });
}

REGISTER(ceil) {
  return unary("Ceil", "The smallest integer that is not less", "the integer at or above X")
      .cpu(forward<RoundedUp, float>, forward<RoundedUp, double>)
      .stop_gradient();
}

REGISTER(cos) {
  return unary("Cos", "The cosine", "cos(X)")
      .in_place("X", "Y", {"X"})
      .flops(flops_per_output(1))
      .fused({{FusedCode::cos, 0}})
      .cpu_by_instructions()
      .derivative("X", [](Formula& f) {
        return f.op("Negative", {f.op("Mul", {f.dy("Y"), f.op("Sin", {f.x("X")})})});
      });
}

REGISTER(cosh) {
  return unary("Cosh", "The hyperbolic cosine", "(exp(X) + exp(-X)) / 2")
      .in_place("X", "Y", {"X"})
      .flops(flops_per_output(1))
      .cpu(forward<HyperbolicCosine, float>, forward<HyperbolicCosine, double>)
      .derivative("X", [](Formula& f) {
        return f.op("Mul", {f.dy("Y"), f.op("Sinh", {f.x("X")})});
      });
}

// dX = 3 X^2 dY.
REGISTER(cube) {
  return unary("Cube", "The cube", "X * X * X")
      .in_place("X", "Y", {"X"})
      .flops(flops_per_output(2))
      .fused({{FusedCode::mul, 0, 0}, {FusedCode::mul, 1, 0}})
      .cpu(forward<Cubed, float>, forward<Cubed, double>)
      .derivative("X", [](Formula& f) {
        return scaled(f, f.op("Mul", {f.dy("Y"), f.op("Sqr", {f.x("X")})}), 3.0F);
      });
}

// dX = dY 2/sqrt(pi) exp(-X^2).
REGISTER(erf) {
  return unary("Erf", "The error function", "erf(X)")
      .in_place("X", "Y", {"X"})
      .flops(flops_per_output(1))
      .fused({{FusedCode::erf, 0}})
      .cpu_by_instructions()
      .derivative("X", [](Formula& f) {
        const Value bell = f.op("Exp", {f.op("Negative", {f.op("Sqr", {f.x("X")})})});
        // Scale has a factor in float: the rest of the constant is added.
        constexpr double factor = 2 * std::numbers::inv_sqrtpi;
        constexpr auto most = static_cast<float>(factor), rest = static_cast<float>(factor - most);
        const Value product = f.op("Mul", {f.dy("Y"), bell});
        return f.op("Add", {scaled(f, product, most), scaled(f, product, rest)});
      });
}

REGISTER(exp) {
  return unary("Exp", "The exponential function", "exp(X)")
      .in_place("X", "Y")
      .flops(flops_per_output(1))
      .precision(Precision::float32)
      .fused({{FusedCode::exp, 0}})
      .cpu_by_instructions()
      .derivative("X", [](Formula& f) {
        return f.op("Mul", {f.dy("Y"), f.y("Y")});
      });
}

// dX = dY (Y + 1).
REGISTER(expm1) {
  return unary("Expm1", "The exponential function less 1, exact for small numbers, too", "exp(X) - 1")
      .own()
      .in_place("X", "Y")
      .flops(flops_per_output(1))
      .fused({{FusedCode::expm1, 0}})
      .cpu_by_instructions()
      .derivative("X", [](Formula& f) {
        return f.op("Add", {f.op("Mul", {f.dy("Y"), f.y("Y")}), f.dy("Y")});
      });
}

REGISTER(floor) {
  return unary("Floor", "The largest integer that is not greater", "the integer at or below X")
      .cpu(forward<RoundedDown, float>, forward<RoundedDown, double>)
      .stop_gradient();
}

// Minus infinity of 0, NaN of what is negative.
REGISTER(log) {
  return unary("Log", "The natural logarithm", "ln(X)", "0.5..2")
      .in_place("X", "Y", {"X"})
      .flops(flops_per_output(1))
      .precision(Precision::float32)
      .fused({{FusedCode::log, 0}})
      .cpu_by_instructions()
      .derivative("X", [](Formula& f) {
        return f.op("Div", {f.dy("Y"), f.x("X")});
      });
}

// dX = dY / (1 + X), which is dY exp(-Y).
REGISTER(log1p) {
  return unary("Log1p", "The natural logarithm of 1 + X, exact for small numbers, too", "ln(1 + X)", "-0.5..2")
      .in_place("X", "Y")
      .flops(flops_per_output(1))
      .fused({{FusedCode::log1p, 0}})
      .cpu_by_instructions()
      .derivative("X", [](Formula& f) {
        return f.op("Mul", {f.dy("Y"), f.op("Exp", {f.op("Negative", {f.y("Y")})})});
      });
}

REGISTER(negative) {
  return unary("Negative", "The negative", "-X")
      .in_place("X", "Y")
      .fused({{FusedCode::negative, 0}})
      .cpu(forward<Negation, float>, forward<Negation, double>, forward<Negation, int32_t>, forward<Negation, int64_t>)
      .derivative("X", [](Formula& f) { return f.op("Negative", {f.dy("Y")}); });
}

// dX = -Y^2 dY.
REGISTER(reciprocal) {
  return unary("Reciprocal", "One divided by X", "1 / X", "0.5..2")
      .in_place("X", "Y")
      .flops(flops_per_output(1))
      .fused({{FusedCode::reciprocal, 0}})
      .cpu_by_instructions()
      .derivative("X", [](Formula& f) {
        return f.op("Negative", {f.op("Mul", {f.dy("Y"), f.op("Sqr", {f.y("Y")})})});
      });
}

REGISTER(round) {
  return unary("Round", "The nearest integer, of two the even one", "X, rounded")
      .own()
      .cpu(forward<RoundedToEven, float>, forward<RoundedToEven, double>)
      .stop_gradient();
}

// Infinite at 0, NaN of what is negative. dX = -1/2 Y^3 dY.
REGISTER(rsqrt) {
  return unary("Rsqrt", "One divided by the square root", "1 / sqrt(X)", "0.5..2")
      .in_place("X", "Y")
      .flops(flops_per_output(2))
      .fused({{FusedCode::sqrt, 0}, {FusedCode::reciprocal, 1}})
      .cpu_by_instructions()
      .derivative("X", [](Formula& f) {
        const Value cube = f.op("Mul", {f.y("Y"), f.op("Sqr", {f.y("Y")})});
        return scaled(f, f.op("Mul", {f.dy("Y"), cube}), -0.5F);
      });
}

// The derivative is 0 almost everywhere.
REGISTER(sign) {
  return unary("Sign", "The sign: 1, -1 or 0", "1 where X > 0, -1 where X < 0, else 0")
      .example({"X=int32,5:-2,-1,0,1,2"})
      .cpu(forward<SignOf, float>, forward<SignOf, double>, forward<SignOf, int32_t>, forward<SignOf, int64_t>)
      .stop_gradient();
}

REGISTER(sin) {
  return unary("Sin", "The sine", "sin(X)")
      .in_place("X", "Y", {"X"})
      .flops(flops_per_output(1))
      .fused({{FusedCode::sin, 0}})
      .cpu_by_instructions()
      .derivative("X", [](Formula& f) {
        return f.op("Mul", {f.dy("Y"), f.op("Cos", {f.x("X")})});
      });
}

REGISTER(sinh) {
  return unary("Sinh", "The hyperbolic sine", "(exp(X) - exp(-X)) / 2")
      .in_place("X", "Y", {"X"})
      .flops(flops_per_output(1))
      .cpu(forward<HyperbolicSine, float>, forward<HyperbolicSine, double>)
      .derivative("X", [](Formula& f) {
        return f.op("Mul", {f.dy("Y"), f.op("Cosh", {f.x("X")})});
      });
}

REGISTER(sqr) {
  return unary("Sqr", "The square", "X * X")
      .in_place("X", "Y", {"X"})
      .flops(flops_per_output(1))
      .fused({{FusedCode::mul, 0, 0}})
      .cpu_by_instructions()
      .derivative("X", [](Formula& f) {
        const Value half = f.op("Mul", {f.dy("Y"), f.x("X")});
        return f.op("Add", {half, half});
      });
}

// NaN of what is negative. dX = dY / (2 Y), which is infinite at 0.
REGISTER(sqrt) {
  return unary("Sqrt", "The square root", "sqrt(X)", "0.5..2")
      .in_place("X", "Y")
      .flops(flops_per_output(1))
      .fused({{FusedCode::sqrt, 0}})
      .cpu_by_instructions()
      .derivative("X", [](Formula& f) {
        return scaled(f, f.op("Div", {f.dy("Y"), f.y("Y")}), 0.5F);
      });
}

// dX = dY (1 + Y^2).
REGISTER(tan) {
  return unary("Tan", "The tangent", "tan(X)", "-1.2..1.2")
      .in_place("X", "Y")
      .flops(flops_per_output(1))
      .cpu(forward<Tangent, float>, forward<Tangent, double>)
      .derivative("X", [](Formula& f) {
        return f.op("Add", {f.op("Mul", {f.dy("Y"), f.op("Sqr", {f.y("Y")})}), f.dy("Y")});
      });
}

}  // namespace
}  // namespace stepnet::cpu_unary
