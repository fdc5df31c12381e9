// What tests of elementwise operators share: checks of operators on one tensor against a function of numbers, of their
// gradient operators, and of operators on two tensors with every kind of broadcasting. Checks return "" or what is
// wrong.
//
// Threads: not for concurrent use.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "stepnet/op_spec.h"
#include "tests/operators/op_test.h"

namespace stepnet::testing {

using UnaryFunction = std::function<double(double)>;
using BinaryFunction = std::function<double(double, double)>;

inline Tensor mapped(const Tensor& x, const UnaryFunction& fn) {
  Tensor y = to_double(x);
  for (double& v : y.span<double>()) v = fn(v);
  return y;
}

// What may happen when Y is X: all goes well, the gradient of X is an error, or the operator is.
enum class InPlace { fine, no_gradient, refused };

inline std::string check_in_place(const OperatorDef& def, const Tensor& x, InPlace in_place) {
  OperatorDef onto = def;
  onto.set_output(0, "X");
  const Feeds feeds = {{"X", x}};
  std::string expected, error;
  if (in_place == InPlace::refused) {
    expected = "output \"Y\" cannot have the name of the input \"X\"";
    error = error_of([&] { run_op_on(onto, feeds); });
  } else {
    const std::string wrong = compare(run_op_on(onto, feeds)[0], run_op_on(def, feeds)[0], 0);
    if (!wrong.empty()) return wrong;
    if (in_place == InPlace::fine) return check_gradient(onto, feeds, {"X"});
    expected = "\"X\" is overwritten in place, but the gradient of \"X\" is computed from it";
    error = error_of([&] { check_gradient(onto, feeds, {"X"}); });
  }
  return error.find(expected) == std::string::npos ? "the error is: " + error : "";
}

// Y = fn(X), in double and in float, with gradient, for values of X from low to high. `def` has input X and output Y.
inline std::string check_unary(const OperatorDef& def, const UnaryFunction& fn, double low, double high,
                               InPlace in_place) {
  for (const Shape& shape : {Shape{}, Shape{0}, Shape{1}, Shape{5, 7}, Shape{2, 301}}) {
    const Tensor x = uniform<double>(shape, low, high, 3);
    const std::string wrong = compare(run_op_on(def, {{"X", x}})[0], mapped(x, fn), 1e-14);
    if (!wrong.empty()) return shape.str() + ": " + wrong;
    if (shape.size() > 100) continue;
    const std::string gradient = check_gradient(def, {{"X", x}}, {"X"});
    if (!gradient.empty()) return shape.str() + ": " + gradient;
    const std::string onto = check_in_place(def, x, in_place);
    if (!onto.empty()) return shape.str() + ", in place: " + onto;
  }
  const Tensor x = uniform<float>({3000}, low, high, 4);
  return compare(run_op_on(def, {{"X", x}})[0], mapped(x, fn), 1e-6);
}

// The gradient operator dX = type(read, dY), for values of what it reads from low to high: its derivatives by dY and,
// if there is one, by what it reads; in place; and its error where shapes differ.
inline std::string check_gradient_op(const std::string& type, const std::string& read, double low, double high,
                                     bool derivative_of_read, const std::vector<Argument>& args = {}) {
  const OperatorDef def = make_op(type, {read, "dY"}, {"dX"}, args);
  const Feeds feeds = {{read, uniform<double>({4, 3}, low, high, 1)}, {"dY", normal<double>({4, 3}, 2)}};
  std::vector<std::string> wrt = {"dY"};
  if (derivative_of_read) wrt.push_back(read);
  const std::string wrong = check_gradient(def, feeds, wrt);
  if (!wrong.empty()) return wrong;
  const OperatorDef onto = make_op(type, {read, "dY"}, {"dY"}, args);
  const std::string in_place = compare(run_op_on(onto, feeds)[0], run_op_on(def, feeds)[0], 0);
  if (!in_place.empty()) return "in place: " + in_place;
  const std::string error = error_of([&] { run_op_on(def, {{read, normal<float>({2})}, {"dY", normal<float>({3})}}); });
  return error.find(read + " is [2], but dY [3]") == std::string::npos ? "the error is: " + error : "";
}

// The element of a tensor that stands at element i of the result, if its dimension 0 is the result's dimension `first`.
inline int64_t repeated_index(const Shape& result, int64_t i, const Shape& of, int first) {
  int64_t index = 0, stride = 1;
  for (int d = result.rank() - 1; d >= 0; --d) {
    const int64_t at = i % result[d];
    i /= result[d];
    const int own = d - first;
    if (own < 0 || own >= of.rank()) continue;
    if (of[own] != 1) index += at * stride;
    stride *= of[own];
  }
  return index;
}

struct BroadcastCase {
  Shape a, b, c;
  std::vector<Argument> args = {};
  int first = 0;  // the dimension of C at which B's dimension 0 stands
};

inline const std::vector<BroadcastCase>& broadcast_cases() {
  static const Argument repeat = make_arg("broadcast", 1);
  static const std::vector<BroadcastCase> cases = {
      {{}, {}, {}},
      {{1}, {1}, {1}},
      {{0, 3}, {0, 3}, {0, 3}},
      {{4, 5}, {4, 5}, {4, 5}},
      {{2, 3, 4}, {4}, {2, 3, 4}, {repeat}, 2},
      {{2, 3, 4}, {3}, {2, 3, 4}, {repeat, make_arg("axis", 1)}, 1},
      {{2, 3, 4}, {3}, {2, 3, 4}, {repeat, make_arg("axis_str", "C")}, 1},
      {{2, 3}, {1}, {2, 3}, {repeat}, 1},
      {{3, 1, 4}, {2, 1}, {3, 2, 4}, {repeat}, 1},
      {{2, 1}, {3, 1, 4}, {3, 2, 4}, {repeat}, 0},
      {{2, 3, 4}, {4}, {2, 3, 4}, {}, 2},
      {{4}, {2, 3, 4}, {2, 3, 4}},
      {{3, 1, 4}, {2, 1}, {3, 2, 4}, {}, 1},
      {{2, 1}, {3, 1, 4}, {3, 2, 4}},
      {{2, 3}, {}, {2, 3}, {}, 2},
      {{2, 3}, {1, 1, 1}, {1, 2, 3}},
      {{1, 3}, {0, 3}, {0, 3}},
      {{2, 1}, {0}, {2, 0}, {}, 1},
      {{4}, {2, 4}, {2, 4}, {make_arg("broadcast", 0)}},
  };
  return cases;
}

inline Tensor combined(const BroadcastCase& shapes, const Tensor& a, const Tensor& b, const BinaryFunction& fn) {
  const Tensor left = to_double(a), right = to_double(b);
  Tensor c = Tensor::zeros(DType::float64, shapes.c);
  for (int64_t i = 0; i < c.size(); ++i) {
    const int64_t l = repeated_index(shapes.c, i, shapes.a, shapes.c.rank() - shapes.a.rank());
    const int64_t r = repeated_index(shapes.c, i, shapes.b, shapes.first);
    c.data<double>()[i] = fn(left.data<double>()[l], right.data<double>()[r]);
  }
  return c;
}

// C = fn(A, B) of integers from low to high in type T, where C is bools at which gradients end.
template <class T>
std::string check_predicate(const std::string& type, const BinaryFunction& fn, int64_t low = -2, int64_t high = 2) {
  if (op_spec(type).gradient_rule != GradientRule::stop) return "gradients go on";
  for (const BroadcastCase& shapes : broadcast_cases()) {
    const Tensor a = integers<T>(shapes.a, low, high, 1), b = integers<T>(shapes.b, low, high, 2);
    const Tensor c = run_op_on(make_op(type, {"A", "B"}, {"C"}, shapes.args), {{"A", a}, {"B", b}})[0];
    if (c.dtype() != DType::boolean) return "C is " + c.str();
    const std::string wrong = compare(c, combined(shapes, a, b, fn), 0);
    if (!wrong.empty()) return a.str() + " and " + b.str() + ": " + wrong;
  }
  const std::string error = error_of([&] {
    run_op_on(make_op(type, {"A", "B"}, {"C"}), {{"A", integers<T>({2, 3}, 0, 1)}, {"B", integers<T>({2}, 0, 1)}});
  });
  const std::string expected = "A [2, 3] and B [2] cannot be broadcast together: 3 against 2";
  return error.find(expected) == std::string::npos ? "the error is: " + error : "";
}

}  // namespace stepnet::testing
