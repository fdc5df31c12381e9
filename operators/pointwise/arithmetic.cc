// Arithmetic on two tensors, element by element, with broadcasting on request: Add, Sub, Mul, Div, FMod and TruncDiv.
#include "operators/pointwise/arithmetic.h"

#include <algorithm>
#include <type_traits>

#include "core/operator/flops.h"
#include "operators/pointwise/elementwise_binary.h"

namespace stepnet {
namespace {

// Add: C = A + B, with broadcasting on request.
//
// dA = dC and dB = dC, summed over the dimensions in which the operand repeats. Nothing of the forward pass is read,
// and without broadcasting no operator is needed.

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

// Sub: C = A - B, with broadcasting on request.
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

// Mul: C = A * B, element by element, with broadcasting on request.
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

// Div: C = A / B, element by element, with broadcasting on request. Integers are truncated; they cannot be divided by
// 0.
//
// dA = dC / B and dB = -dC C / B, each summed over the dimensions in which the operand repeats. Of A the derivative
// reads B, of B it reads B and C.

template <class T>
void div_forward(const BroadcastArgs& args, In<T> a, In<T> b, Out<T> c, Call& call) {
  if constexpr (std::is_integral_v<T>)
    require(c.empty() || std::find(b.begin(), b.end(), T(0)) == b.end(),
            "B has a 0, by which integers cannot be divided");
  elementwise_binary<Quotient<T>>(args, a, b, c, call);
}

Gradient div_derivative_a(Formula& f) { return gradient_of_a(f, f.op("Div", {f.dy("C"), f.x("B")}, f.forward_args())); }

// B is the same in all places that are added up, so the sum is divided.
Gradient div_derivative_b(Formula& f) {
  const Gradient sum = gradient_of_b(f, f.op("Mul", {f.dy("C"), f.y("C")}));
  return f.op("Negative", {f.op("Div", {sum.dense, f.x("B")})});
}

REGISTER(div) {
  return binary_op("Div", "/")
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

// FMod: C = A - t B, element by element, with broadcasting on request, where t = TruncDiv(A, B) is the quotient without
// its fraction: the remainder, with A's sign. Integers cannot be divided by 0.
//
// dA = dC, which reads nothing; dB = -dC t, which reads A and B. Each is summed over the dimensions in which the
// operand repeats. t is constant almost everywhere: gradients end at TruncDiv.

template <class T>
void fmod_forward(const BroadcastArgs& args, In<T> a, In<T> b, Out<T> c, Call& call) {
  if constexpr (std::is_integral_v<T>)
    require(c.empty() || std::find(b.begin(), b.end(), T(0)) == b.end(),
            "B has a 0, by which integers cannot be divided");
  elementwise_binary<Remainder<T>>(args, a, b, c, call);
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
      .doc("The quotient without its fraction, element by element; NaN where B is 0. Gradients end here.")
      .flops(flops_per_output(1))
      .cpu(whole_quotient<float>, whole_quotient<double>)
      .stop_gradient();
}

}  // namespace
}  // namespace stepnet
