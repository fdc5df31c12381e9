// What tests of losses that sum over alignments share. Threads: not for concurrent use.
#pragma once

#include <cmath>
#include <vector>

#include "stepnet/gradient_check.h"
#include "tests/operators/op_test.h"

namespace stepnet::testing {

// 2 sin(angle(i, j, k, l)) at each place, of a shape of three or four dimensions: scores that Python gives, too.
template <class Angle>
Tensor sines(const Shape& shape, Angle angle) {
  Tensor x = Tensor::empty(DType::float64, shape);
  double* next = x.data<double>();
  const int64_t last = shape.rank() == 4 ? shape[3] : 1;
  for (int64_t i = 0; i < shape[0]; ++i)
    for (int64_t j = 0; j < shape[1]; ++j)
      for (int64_t k = 0; k < shape[2]; ++k)
        for (int64_t l = 0; l < last; ++l)
          *next++ = 2 * std::sin(angle(static_cast<double>(i), static_cast<double>(j), static_cast<double>(k),
                                       static_cast<double>(l)));
  return x;
}

// The softmax of rows of so many classes.
inline Tensor shares_of(const Tensor& x, int64_t classes) {
  Tensor shares = x.clone();
  double* const p = shares.data<double>();
  for (int64_t i = 0; i < x.size(); i += classes) {
    double sum = 0;
    for (int64_t c = i; c < i + classes; ++c) sum += p[c] = std::exp(p[c]);
    for (int64_t c = i; c < i + classes; ++c) p[c] /= sum;
  }
  return shares;
}

inline Tensor logarithms(const Tensor& x) {
  Tensor y = x.clone();
  for (double& v : y.span<double>()) v = std::log(v);
  return y;
}

// Gradients, gradients of gradients and the Hessian against central differences.
inline std::string check_orders(const OperatorDef& def, const Feeds& feeds) {
  GradientSubject subject;
  *subject.net.add_op() = def;
  subject.feeds = {feeds.begin(), feeds.end()};
  subject.inputs = {def.input(0)};
  subject.outputs = {def.output(0)};
  GradientCheckOptions options;
  options.order = 2;
  options.hessian = true;
  const GradientReport report = check_gradients(subject, options);
  return report.refused.empty() ? report.str() : "something was refused";
}

// The same numbers, NaN and infinities too.
inline void expect_values(const Tensor& found, const std::vector<double>& expected, double tolerance) {
  ASSERT_EQ(static_cast<size_t>(found.size()), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    const double is = found.data<double>()[i];
    if (std::isnan(expected[i]))
      EXPECT_TRUE(std::isnan(is)) << i << ": " << is;
    else if (std::isinf(expected[i]))
      EXPECT_EQ(is, expected[i]) << i;
    else
      EXPECT_NEAR(is, expected[i], tolerance) << i;
  }
}

}  // namespace stepnet::testing
