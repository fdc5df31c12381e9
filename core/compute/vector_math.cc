#include "core/compute/vector_math.h"

#include <algorithm>
#include <array>
#include <limits>

#include "core/compute/activations.h"

namespace stepnet {
namespace {

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

void vec_exp(std::span<const float> x, std::span<float> y) { activations().exp_float(x.data(), y.data(), x.size()); }
void vec_exp(std::span<const double> x, std::span<double> y) { activations().exp_double(x.data(), y.data(), x.size()); }
void vec_expm1(std::span<const float> x, std::span<float> y) {
  activations().expm1_float(x.data(), y.data(), x.size());
}
void vec_expm1(std::span<const double> x, std::span<double> y) {
  activations().expm1_double(x.data(), y.data(), x.size());
}
void vec_log(std::span<const float> x, std::span<float> y) { activations().log_float(x.data(), y.data(), x.size()); }
void vec_log(std::span<const double> x, std::span<double> y) { activations().log_double(x.data(), y.data(), x.size()); }
void vec_log1p(std::span<const float> x, std::span<float> y) {
  activations().log1p_float(x.data(), y.data(), x.size());
}
void vec_log1p(std::span<const double> x, std::span<double> y) {
  activations().log1p_double(x.data(), y.data(), x.size());
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
