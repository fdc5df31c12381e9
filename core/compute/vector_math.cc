#include "core/compute/vector_math.h"

#include <Eigen/Core>
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "core/compute/activations.h"

namespace stepnet {
namespace {

// Eigen runs the first and last elements of an array of any size through another code path than its packets, which ones
// depending on the address, so that a value would depend on its place. Blocks of a fixed size are packets alone, and
// tails go through a padded block: the result depends on the value alone.
constexpr size_t kBlock = 16;
template <class T>
using Block = Eigen::Array<T, kBlock, 1>;

// Between these, exp is a normal number. Of less, of more and of NaN Eigen's packets give this or that.
template <class T>
constexpr T kLeastExp = sizeof(T) == sizeof(float) ? T(-87.3365402) : T(-708.39641853226408);
template <class T>
constexpr T kMostExp = sizeof(T) == sizeof(float) ? T(88.7228317) : T(709.78271289338397);

template <class T, class Fn>
void mapped(std::span<const T> x, std::span<T> y, Fn fn) {
  const size_t whole = x.size() / kBlock * kBlock;
  for (size_t i = 0; i < whole; i += kBlock)
    Eigen::Map<Block<T>>(y.data() + i) = fn(Eigen::Map<const Block<T>>(x.data() + i));
  if (whole == x.size()) return;
  Block<T> a = Block<T>::Zero();
  std::copy(x.begin() + whole, x.end(), a.begin());
  const Block<T> b = fn(a);
  std::copy_n(b.begin(), x.size() - whole, y.begin() + whole);
}

template <class T, class V>
Block<T> exp_of(const V& v) {
  const Block<T> x = v;
  Block<T> y = x.exp();
  // 0 if all are between them; of NaN, NaN.
  const T outside = (x - x.max(kLeastExp<T>).min(kMostExp<T>)).abs().sum();
  if (!(outside == 0))
    for (size_t i = 0; i < kBlock; ++i)
      if (!(x[i] >= kLeastExp<T> && x[i] <= kMostExp<T>)) y[i] = std::exp(x[i]);
  return y;
}

template <class T>
void add_scaled(T a, const T* x, T* y, size_t size) {
#pragma omp simd
  for (size_t i = 0; i < size; ++i) y[i] += a * x[i];
}

// Partial sums in lanes of fixed position, joined in a fixed order.
template <class T, class Fn>
double lane_sum(std::span<const T> x, Fn fn) {
  std::array<double, 8> lanes{};
  const size_t whole = x.size() / 8 * 8;
  for (size_t i = 0; i < whole; i += 8)
    for (size_t j = 0; j < 8; ++j) lanes[j] += fn(static_cast<double>(x[i + j]));
  for (size_t i = whole; i < x.size(); ++i) lanes[i - whole] += fn(static_cast<double>(x[i]));
  return ((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) + ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7]));
}

template <class T>
T maximum(std::span<const T> x) {
  std::array<T, 8> lanes;
  lanes.fill(-std::numeric_limits<T>::infinity());
  const size_t whole = x.size() / 8 * 8;
  for (size_t i = 0; i < whole; i += 8)
    for (size_t j = 0; j < 8; ++j) lanes[j] = lanes[j] < x[i + j] ? x[i + j] : lanes[j];
  for (size_t i = whole; i < x.size(); ++i) lanes[0] = lanes[0] < x[i] ? x[i] : lanes[0];
  return *std::max_element(lanes.begin(), lanes.end());
}

// Objects, not functions, so that they are inlined.
constexpr auto kIdentity = [](double v) { return v; };
constexpr auto kSquared = [](double v) { return v * v; };

}  // namespace

void vec_exp(std::span<const float> x, std::span<float> y) {
  mapped(x, y, [](const auto& v) { return exp_of<float>(v); });
}
void vec_exp(std::span<const double> x, std::span<double> y) {
  mapped(x, y, [](const auto& v) { return exp_of<double>(v); });
}
void vec_log(std::span<const float> x, std::span<float> y) {
  mapped(x, y, [](const auto& v) { return v.log(); });
}
void vec_log(std::span<const double> x, std::span<double> y) {
  mapped(x, y, [](const auto& v) { return v.log(); });
}
void vec_expm1(std::span<const float> x, std::span<float> y) {
  mapped(x, y, [](const auto& v) { return v.expm1(); });
}
void vec_expm1(std::span<const double> x, std::span<double> y) {
  mapped(x, y, [](const auto& v) { return v.expm1(); });
}
void vec_log1p(std::span<const float> x, std::span<float> y) {
  mapped(x, y, [](const auto& v) { return v.log1p(); });
}
void vec_log1p(std::span<const double> x, std::span<double> y) {
  mapped(x, y, [](const auto& v) { return v.log1p(); });
}
void vec_tanh(std::span<const float> x, std::span<float> y) { activations().tanh_float(x.data(), y.data(), x.size()); }
void vec_tanh(std::span<const double> x, std::span<double> y) {
  activations().tanh_double(x.data(), y.data(), x.size());
}
void vec_sigmoid(std::span<const float> x, std::span<float> y) {
  activations().sigmoid_float(x.data(), y.data(), x.size());
}
void vec_sigmoid(std::span<const double> x, std::span<double> y) {
  activations().sigmoid_double(x.data(), y.data(), x.size());
}

void vec_axpy(float a, std::span<const float> x, std::span<float> y) { add_scaled(a, x.data(), y.data(), x.size()); }
void vec_axpy(double a, std::span<const double> x, std::span<double> y) { add_scaled(a, x.data(), y.data(), x.size()); }

double vec_sum(std::span<const float> x) { return lane_sum(x, kIdentity); }
double vec_sum(std::span<const double> x) { return lane_sum(x, kIdentity); }
double vec_sum_squares(std::span<const float> x) { return lane_sum(x, kSquared); }
double vec_sum_squares(std::span<const double> x) { return lane_sum(x, kSquared); }
float vec_max(std::span<const float> x) { return maximum(x); }
double vec_max(std::span<const double> x) { return maximum(x); }

}  // namespace stepnet
