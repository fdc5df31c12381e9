// AddCMul and AddCDiv: C = T + value times A op B, element by element, for tensors of one shape.
#include "operators/pointwise/add_c.h"

#include <functional>
#include <string>

#include "core/compute/threads.h"
#include "core/operator/flops.h"
#include "stepnet/operator.h"

namespace stepnet::cpu_add_c {
namespace {

void infer_added(const AddCArgs&, ShapeCall& c) {
  static constexpr const char* kNames[] = {"T", "A", "B"};
  int first = -1;
  for (int i = 0; i < 3; ++i) {
    if (!c.known(i)) continue;
    if (first < 0) first = i;
    require(c.shape(i) == c.shape(first), "{} is {}, but {} {}; they must have one shape", kNames[first],
            c.shape(first), kNames[i], c.shape(i));
  }
  if (first >= 0) c.set_like(0, first);
}

// Each element is read before it is written, so that C may be any of the inputs.
template <class T, class Fn>
void add_combined(const AddCArgs& args, In<T> t, In<T> a, In<T> b, Out<T> c, const Fn& fn) {
  auto range = [&, value = static_cast<T>(args.value)](int64_t begin, int64_t end) {
#pragma omp simd
    for (int64_t i = begin; i < end; ++i) c[i] = t[i] + value * fn(a[i], b[i]);
  };
  parallel_for(static_cast<int64_t>(c.size()), 0.5, std::ref(range));
}

// `type`, with `sign` between A and B, with all but its doc, kernels, in what else it may be computed in place and the
// derivatives of A and B. The gradient of T is that of C itself.
OpBuilder<AddCArgs> add_c_op(const std::string& type, const std::string& sign) {
  OpBuilder<AddCArgs> b(type);
  b.own()
      .arg("value", &AddCArgs::value, 1.0F, "the factor of what is added")
      .input("T", "any shape")
      .input("A", "like T")
      .input("B", "like T")
      .output("C", "T + value A" + sign + " B")
      .in_place("T", "C")
      .shape(infer_added)
      .elementwise()
      .example({"T=2,3", "A=2,3", "B=2,3,0.5..2"})
      .example({"T=1,3", "A=1,3", "B=1,3,0.5..2"}, {"value=-0.3"})
      .derivative("T", [](Formula& f) { return f.dy("C"); });
  return b;
}

Value times_value(Formula& f, Value v, float sign = 1) {
  const float factor = sign * f.args<AddCArgs>().value;
  return factor == 1 ? v : f.op("Scale", {v}, {make_arg("scale", factor)});
}

// AddCMul: C = T + value A B, element by element.
//
// dT = dC, with no operator; dA = value dC B, which reads B; dB = value dC A, which reads A.

template <class T>
void add_product(const AddCArgs& args, In<T> t, In<T> a, In<T> b, Out<T> c) {
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
      .cpu(add_product<float>, add_product<double>)
      .derivative("A",
                  [](Formula& f) {
                    return times_value(f, f.op("Mul", {f.dy("C"), f.x("B")}));
                  })
      .derivative("B", [](Formula& f) {
        return times_value(f, f.op("Mul", {f.dy("C"), f.x("A")}));
      });
}

// AddCDiv: C = T + value A / B, element by element.
//
// dT = dC, with no operator; dA = value dC / B, which reads B; dB = -value dC A / B^2, which reads A and B.

template <class T>
void add_quotient(const AddCArgs& args, In<T> t, In<T> a, In<T> b, Out<T> c) {
  add_combined(args, t, a, b, c, std::divides<T>());
}

Gradient cdiv_derivative_b(Formula& f) {
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
      .cpu(add_quotient<float>, add_quotient<double>)
      .derivative("A",
                  [](Formula& f) {
                    return times_value(f, f.op("Div", {f.dy("C"), f.x("B")}));
                  })
      .derivative("B", cdiv_derivative_b);
}

}  // namespace
}  // namespace stepnet::cpu_add_c
