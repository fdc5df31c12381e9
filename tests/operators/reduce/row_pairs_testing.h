// What tests of operators on pairs of rows share.
#pragma once

#include <functional>
#include <string>

#include "tests/operators/op_test.h"

namespace stepnet::testing {

inline OperatorDef pair_def(const std::string& type) { return make_op(type, {"X", "Y"}, {"Z"}); }

inline Feeds pair_feeds(const Shape& shape) {
  return {{"X", normal<double>(shape, 1)}, {"Y", normal<double>(shape, 2)}};
}

using RowFunction = std::function<double(const double* x, const double* y, int64_t size)>;

// "" or what differs from `naive`, which computes one row.
inline std::string check_pairs(const std::string& type, const RowFunction& naive) {
  for (const Shape& shape : {Shape{4, 5}, Shape{300, 3, 7}, Shape{6}, Shape{1, 1}, Shape{}, Shape{0, 3}, Shape{3, 0}}) {
    const Feeds feeds = pair_feeds(shape);
    const int64_t rows = shape.rank() > 0 ? shape[0] : 1, size = shape.rank() > 0 ? shape.from(1).size() : 1;
    Tensor z = Tensor::zeros(DType::float64, {rows});
    for (int64_t n = 0; n < rows; ++n)
      z.data<double>()[n] =
          naive(feeds[0].second.data<double>() + n * size, feeds[1].second.data<double>() + n * size, size);
    const std::string wrong = compare(run_op_on(pair_def(type), feeds)[0], z, 1e-13);
    if (!wrong.empty()) return shape.str() + ": " + wrong;
  }
  return "";
}

inline std::string check_pair_gradients(const std::string& type) {
  for (const Shape& shape : {Shape{3, 4}, Shape{2, 2, 3}, Shape{5}, Shape{1, 1}, Shape{}, Shape{0, 3}, Shape{3, 0}}) {
    const std::string wrong = check_gradient(pair_def(type), pair_feeds(shape), {"X", "Y"});
    if (!wrong.empty()) return shape.str() + ": " + wrong;
  }
  return "";
}

// Of the gradient operator, through both of its outputs and through each.
inline std::string check_pair_second_order(const std::string& type) {
  Feeds feeds = pair_feeds({3, 4});
  feeds.emplace_back("dZ", normal<double>({3}, 3));
  const OperatorDef def = make_op(type + "Gradient", {"X", "Y", "dZ"}, {"dX", "dY"});
  return check_gradient(def, feeds, {"X", "Y", "dZ"});
}

inline std::string check_pair_errors(const std::string& type) {
  const std::string text = error_of([&] {
    run_op_on(pair_def(type), {{"X", normal<float>({2, 3})}, {"Y", normal<float>({3, 2})}});
  });
  if (text.find("X is [2, 3], but Y [3, 2]") == std::string::npos) return text;
  const std::string gradient = error_of([&] {
    run_op_on(make_op(type + "Gradient", {"X", "Y", "dZ"}, {"dX", "dY"}),
              {{"X", normal<float>({2, 3})}, {"Y", normal<float>({2, 3})}, {"dZ", normal<float>({3})}});
  });
  return gradient.find("dZ is [3], but X [2, 3] has 2 rows") == std::string::npos ? gradient : "";
}

}  // namespace stepnet::testing
