// Arithmetic element by element: on two tensors, with broadcasting, Add, Sub, Mul, Div, FMod, TruncDiv and
// Pow; and Scale, by a constant; and AddGradient, SubGradient, MulGradient and DivGradient.
#include "operators/pointwise/arithmetic.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <type_traits>

#include "core/operator/flops.h"
#include "operators/pointwise/activation.h"
#include "operators/pointwise/elementwise_binary.h"
#include "stepnet/operator.h"

namespace stepnet::cpu_arithmetic {
namespace {

// Add: C = A + B, with broadcasting.
//
// dA = dC and dB = dC, summed over the dimensions in which the operand repeats. Nothing of the forward pass is read.

template <class T>
void add_forward(const BroadcastArgs& args, In<T> a, In<T> b, Out<T> c, Call& call) {
  elementwise_binary<std::plus<T>>(args, a, b, c, call);
}

REGISTER(add) {
  return binary_op("Add", "+", FusedCode::add)
      .doc("Sum of two tensors, element by element.")
      .in_place("A", "C")
      .in_place("B", "C")
      .sums_inputs()
      .flops(flops_per_output(1))
      .cpu(add_forward<float>, add_forward<double>, add_forward<int32_t>, add_forward<int64_t>)
      .derivative("A", [](Formula& f) { return gradient_of_a(f, f.dy("C")); })
      .derivative("B", [](Formula& f) { return gradient_of_b(f, f.dy("C")); });
}

// Sub: C = A - B, with broadcasting.
//
// dA = dC and dB = -dC, summed over the dimensions in which the operand repeats. Nothing of the forward pass is read.

template <class T>
void sub_forward(const BroadcastArgs& args, In<T> a, In<T> b, Out<T> c, Call& call) {
  elementwise_binary<std::minus<T>>(args, a, b, c, call);
}

REGISTER(sub) {
  return binary_op("Sub", "-", FusedCode::sub)
      .doc("Difference of two tensors, element by element.")
      .in_place("A", "C")
      .in_place("B", "C")
      .flops(flops_per_output(1))
      .cpu(sub_forward<float>, sub_forward<double>, sub_forward<int32_t>, sub_forward<int64_t>)
      .derivative("A", [](Formula& f) { return gradient_of_a(f, f.dy("C")); })
      .derivative("B", [](Formula& f) { return gradient_of_b(f, f.op("Negative", {f.dy("C")})); });
}

// Mul: C = A * B, element by element, with broadcasting.
//
// dA = dC * B and dB = dC * A, summed over the dimensions in which the operand repeats. Of A the derivative reads B,
// and of B it reads A, each only if it is wanted.

template <class T>
void mul_forward(const BroadcastArgs& args, In<T> a, In<T> b, Out<T> c, Call& call) {
  elementwise_binary<std::multiplies<T>>(args, a, b, c, call);
}

Gradient mul_derivative_a(Formula& f) { return gradient_of_a(f, f.op("Mul", {f.dy("C"), f.x("B")}, f.forward_args())); }

// With an axis A has the shape of dC.
Gradient mul_derivative_b(Formula& f) {
  const auto& args = f.args<BroadcastArgs>();
  const bool alike = args.broadcast && args.aligned();
  return gradient_of_b(f, f.op("Mul", {f.dy("C"), f.x("A")}, alike ? std::vector<Argument>{} : f.forward_args()));
}

REGISTER(mul) {
  return binary_op("Mul", "*", FusedCode::mul)
      .doc("Product of two tensors, element by element. A's gradient reads B, and B's reads A.")
      .in_place("A", "C", {"B"})
      .in_place("B", "C", {"A"})
      .flops(flops_per_output(1))
      .cpu(mul_forward<float>, mul_forward<double>, mul_forward<int32_t>, mul_forward<int64_t>)
      .derivative("A", mul_derivative_a)
      .derivative("B", mul_derivative_b);
}

// Div: C = A / B, element by element, with broadcasting. Integers are truncated; they cannot be divided by
// 0.
//
// dA = dC / B and dB = -dC C / B, each summed over the dimensions in which the operand repeats. Of A the derivative
// reads B, of B it reads B and C.

// c = Op()(a, b) over broadcast operands, where Op is a division of some kind.
template <class Op, class T>
void divide(const BroadcastArgs& args, In<T> a, In<T> b, Out<T> c, Call& call) {
  if constexpr (std::is_integral_v<T>)
    require(c.empty() || std::find(b.begin(), b.end(), T(0)) == b.end(),
            "B has a 0, by which integers cannot be divided");
  elementwise_binary<Op>(args, a, b, c, call);
}

template <class T>
void div_forward(const BroadcastArgs& args, In<T> a, In<T> b, Out<T> c, Call& call) {
  divide<Quotient<T>>(args, a, b, c, call);
}

Gradient div_derivative_a(Formula& f) { return gradient_of_a(f, f.op("Div", {f.dy("C"), f.x("B")}, f.forward_args())); }

// B is the same in all places that are added up, so the sum is divided.
Gradient div_derivative_b(Formula& f) {
  const Gradient sum = gradient_of_b(f, f.op("Mul", {f.dy("C"), f.y("C")}));
  return f.op("Negative", {f.op("Div", {sum.dense, f.x("B")})});
}

REGISTER(div) {
  return binary_op("Div", "/", FusedCode::div)
      .doc(
          "Quotient of two tensors, element by element. Integers are truncated, and cannot be divided by 0. A's "
          "gradient reads B, and B's reads B and C.")
      .in_place("A", "C")
      .in_place("B", "C", {"A", "B"})
      .flops(flops_per_output(1))
      .cpu(div_forward<float>, div_forward<double>, div_forward<int32_t>, div_forward<int64_t>)
      .derivative("A", div_derivative_a)
      .derivative("B", div_derivative_b);
}

// FMod: C = A - t B, element by element, with broadcasting, where t = TruncDiv(A, B) is the quotient without
// its fraction: the remainder, with A's sign. Integers cannot be divided by 0.
//
// dA = dC, which reads nothing; dB = -dC t, which reads A and B. Each is summed over the dimensions in which the
// operand repeats. t is constant almost everywhere: gradients end at TruncDiv.

template <class T>
void fmod_forward(const BroadcastArgs& args, In<T> a, In<T> b, Out<T> c, Call& call) {
  divide<Remainder<T>>(args, a, b, c, call);
}

template <class T>
void whole_quotient(const BroadcastArgs& args, In<T> a, In<T> b, Out<T> c, Call& call) {
  elementwise_binary<WholeQuotient<T>>(args, a, b, c, call);
}

Gradient fmod_derivative_b(Formula& f) {
  const Value whole = f.op("TruncDiv", {f.x("A"), f.x("B")}, f.forward_args());
  return gradient_of_b(f, f.op("Negative", {f.op("Mul", {f.dy("C"), whole})}));
}

REGISTER(fmod) {
  return binary_op("FMod", "mod")
      .own()
      .doc(
          "The remainder of a division, with A's sign, element by element; NaN where B is 0. A's gradient reads "
          "nothing of the forward pass, and B's reads A and B.")
      .in_place("A", "C", {"B"})
      .in_place("B", "C", {"B"})
      .flops(flops_per_output(1))
      .cpu(fmod_forward<float>, fmod_forward<double>, fmod_forward<int32_t>, fmod_forward<int64_t>)
      .derivative("A", [](Formula& f) { return gradient_of_a(f, f.dy("C")); })
      .derivative("B", fmod_derivative_b);
}

REGISTER(trunc_div) {
  return binary_op("TruncDiv", "/")
      .own()
      .doc("The quotient without its fraction, element by element; NaN where B is 0. Gradients end here.")
      .flops(flops_per_output(1))
      .cpu(whole_quotient<float>, whole_quotient<double>)
      .stop_gradient();
}

// Scale: Y = scale X, element by element. dX = scale dY; nothing is read.

REGISTER(scale) {
  return op<ScaleArgs>("Scale")
      .doc("Multiplies every element by a constant.")
      .arg("scale", &ScaleArgs::scale, 1.0F, "the constant")
      .input("X", "any shape")
      .output("Y", "scale * X", like("X"))
      .in_place("X", "Y")
      .elementwise()
      .fused([](const ScaleArgs& a, int) {
        return FusedBody{{FusedCode::scale, 0, 0, a.scale}};
      })
      .example({"X=3,4"}, {"scale=-0.7"})
      .example({"X=0,3"})
      .flops(flops_per_output(1))
      .cpu_by_instructions()
      .derivative("X", [](Formula& f) { return f.op("Scale", {f.dy("Y")}, f.forward_args()); });
}

// Pow: Y = X^e, element by element. The exponent e is the argument "exponent", or the second input, which goes with X
// as B goes with A in Mul.
//
// dX = dY e X^(e - 1) and de = dY Y ln(X), each summed over the dimensions in which the operand repeats. Of X the
// derivative reads X and e; of e it reads X and Y, and is NaN where X is not positive.

template <class T>
void pow_forward(const PowArgs& a, In<T> x, In<T> exponent, Out<T> y, Call& call) {
  if (!a.exponent) return elementwise_binary<Power<T>>(a, x, exponent, y, call);
  const T e = static_cast<T>(*a.exponent);
  if (e == T(1)) return each_element(x, y, 0.3, [](T v) { return v; });
  if (e == T(2)) return each_element(x, y, 0.3, [](T v) { return v * v; });
  each_element(x, y, 10, [=](T v) { return std::pow(v, e); });
}

FusedBody pow_body(const PowArgs& a, int) {
  if (a.exponent == 1.0F) return {{FusedCode::copy, 0}};
  if (a.exponent == 2.0F) return {{FusedCode::mul, 0, 0}};
  return {};
}

void pow_infer(const PowArgs& a, ShapeCall& c) {
  require(c.has(1) || a.exponent, "there is no exponent: give the argument \"exponent\" or a second input");
  require(!c.has(1) || !a.exponent, "the exponent is given both as an argument and as the second input; give one");
  if (c.has(1)) {
    infer_broadcast(a, c);
  } else {
    c.set_like(0, 0);
  }
}

int pow_rows(const PowArgs& a, const ShapeCall& c) { return c.has(1) ? broadcast_rows(a, c) : Shape::kMaxRank; }

Gradient derivative_of_constant(Formula& f, float e) {
  if (e == 0) return f.op("ZerosLike", {f.dy("Y")});
  if (e == 1) return f.dy("Y");
  const Value slope = f.op("Pow", {f.x("X")}, {make_arg("exponent", e - 1)});
  return f.op("Scale", {f.op("Mul", {f.dy("Y"), slope})}, {make_arg("scale", e)});
}

Gradient pow_derivative_x(Formula& f) {
  if (const auto& e = f.args<PowArgs>().exponent) return derivative_of_constant(f, *e);
  const Value exponent = f.x("exponent");
  const Value one = f.op("ConstantFill", {exponent}, {make_arg("value", 1.0F)});
  const Value pow_power = f.op("Pow", {f.x("X"), f.op("Sub", {exponent, one})}, f.forward_args());
  const Value scaled = f.op("Mul", {f.dy("Y"), exponent}, f.forward_args());
  return gradient_of_a<PowArgs>(f, f.op("Mul", {scaled, pow_power}));
}

// With an axis X has the shape of dY.
Gradient pow_derivative_exponent(Formula& f) {
  const auto& args = f.args<PowArgs>();
  const bool alike = args.broadcast && args.aligned();
  const Value product = f.op("Mul", {f.dy("Y"), f.y("Y")});
  const Value repeated =
      f.op("Mul", {product, f.op("Log", {f.x("X")})}, alike ? std::vector<Argument>{} : f.forward_args());
  return gradient_of_b<PowArgs>(f, repeated);
}

REGISTER(pow) {
  auto builder = op<PowArgs>("Pow");
  builder.doc("X to the power of the exponent, element by element.");
  return add_broadcast_args(builder)
      .arg("exponent", &PowArgs::exponent, {}, "the exponent, unless it is an input")
      .input("X", "any shape")
      .input("exponent", "a shape that goes with X's")
      .optional()
      .output("Y", "X^exponent")
      .in_place("X", "Y", {"X", "exponent"})
      .in_place("exponent", "Y", {"X"})
      .shape(pow_infer)
      .rowwise(pow_rows)
      .example({"X=3,4,0.5..2"}, {"exponent=2.5"})
      .example({"X=3,4,0.5..2"}, {"exponent=0"})
      .example({"X=3,4,0.5..2"}, {"exponent=1"})
      .example({"X=3,4,0.5..2"}, {"exponent=2"})
      .example({"X=2,3,0.5..2", "exponent=2,3"})
      .example({"X=2,1,0.5..2", "exponent=1,3"})
      .example({"X=2,3,0.5..2", "exponent=3"}, {"broadcast=1"})
      .example({"X=2,1,3,0.5..2", "exponent=2,1"}, {"broadcast=1"})
      .example({"X=2,3,2,0.5..2", "exponent=3"}, {"broadcast=1", "axis=1"})
      .flops(flops_per_output(1))
      .precision(Precision::float32)
      .fused(pow_body)
      .cpu(pow_forward<float>, pow_forward<double>)
      .derivative("X", pow_derivative_x)
      .derivative("exponent", pow_derivative_exponent);
}

// AddGradient, SubGradient, MulGradient and DivGradient: dA and dB of C = A op B, as nets of the public format have
// them written out. The gradient pass writes the formulas above instead.
//
// Each is summed over the dimensions in which the operand repeats:
//   Add: dA = dC, dB = dC.  Sub: dA = dC, dB = -dC.  Mul: dA = dC B, dB = dC A.  Div: dA = dC / B, dB = -dC C / B.
// Only what a wanted output names is read; A, where it is not, for its shape.

// The shapes of the operands, which dC's must follow from.
Broadcast shapes_of(const BroadcastArgs& args, const Shape& dc, const Shape& a, const Shape& b) {
  const Broadcast shapes = broadcast_shapes(args, a, b);
  require(shapes.out == dc, "dC is {}, but of A {} and B {} the result is {}", dc, a, b, shapes.out);
  return shapes;
}

template <class T>
using Wide = std::conditional_t<std::is_floating_point_v<T>, double, T>;

// d = the sum of term(place) over all places where an element of d stands; `first`: d is A's gradient.
template <class T, class Term>
void sum_terms(const Broadcast& shapes, const ArithmeticPlace<T>& from, bool first, Out<T> d, Term term) {
  if ((first ? shapes.a : shapes.b) != shapes.out) std::ranges::fill(d, T(0));
  BroadcastRuns(shapes).each([&](const BroadcastRun& run) {
    const int64_t a = run.a_moves ? 1 : 0, b = run.b_moves ? 1 : 0;
    const auto place = [&](int64_t i) {
      ArithmeticPlace<T> p = from;
      p.at = run.out + i;
      p.at_a = run.a + a * i;
      p.at_b = run.b + b * i;
      return p;
    };
    T* to = d.data() + (first ? run.a : run.b);
    if ((first ? shapes.a : shapes.b) == shapes.out) {
      for (int64_t i = 0; i < run.size; ++i) to[i] = term(place(i));
    } else if ((first ? a : b) == 1) {
      for (int64_t i = 0; i < run.size; ++i) to[i] += term(place(i));
    } else {
      Wide<T> sum = 0;
      for (int64_t i = 0; i < run.size; ++i) sum += static_cast<Wide<T>>(term(place(i)));
      *to += static_cast<T>(sum);
    }
  });
}

template <class T, class Term>
void write_terms(const ArithmeticPlace<T>& from, Out<T> d, Term term) {
  auto range = [&](int64_t begin, int64_t end) {
    ArithmeticPlace<T> p = from;
    for (int64_t i = begin; i < end; ++i) {
      p.at = p.at_a = p.at_b = i;
      d[i] = term(p);
    }
  };
  parallel_for(static_cast<int64_t>(d.size()), kBinaryCost, std::ref(range));
}

// The output that is written over an input comes last.
template <class Terms, class T>
void gradients(const BroadcastArgs& args, Out<T> da, Out<T> db, Call& call) {
  const ArithmeticInputs in = arithmetic_inputs(std::is_same_v<Terms, DivTerms>, call.inputs());
  const Broadcast shapes = shapes_of(args, call.in(in.dc).shape(), call.in(in.a).shape(), call.in(in.b).shape());
  const ArithmeticPlace<T> from{call.in_span<T>(in.dc).data(), call.in_span<T>(in.a).data(),
                                call.in_span<T>(in.b).data(), call.in_span<T>(in.c).data()};
  const auto write_a = [&] {
    const auto term = [](const ArithmeticPlace<T>& p) { return Terms::a(p); };
    if (call.wants(0)) shapes.plain() ? write_terms(from, da, term) : sum_terms(shapes, from, true, da, term);
  };
  const auto write_b = [&] {
    const auto term = [](const ArithmeticPlace<T>& p) { return Terms::b(p); };
    if (call.wants(1)) shapes.plain() ? write_terms(from, db, term) : sum_terms(shapes, from, false, db, term);
  };
  const bool b_last = db.data() == from.dc;
  b_last ? write_a() : write_b();
  b_last ? write_b() : write_a();
}

template <bool divides>
void infer_gradients(const BroadcastArgs& args, ShapeCall& c) {
  const ArithmeticInputs in = arithmetic_inputs(divides, c.inputs());
  if (divides) {
    require(c.has(in.c), "C, input {}, is missing", in.c);
    if (c.known(in.c) && c.known(in.dc))
      require(c.shape(in.c) == c.shape(in.dc), "C is {}, but dC {}", c.shape(in.c), c.shape(in.dc));
  }
  if (c.known(in.dc) && c.known(in.a) && c.known(in.b)) shapes_of(args, c.shape(in.dc), c.shape(in.a), c.shape(in.b));
  c.set_like(0, in.a);
  c.set_like(1, in.b);
}

// The sum of `repeated` to the shape of an operand.
Value summed(Formula& f, Value repeated, Value operand, bool first) {
  const auto& args = f.args<BroadcastArgs>();
  if (!args.broadcast) return f.op("MatchShape", {repeated, operand});
  return first && args.aligned() ? repeated : f.op("SumReduceLike", {repeated, operand}, f.forward_args());
}

// The gradients by small operators.
std::vector<Value> gradient_body(Formula& f, const std::string& type) {
  const ArithmeticInputs in = arithmetic_inputs(type == "Div", f.inputs());
  const Value dc = f.x_at(in.dc), a = f.x_at(in.a), b = f.x_at(in.b);
  const auto& args = f.args<BroadcastArgs>();
  const auto laid_over = f.forward_args();
  if (type == "Add" || type == "Sub") {
    const Value db = type == "Add" ? dc : f.op("Negative", {dc});
    return {summed(f, dc, a, true), summed(f, db, b, false)};
  }
  const Value da = f.same_shape(f.op(type, {dc, b}, laid_over), dc);
  if (type == "Mul") {
    // With an axis A has the shape of dC.
    const bool alike = args.broadcast && args.aligned();
    const Value db = f.same_shape(f.op("Mul", {dc, a}, alike ? std::vector<Argument>{} : laid_over), dc);
    return {summed(f, da, a, true), summed(f, db, b, false)};
  }
  // B is the same in all places that are added up, so the sum is divided.
  const Value sum = summed(f, f.same_shape(f.op("Mul", {dc, f.x_at(in.c)}), dc), b, false);
  return {summed(f, da, a, true), f.op("Negative", {f.op("Div", {sum, b})})};
}

// The gradients of `type`, but for what the outputs read and may be written over. `of_a` and `of_b`: FLOPs of a term.
OpBuilder<BroadcastArgs> gradient_op(const std::string& type, double of_a, double of_b) {
  OpBuilder<BroadcastArgs> b(type + "Gradient");
  add_broadcast_args(b)
      .doc("Gradients of " + type + "'s A and B, with the arguments that it has.")
      .flops([divides = type == "Div", of_a, of_b](const BroadcastArgs&, const ShapeCall& c) {
        const double terms = input_size(c, arithmetic_inputs(divides, c.inputs()).dc);
        const auto of = [&](int o, double term) {
          return c.wants(o) ? terms * (term + (output_size(c, o) == terms ? 0 : 1)) : 0;
        };
        return of(0, of_a) + of(1, of_b);
      })
      .composed([type](Formula& f) { return gradient_body(f, type); });
  return b;
}

OpBuilder<BroadcastArgs>& add_gradient_examples(OpBuilder<BroadcastArgs>& b, bool divides) {
  const auto add = [&](const char* dc, const char* a, const char* other, std::vector<std::string> args) {
    std::vector<std::string> inputs = {std::string("dC=") + dc, std::string("A=") + a,
                                       fmt::format("B={},0.5..2", other)};
    if (divides) inputs.push_back(std::string("C=") + dc);
    b.example(std::move(inputs), std::move(args));
  };
  add("2,3", "2,3", "2,3", {});
  add("2,3", "3", "2,1", {});
  add("2,3,2", "2,1,2", "3,1", {});
  add("0,3", "1,3", "0,1", {});
  add("2,3,2", "2,3,2", "2", {"broadcast=1"});
  add("2,3,2", "2,3,2", "3", {"broadcast=1", "axis=1"});
  add("2,3", "2,3", "1", {"broadcast=1"});
  return b;
}

// Of Add and Sub, which read the operands' shapes alone.
template <class Terms>
Registration gradient_of_sum(const std::string& type) {
  auto b = gradient_op(type, 0, 0);
  b.input("dC", "gradient of C")
      .input("A", "the operand, for its shape")
      .shape_only()
      .input("B", "the operand, for its shape")
      .shape_only()
      .output("dA", "like A")
      .optional()
      .output("dB", "like B")
      .optional()
      .in_place("dC", "dA")
      .in_place("dC", "dB")
      .shape(infer_gradients<false>)
      .cpu(gradients<Terms, float>, gradients<Terms, double>, gradients<Terms, int32_t>, gradients<Terms, int64_t>);
  return add_gradient_examples(b, false);
}

REGISTER(add_gradient) { return gradient_of_sum<AddTerms>("Add"); }
REGISTER(sub_gradient) { return gradient_of_sum<SubTerms>("Sub"); }

REGISTER(mul_gradient) {
  auto b = gradient_op("Mul", 1, 1);
  b.input("dC", "gradient of C")
      .input("A", "the operand")
      .input("B", "the operand")
      .output("dA", "like A")
      .optional()
      .uses({"dC", "B"})
      .output("dB", "like B")
      .optional()
      .uses({"dC", "A"})
      .in_place("dC", "dA")
      .in_place("dC", "dB")
      .shape(infer_gradients<false>)
      .cpu(gradients<MulTerms, float>, gradients<MulTerms, double>, gradients<MulTerms, int32_t>,
           gradients<MulTerms, int64_t>);
  return add_gradient_examples(b, false);
}

// By name the inputs are those of the newer form; dA reads the same two places in both.
REGISTER(div_gradient) {
  auto b = gradient_op("Div", 1, 2);
  b.doc(
       "Gradients of Div's A and B, with the arguments that it has. Of three inputs, as in 2018, these are B, C and "
       "dC.")
      .input("dC", "gradient of C; B if there are three inputs")
      .input("A", "the operand, for its shape; C if there are three")
      .input("B", "the operand; dC if there are three")
      .input("C", "the quotient")
      .optional()
      .output("dA", "like A")
      .optional()
      .uses({"dC", "B"})
      .output("dB", "like B")
      .optional()
      .uses({"dC", "A", "B", "C"})
      .in_place("dC", "dA")
      .shape(infer_gradients<true>)
      .cpu(gradients<DivTerms, float>, gradients<DivTerms, double>);
  return add_gradient_examples(b, true).example({"dC=2,3,0.5..2", "A=2,3", "B=2,3"});
}

}  // namespace
}  // namespace stepnet::cpu_arithmetic
