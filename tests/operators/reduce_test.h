// What tests of the reductions share: a reduction that walks over all elements, and shapes and axes to try.
#pragma once

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "tests/operators/op_test.h"

namespace stepnet::testing {

struct NaiveReduction {
  double start = 0;
  std::function<double(double, double)> join;
  std::function<double(double, double)> finish = [](double value, double) { return value; };  // of so many elements
};

using Axes = std::vector<int64_t>;

inline OperatorDef reduction(const std::string& type, const Axes& axes, bool keepdims) {
  OperatorDef def = make_op(type, {"X"}, {"Y"}, {make_arg("keepdims", keepdims)});
  if (!axes.empty()) *def.add_arg() = make_arg("axes", axes);
  return def;
}

inline Tensor naive_reduce(const NaiveReduction& naive, const Tensor& x, const Axes& axes, bool keepdims) {
  const int rank = x.rank();
  std::vector<bool> reduced(rank, axes.empty());
  for (const int64_t a : axes) reduced[a < 0 ? a + rank : a] = true;
  Shape shape;
  for (int d = 0; d < rank; ++d)
    if (!reduced[d] || keepdims) shape.push_back(reduced[d] ? 1 : x.dim(d));
  Tensor y = Tensor::zeros(DType::float64, shape);
  std::ranges::fill(y.span<double>(), naive.start);
  std::vector<double> counts(y.size(), 0);
  const Tensor values = to_double(x);
  for (int64_t i = 0; i < x.size(); ++i) {
    int64_t at = 0, step = 1;
    for (int64_t d = rank - 1, rest = i; d >= 0; rest /= x.dim(d), --d) {
      if (reduced[d]) continue;
      at += rest % x.dim(d) * step;
      step *= x.dim(d);
    }
    double& to = y.data<double>()[at];
    to = naive.join(to, values.data<double>()[i]);
    ++counts[at];
  }
  for (int64_t j = 0; j < y.size(); ++j) y.data<double>()[j] = naive.finish(y.data<double>()[j], counts[j]);
  return y;
}

// "" or the first reduction that is wrong.
inline std::string check_reduction(const std::string& type, const NaiveReduction& naive) {
  auto wrong = [&](const Tensor& x, const Axes& axes, double tol) {
    for (const bool keepdims : {false, true}) {
      const Tensor y = run_op_on(reduction(type, axes, keepdims), {{"X", x}})[0];
      if (y.dtype() != x.dtype()) return "the result is " + y.str();
      const std::string text = compare(y, naive_reduce(naive, x, axes, keepdims), tol);
      if (!text.empty()) return fmt::format("{} over [{}]: {}", x.str(), fmt::join(axes, ", "), text);
    }
    return std::string();
  };
  std::string text;
  for (const Axes& axes : {Axes{}, Axes{0}, Axes{-1}, Axes{1}, Axes{1, 2}, Axes{2, 0}, Axes{1, -1}, Axes{0, 1, 2, 3}})
    if (text.empty()) text = wrong(normal<double>({2, 3, 4, 9}), axes, 1e-13);
  for (const Axes& axes : {Axes{0}, Axes{1}, Axes{2}, Axes{0, 2}})
    if (text.empty()) text = wrong(normal<float>({40, 30, 25}), axes, 1e-5);
  for (const Shape& shape : {Shape{}, Shape{1}, Shape{1, 1}, Shape{3, 0, 0}})
    if (text.empty()) text = wrong(normal<double>(shape), shape.rank() == 3 ? Axes{0} : Axes{}, 1e-13);
  return text;
}

inline std::string check_reduction_gradients(const std::string& type) {
  for (const Shape& shape : {Shape{2, 3, 4}, Shape{1, 1, 1}, Shape{0, 3, 2}})
    for (const Axes& axes : {Axes{1}, Axes{-1}, Axes{1, 2}})
      for (const bool keepdims : {false, true}) {
        const std::string text = check_gradient(reduction(type, axes, keepdims), {{"X", normal<double>(shape)}}, {"X"});
        if (!text.empty()) return fmt::format("{} over [{}]: {}", shape.str(), fmt::join(axes, ", "), text);
      }
  return check_gradient(make_op(type, {"X"}, {"Y"}), {{"X", normal<double>({3, 4})}}, {"X"}) +
         check_gradient(make_op(type, {"X"}, {"Y"}), {{"X", normal<double>({})}}, {"X"});
}

// Y as it is computed from X, for gradient operators that are run alone.
inline Feeds gradient_feeds(const std::string& type, const Tensor& x, const Tensor& dy) {
  return {{"dY", dy}, {"X", x}, {"Y", run_op_on(make_op(type, {"X"}, {"Y"}), {{"X", x}})[0]}};
}

// Of the gradient operator, with respect to those of its inputs dY, X and Y that it has derivatives of.
inline std::string check_reduction_second_order(const std::string& type, const std::vector<std::string>& wrt) {
  for (const Shape& shape : {Shape{2, 3, 4}, Shape{1, 1, 1}, Shape{0, 3, 2}})
    for (const Axes& axes : {Axes{1}, Axes{-1}, Axes{1, 2}, Axes{}})
      for (const bool keepdims : {false, true}) {
        OperatorDef def = reduction(type + "Gradient", axes, keepdims);
        const Tensor x = normal<double>(shape);
        const OperatorDef forward = reduction(type, axes, keepdims);
        if (axes.empty() && x.size() == 0) continue;  // nothing has no maximum
        const Tensor y = run_op_on(forward, {{"X", x}})[0];
        def.clear_input();
        for (const char* name : {"dY", "X", "Y"}) def.add_input(name);
        const Feeds feeds = {{"dY", normal<double>(y.shape(), 2)}, {"X", x}, {"Y", y}};
        def.set_output(0, "dX");
        const std::string text = check_gradient(def, feeds, wrt, 1e-7, 1e-6);
        if (!text.empty()) return fmt::format("{} over [{}]: {}", shape.str(), fmt::join(axes, ", "), text);
      }
  return "";
}

}  // namespace stepnet::testing
