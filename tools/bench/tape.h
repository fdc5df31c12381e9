// Matrices of float64 that remember how they were made, to differentiate what is made of them. Slow, short and plain:
// what contenders' results are checked against.
//
// Threads: one.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <span>
#include <vector>

namespace stepnet::bench {

struct Matrix {
  int64_t rows, columns;
  std::vector<double> value, gradient;
  std::function<void()> pull;  // adds to the gradients of what this one was made of

  double& at(int64_t r, int64_t c) { return value[static_cast<size_t>(r * columns + c)]; }
};

class Tape {
 public:
  using Var = Matrix*;  // stays where it is as long as the tape lives

  Var leaf(int64_t rows, int64_t columns, std::span<const float> values);
  // a w^T + b: a [m, k], w [n, k], b [1, n]
  Var affine(Var a, Var w, Var b);
  Var add(Var a, Var b);
  Var sub(Var a, Var b);
  Var mul(Var a, Var b);
  Var sigmoid(Var a);
  Var tanh(Var a);
  Var columns(Var a, int64_t begin, int64_t count);
  // Each row less its mean, divided by sqrt(variance + epsilon), times the row `gain`, plus the row `shift`.
  Var normalize(Var a, Var gain, Var shift, double epsilon);

  // From the gradients that were put into some matrices.
  void pull_all();

 private:
  Var make(int64_t rows, int64_t columns);
  // y = f(a) with the derivative slope(y).
  template <class Fn, class Slope>
  Var map(Var a, Fn fn, Slope slope);

  std::deque<Matrix> all_;
};

}  // namespace stepnet::bench
