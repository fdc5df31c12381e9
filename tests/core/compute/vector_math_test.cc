// Elementwise functions give the same bits wherever a value stands: in which place of an array, at which address.
#include "core/compute/vector_math.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

namespace stepnet::vector_math_test {
namespace {

template <class T>
using Function = void (*)(std::span<const T>, std::span<T>);

template <class T>
void expect_same_everywhere(const char* name, Function<T> function, double (*exact)(double), T low, T high) {
  constexpr size_t kMost = 70;
  std::vector<T> values(kMost), alone(kMost);
  for (size_t i = 0; i < kMost; ++i) {
    values[i] = low + (high - low) * static_cast<T>(i) / static_cast<T>(kMost - 1);
    function(std::span<const T>(&values[i], 1), std::span<T>(&alone[i], 1));
    const double expected = exact(static_cast<double>(values[i]));
    EXPECT_NEAR(static_cast<double>(alone[i]), expected, 1e-6 * std::max(1.0, std::abs(expected))) << name;
  }
  std::vector<T> from(kMost + 16), to(kMost + 16);
  for (size_t size = 1; size <= kMost; size += 3) {
    for (size_t place = 0; place < 16; ++place) {
      std::copy_n(values.begin(), size, from.begin() + place);
      function(std::span<const T>(from).subspan(place, size), std::span<T>(to).subspan(15 - place, size));
      ASSERT_EQ(std::memcmp(&to[15 - place], alone.data(), size * sizeof(T)), 0) << name << " " << size << " " << place;
      function(std::span<const T>(from).subspan(place, size), std::span<T>(from).subspan(place, size));
      ASSERT_EQ(std::memcmp(&from[place], alone.data(), size * sizeof(T)), 0) << name << " in place";
    }
  }
}

template <class T>
void expect_same_everywhere() {
  expect_same_everywhere<T>("exp", vec_exp, std::exp, -20, 9);
  expect_same_everywhere<T>("log", vec_log, std::log, T(0.01), 50);
  expect_same_everywhere<T>("expm1", vec_expm1, std::expm1, -20, 9);
  expect_same_everywhere<T>("log1p", vec_log1p, std::log1p, T(-0.9), 50);
  expect_same_everywhere<T>("tanh", vec_tanh, std::tanh, -7, 7);
  expect_same_everywhere<T>(
      "sigmoid", vec_sigmoid, [](double x) { return 1 / (1 + std::exp(-x)); }, -30, 30);
}

TEST(VectorMath, FloatsDoNotDependOnTheirPlace) { expect_same_everywhere<float>(); }
TEST(VectorMath, DoublesDoNotDependOnTheirPlace) { expect_same_everywhere<double>(); }

// What has no normal exponential, between what has one.
template <class T>
void expect_exp_of_extremes() {
  const T infinity = std::numeric_limits<T>::infinity(), nan = std::numeric_limits<T>::quiet_NaN();
  for (const T extreme :
       {infinity, -infinity, nan, T(89), T(710), T(-88), T(-100), T(-709), T(-740), T(-1e9), T(1e9)}) {
    std::vector<T> x(40, T(0.5)), y(40);
    x[3] = x[21] = x[38] = extreme;
    vec_exp(x, y);
    for (size_t i = 0; i < x.size(); ++i) {
      const T expected = std::exp(x[i]);
      if (std::isnan(expected)) {
        EXPECT_TRUE(std::isnan(y[i])) << i;
      } else if (std::isinf(expected)) {
        EXPECT_EQ(y[i], expected) << extreme << " " << i;
      } else {
        EXPECT_NEAR(y[i], expected, 1e-6 * std::abs(expected)) << extreme << " " << i;
      }
    }
  }
}

TEST(VectorMath, ExpOfWhatHasNoNormalOne) {
  expect_exp_of_extremes<float>();
  expect_exp_of_extremes<double>();
}

template <class T>
void expect_small_results_exact() {
  const T tolerance = 8 * std::numeric_limits<T>::epsilon();
  for (double size = 1e-30; size < 0.5; size *= 3) {
    for (const double x : {size, -size}) {
      const T from = static_cast<T>(x);
      T to = 0;
      vec_expm1(std::span<const T>(&from, 1), std::span<T>(&to, 1));
      EXPECT_NEAR(to / std::expm1(from), T(1), tolerance) << "expm1 of " << x;
      vec_log1p(std::span<const T>(&from, 1), std::span<T>(&to, 1));
      EXPECT_NEAR(to / std::log1p(from), T(1), tolerance) << "log1p of " << x;
    }
  }
}

TEST(VectorMath, SmallResultsAreExactInRelation) {
  expect_small_results_exact<float>();
  expect_small_results_exact<double>();
}

}  // namespace
}  // namespace stepnet::vector_math_test
