// tanh, the logistic function, exp and log: error in ulp against the C library in long double, extremes, the same bits
// for every instruction set.
#include "core/compute/activations.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

namespace stepnet::activations_test {
namespace {

template <class T>
using Loop = void (*)(const T*, T*, size_t);

// Dense around 0 and out to where the functions no longer change, in both directions.
template <class T>
std::vector<T> sweep(T furthest) {
  std::vector<T> x;
  for (T v = std::numeric_limits<T>::min(); v < furthest; v *= T(1.0011)) x.push_back(v);
  for (int i = 0; i < 200000; ++i) x.push_back(furthest * static_cast<T>(i) / T(200000));
  const size_t half = x.size();
  for (size_t i = 0; i < half; ++i) x.push_back(-x[i]);
  return x;
}

template <class T>
double largest_error(Loop<T> loop, long double (*exact)(long double), const std::vector<T>& x) {
  std::vector<T> y(x.size());
  loop(x.data(), y.data(), x.size());
  double worst = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const long double expected = exact(x[i]);
    const T nearest = static_cast<T>(std::fabs(expected));
    const T ulp = std::nextafter(nearest, std::numeric_limits<T>::infinity()) - nearest;
    worst = std::max(worst, static_cast<double>(std::fabs(y[i] - expected) / ulp));
  }
  return worst;
}

long double exact_tanh(long double x) { return std::tanh(x); }
long double exact_sigmoid(long double x) { return x < 0 ? std::exp(x) / (1 + std::exp(x)) : 1 / (1 + std::exp(-x)); }

long double exact_exp(long double x) { return std::exp(x); }
long double exact_expm1(long double x) { return std::expm1(x); }
long double exact_log(long double x) { return std::log(x); }
long double exact_log1p(long double x) { return std::log1p(x); }

// The sizes of a sweep, and what is beside 1.
template <class T>
std::vector<T> positive(T furthest) {
  std::vector<T> x = sweep<T>(furthest);
  for (T& v : x) v = v < T(0) ? T(1) + v / furthest : v;
  std::erase_if(x, [](T v) { return v <= T(0); });
  return x;
}
template <class T>
std::vector<T> above_minus_1(T furthest) {
  std::vector<T> x = sweep<T>(furthest);
  std::erase_if(x, [](T v) { return v <= T(-1); });
  return x;
}

TEST(Activations, ErrorInUlp) {
  const ActivationKernels& k = activations();
  EXPECT_LT(largest_error<float>(k.exp_float, exact_exp, sweep<float>(87)), 2);
  EXPECT_LT(largest_error<double>(k.exp_double, exact_exp, sweep<double>(708)), 2);
  EXPECT_LT(largest_error<float>(k.expm1_float, exact_expm1, sweep<float>(88)), 2.5);
  EXPECT_LT(largest_error<double>(k.expm1_double, exact_expm1, sweep<double>(709)), 2.5);
  EXPECT_LT(largest_error<float>(k.log_float, exact_log, positive<float>(1e30F)), 1.5);
  EXPECT_LT(largest_error<double>(k.log_double, exact_log, positive<double>(1e300)), 1.5);
  EXPECT_LT(largest_error<float>(k.log1p_float, exact_log1p, above_minus_1<float>(1e30F)), 1.5);
  EXPECT_LT(largest_error<double>(k.log1p_double, exact_log1p, above_minus_1<double>(1e300)), 1.5);
  EXPECT_LT(largest_error<float>(k.tanh_float, exact_tanh, sweep<float>(20)), 3);
  EXPECT_LT(largest_error<double>(k.tanh_double, exact_tanh, sweep<double>(30)), 3);
  EXPECT_LT(largest_error<float>(k.sigmoid_float, exact_sigmoid, sweep<float>(85)), 3);
  EXPECT_LT(largest_error<double>(k.sigmoid_double, exact_sigmoid, sweep<double>(705)), 3);
}

template <class T>
void expect_extremes(Loop<T> tanh, Loop<T> sigmoid, T tiny) {
  const T inf = std::numeric_limits<T>::infinity(), most = std::numeric_limits<T>::max();
  const T least = std::numeric_limits<T>::denorm_min();
  const std::vector<T> x = {T(0), T(-0.0), least, -least, T(100), T(-100), T(1e4), T(-1e4), most, -most, inf, -inf};
  std::vector<T> y(x.size());
  tanh(x.data(), y.data(), x.size());
  const std::vector<T> tanhs = {T(0), T(-0.0), least, -least, T(1), T(-1), T(1), T(-1), T(1), T(-1), T(1), T(-1)};
  EXPECT_EQ(std::memcmp(y.data(), tanhs.data(), y.size() * sizeof(T)), 0);
  sigmoid(x.data(), y.data(), x.size());
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(y[i], T(0.5)) << x[i];
  for (size_t i = 4; i < y.size(); i += 2) {
    EXPECT_EQ(y[i], T(1)) << x[i];
    EXPECT_GE(y[i + 1], T(0)) << x[i + 1];
    EXPECT_LE(y[i + 1], tiny) << x[i + 1];
  }
  for (size_t place = 0; place < 21; ++place) {
    std::vector<T> v(21, T(1)), result(21);
    v[place] = std::numeric_limits<T>::quiet_NaN();
    for (const Loop<T> loop : {tanh, sigmoid}) {
      loop(v.data(), result.data(), v.size());
      for (size_t i = 0; i < v.size(); ++i) EXPECT_EQ(std::isnan(result[i]), i == place) << i;
    }
  }
}

TEST(Activations, Extremes) {
  for (const ActivationKernels* k : {&activations_plain(), &activations()}) {
    expect_extremes<float>(k->tanh_float, k->sigmoid_float, 1e-37F);
    expect_extremes<double>(k->tanh_double, k->sigmoid_double, 1e-43);
  }
}

template <class T>
void expect_same_bits(Loop<T> a, Loop<T> b, T furthest) {
  const std::vector<T> x = sweep<T>(furthest);
  std::vector<T> y(x.size()), z(x.size());
  a(x.data(), y.data(), x.size());
  b(x.data(), z.data(), x.size());
  EXPECT_EQ(std::memcmp(y.data(), z.data(), y.size() * sizeof(T)), 0);
}

TEST(Activations, InstructionSetDoesNotMatter) {
  const ActivationKernels *a = &activations_plain(), *b = activations_wide();
  if (!b) GTEST_SKIP() << "this CPU is not x86-64-v4";
  expect_same_bits<float>(a->tanh_float, b->tanh_float, 100);
  expect_same_bits<double>(a->tanh_double, b->tanh_double, 800);
  expect_same_bits<float>(a->sigmoid_float, b->sigmoid_float, 100);
  expect_same_bits<double>(a->sigmoid_double, b->sigmoid_double, 800);
  expect_same_bits<float>(a->exp_float, b->exp_float, 110);
  expect_same_bits<double>(a->exp_double, b->exp_double, 800);
  expect_same_bits<float>(a->expm1_float, b->expm1_float, 110);
  expect_same_bits<double>(a->expm1_double, b->expm1_double, 800);
  expect_same_bits<float>(a->log_float, b->log_float, 1e30F);
  expect_same_bits<double>(a->log_double, b->log_double, 1e300);
  expect_same_bits<float>(a->log1p_float, b->log1p_float, 1e30F);
  expect_same_bits<double>(a->log1p_double, b->log1p_double, 1e300);
}

}  // namespace
}  // namespace stepnet::activations_test
