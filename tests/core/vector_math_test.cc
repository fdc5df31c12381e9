// Elementwise functions give the same bits wherever a value stands: in which place of an array, at which address.
#include "core/vector_math.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

namespace stepnet {
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
  expect_same_everywhere<T>("tanh", vec_tanh, std::tanh, -7, 7);
  expect_same_everywhere<T>(
      "sigmoid", vec_sigmoid, [](double x) { return 1 / (1 + std::exp(-x)); }, -30, 30);
}

TEST(VectorMath, FloatsDoNotDependOnTheirPlace) { expect_same_everywhere<float>(); }
TEST(VectorMath, DoublesDoNotDependOnTheirPlace) { expect_same_everywhere<double>(); }

}  // namespace
}  // namespace stepnet
