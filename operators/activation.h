// What Relu, Sigmoid and Tanh share: Y = f(X) element by element, with a derivative that follows from Y.
//
// The operator of that derivative has the activation's name with "Gradient" behind it, and reads Y and dY.
// Threads: pure functions.
#pragma once

#include <functional>
#include <string>

#include "core/operator.h"
#include "core/parallel.h"

namespace stepnet {

// Y = fn(X), which works on any piece of X; threads share them out.
template <class T, class Fn>
void apply_activation(In<T> x, Out<T> y, const Fn& fn) {
  auto range = [&](int64_t begin, int64_t end) { fn(x.subspan(begin, end - begin), y.subspan(begin, end - begin)); };
  parallel_for(static_cast<int64_t>(x.size()), 1.0, std::ref(range));
}

inline void infer_activation_gradient(const NoArgs&, ShapeCall& c) {
  if (c.known(0) && c.known(1)) require(c.shape(0) == c.shape(1), "Y is {}, but dY {}", c.shape(0), c.shape(1));
  c.set_like(0, c.known(0) ? 0 : 1);
}

// `type` with all but its texts, its kernels and what it is when fused.
inline OpBuilder<> activation(const std::string& type) {
  OpBuilder<> b(type);
  b.input("X", "any shape")
      .in_place("X", "Y")
      .elementwise()
      .derivative("X", [gradient = type + "Gradient"](Formula& f) {
        return f.op(gradient, {f.y("Y"), f.dy("Y")});
      });
  return b;
}

// The same of its gradient, and `of_y`, this gradient's derivative by Y.
inline OpBuilder<> activation_gradient(const std::string& type, Gradient (*of_y)(Formula&)) {
  const std::string gradient = type + "Gradient";
  OpBuilder<> b(gradient);
  b.doc("Gradient of " + type + ", from its output.")
      .input("Y", type + "'s output")
      .input("dY", "its gradient")
      .shape(infer_activation_gradient)
      .elementwise()
      .derivative("Y", of_y)
      .derivative("dY", [gradient](Formula& f) {
        return f.op(gradient, {f.x("Y"), f.dy("dX")});
      });
  return b;
}

}  // namespace stepnet
