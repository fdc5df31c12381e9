// Softmax and LogSoftmax along one axis alone: what both are tried with. Threads: not for concurrent use.
#pragma once

#include <array>
#include <cmath>
#include <string>
#include <vector>

#include "tests/operators/op_test.h"

namespace stepnet::testing {

// By plain loops over lines of `size` elements, `inner` apart: fn of an element and of the sum of its line's
// exponentials.
template <class Fn>
Tensor naive_lines(const Tensor& x, int64_t size, int64_t inner, Fn fn) {
  Tensor y = Tensor::zeros(DType::float64, x.shape());
  for (int64_t line = 0; line < x.size() / size; ++line) {
    const auto at = [&](int64_t i) { return line / inner * inner * size + i * inner + line % inner; };
    double sum = 0;
    for (int64_t i = 0; i < size; ++i) sum += std::exp(x.data<double>()[at(i)]);
    for (int64_t i = 0; i < size; ++i) y.data<double>()[at(i)] = fn(x.data<double>()[at(i)], sum);
  }
  return y;
}

// The operator `type`, with its gradient's name and in place, against naive_lines and central differences.
template <class Fn>
void check_one_axis(const std::string& type, Fn fn) {
  const auto op = [&](int axis) {
    return make_op(type, {"X"}, {"Y"}, {make_arg("axis", axis), make_arg("single_axis", true)});
  };
  const Tensor x = normal<double>({2, 3, 4}, 1, 0, 2);
  for (const auto& [axis, size, inner] :
       std::vector<std::array<int, 3>>{{0, 2, 12}, {1, 3, 4}, {-2, 3, 4}, {2, 4, 1}}) {
    OperatorDef def = op(axis);
    const Tensor expected = naive_lines(x, size, inner, fn);
    EXPECT_EQ(compare(run_op_on(def, {{"X", x}})[0], expected, 1e-14), "") << axis;
    EXPECT_EQ(check_gradient(def, {{"X", x}}, {"X"}), "") << axis;
    const Feeds feeds = {{"Y", uniform<double>(x.shape(), 0.1, 1)}, {"dY", normal<double>(x.shape(), 2)}};
    const OperatorDef gradient = make_op(type + "Gradient", {"Y", "dY"}, {"dX"}, {def.arg().begin(), def.arg().end()});
    EXPECT_EQ(check_gradient(gradient, feeds, {"Y", "dY"}), "") << axis;
    def.set_output(0, "X");
    EXPECT_EQ(compare(run_op_on(def, {{"X", x.clone()}})[0], expected, 1e-14), "") << axis;
  }
  for (const Shape& shape : {Shape{0, 3, 2}, Shape{2, 0, 3}, Shape{2, 3, 0}, Shape{1, 1, 1}})
    EXPECT_EQ(check_gradient(op(1), {{"X", normal<double>(shape)}}, {"X"}), "") << shape.str();
}

}  // namespace stepnet::testing
