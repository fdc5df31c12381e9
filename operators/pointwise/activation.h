// What activations share: Y = f(X) element by element, with a derivative that follows from Y, or else from X.
//
// The operator of that derivative has the activation's name with "Gradient" behind it and the same arguments, and reads
// that one tensor and dY.
// Threads: pure functions.
#pragma once

#include <functional>
#include <string>

#include "core/compute/threads.h"
#include "stepnet/operator.h"

namespace stepnet {

// y[i] = fn(x[i]); `nanoseconds` is about what one element takes.
template <class T, class R, class Fn>
void each_element(In<T> x, Out<R> y, double nanoseconds, const Fn& fn) {
  auto range = [&, from = x.data(), to = y.data()](int64_t begin, int64_t end) {
#pragma omp simd
    for (int64_t i = begin; i < end; ++i) to[i] = fn(from[i]);
  };
  parallel_for(static_cast<int64_t>(x.size()), nanoseconds, std::ref(range));
}

// c[i] = fn(a[i], b[i])
template <class T, class Fn>
void each_element(In<T> a, In<T> b, Out<T> c, double nanoseconds, const Fn& fn) {
  auto range = [&, left = a.data(), right = b.data(), to = c.data()](int64_t begin, int64_t end) {
#pragma omp simd
    for (int64_t i = begin; i < end; ++i) to[i] = fn(left[i], right[i]);
  };
  parallel_for(static_cast<int64_t>(a.size()), nanoseconds, std::ref(range));
}

template <class Args>
std::vector<Argument> activation_args(const Formula& f) {
  if constexpr (std::is_same_v<Args, NoArgs>) {
    return {};
  } else {
    return f.forward_args();
  }
}

// `type` with all but its texts, arguments and kernels and what it is when fused; its examples are without arguments.
// `reads`: what its gradient reads, "Y"
// or "X".
template <class Args = NoArgs>
OpBuilder<Args> activation(const std::string& type, const std::string& reads = "Y") {
  OpBuilder<Args> b(type);
  std::vector<std::string> lost;
  if (reads == "X") lost = {"X"};
  b.input("X", "any shape")
      .in_place("X", "Y", lost)
      .elementwise()
      .example({"X=3,4,-2..2"})
      .example({"X=0"})
      .derivative("X", [gradient = type + "Gradient", reads](Formula& f) {
        return f.op(gradient, {reads == "X" ? f.x("X") : f.y("Y"), f.dy("Y")}, activation_args<Args>(f));
      });
  return b;
}

// The gradients of some activations are operators on two tensors in the public format, which read what these read.
template <class Args>
OpBuilder<Args>& accept_broadcast_args(OpBuilder<Args>& b) {
  for (const char* name : {"broadcast", "axis", "axis_str", "allow_broadcast_fastpath"})
    b.accepts(name, "both inputs have one shape");
  return b;
}

// The derivative by what it reads, of a gradient that is constant in it but for jumps.
inline Gradient zero_by_read(Formula&) { return Gradient::zero(); }

// The same of its gradient, and `of_read`, this gradient's derivative by what it reads.
template <class Args = NoArgs>
OpBuilder<Args> activation_gradient(const std::string& type, Gradient (*of_read)(Formula&),
                                    const std::string& reads = "Y") {
  const std::string gradient = type + "Gradient";
  OpBuilder<Args> b(gradient);
  b.doc("Gradient of " + type + ", from its " + (reads == "Y" ? "output." : "input."))
      .input(reads, type + (reads == "Y" ? "'s output" : "'s input"))
      .input("dY", "gradient of Y")
      .shape([reads](const Args&, ShapeCall& c) {
        if (c.known(0) && c.known(1))
          require(c.shape(0) == c.shape(1), "{} is {}, but dY {}", reads, c.shape(0), c.shape(1));
        c.set_like(0, c.known(0) ? 0 : 1);
      })
      .elementwise()
      .derivative(reads, of_read)
      .derivative("dY", [gradient, reads](Formula& f) {
        return f.op(gradient, {f.x(reads), f.dy("dX")}, activation_args<Args>(f));
      });
  return b;
}

}  // namespace stepnet
