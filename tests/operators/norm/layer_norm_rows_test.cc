#include "operators/norm/layer_norm_rows.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace stepnet::layer_norm_rows_test {
namespace {

std::vector<double> numbers(int64_t size, uint64_t seed) {
  std::vector<double> values(static_cast<size_t>(size));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = std::sin(static_cast<double>(i * 37 + seed * 101)) + 0.01 * static_cast<double>(i);
  return values;
}

template <class T>
std::vector<T> cast(const std::vector<double>& from) {
  return {from.begin(), from.end()};
}

template <class T>
void expect_near(const std::vector<T>& got, const std::vector<double>& want, double tolerance) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(static_cast<double>(got[i]), want[i], tolerance) << i;
}

struct Reference {
  double mean = 0, deviation = 0;
  std::vector<double> y, dx;
};

// One element after the other, as the formulas in layer_norm.cc stand there.
Reference reference(const std::vector<double>& x, const std::vector<double>& gamma, const std::vector<double>& beta,
                    const std::vector<double>& dy, double dmean, double dstd) {
  Reference r;
  const auto n = static_cast<double>(x.size());
  for (const double v : x) r.mean += v / n;
  double squares = 0;
  for (const double v : x) squares += (v - r.mean) * (v - r.mean);
  r.deviation = std::sqrt(squares / n + 1e-5);
  double sum = 0, along = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double u = (x[i] - r.mean) / r.deviation, e = dy[i] * gamma[i];
    r.y.push_back(u * gamma[i] + beta[i]);
    sum += e;
    along += e * u;
  }
  for (size_t i = 0; i < x.size(); ++i) {
    const double u = (x[i] - r.mean) / r.deviation;
    r.dx.push_back((dy[i] * gamma[i] - sum / n - u * along / n) / r.deviation + dmean / n + dstd * u / n);
  }
  return r;
}

template <class T>
void check_rows(const NormKernels& kernels, int64_t n, double tolerance) {
  SCOPED_TRACE(n);
  const std::vector<double> x = numbers(n, 1), gamma = numbers(n, 2), beta = numbers(n, 3), dy = numbers(n, 4);
  const Reference want = reference(x, gamma, beta, dy, 0.3, -0.2);
  const std::vector<T> xs = cast<T>(x), gammas = cast<T>(gamma), betas = cast<T>(beta), dys = cast<T>(dy);
  std::vector<T> y(xs.size()), dx(xs.size());
  NormRow<T> row{n, xs.data(), gammas.data(), betas.data(), 1e-5, y.data()};
  kernels.forward(row);
  EXPECT_NEAR(static_cast<double>(row.mean), want.mean, tolerance);
  EXPECT_NEAR(static_cast<double>(row.deviation), want.deviation, tolerance);
  expect_near(y, want.y, 10 * tolerance);
  kernels.gradient(
      NormGradientRow<T>{n, xs.data(), dys.data(), gammas.data(), row.mean, row.deviation, T(0.3), T(-0.2), dx.data()});
  expect_near(dx, want.dx, 100 * tolerance);
}

template <class T>
void check_sums(const NormKernels& kernels, double tolerance) {
  const int64_t rows = 5, n = 43;
  const std::vector<double> x = numbers(rows * n, 1), dy = numbers(rows * n, 2), mean = numbers(rows, 3);
  std::vector<double> deviation = numbers(rows, 4), dgamma(n, 1.0), dbeta(n, 2.0);
  for (double& d : deviation) d = 1 + d * d;
  const std::vector<T> xs = cast<T>(x), dys = cast<T>(dy), means = cast<T>(mean), deviations = cast<T>(deviation);
  std::vector<T> got_gamma(n, T(1)), got_beta(n, T(2)), pieces_gamma(n, T(1));
  const NormSums<T> sums{rows,           n, xs.data(), dys.data(), means.data(), deviations.data(), got_gamma.data(),
                         got_beta.data()};
  kernels.sums(sums, 0, n);
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t j = 0; j < n; ++j) {
      dgamma[j] += dy[r * n + j] * (x[r * n + j] - mean[r]) / deviation[r];
      dbeta[j] += dy[r * n + j];
    }
  expect_near(got_gamma, dgamma, tolerance);
  expect_near(got_beta, dbeta, tolerance);
  NormSums<T> alone = sums;
  alone.dgamma = pieces_gamma.data();
  alone.dbeta = nullptr;
  kernels.sums(alone, 0, 16);
  kernels.sums(alone, 16, n);
  for (int64_t j = 0; j < n; ++j) EXPECT_NEAR(pieces_gamma[j], got_gamma[j], tolerance);
}

TEST(LayerNormRows, AgreeWithOneElementAfterTheOther) {
  for (const NormKernels* kernels : {&norm_kernels_plain(), norm_kernels_wide()}) {
    if (!kernels) continue;
    for (const int64_t n : {1, 2, 7, 8, 16, 31, 32, 63, 64, 100, 128, 517}) {
      check_rows<float>(*kernels, n, 4e-6);
      check_rows<double>(*kernels, n, 1e-13);
    }
    check_sums<float>(*kernels, 1e-5);
    check_sums<double>(*kernels, 1e-13);
  }
}

TEST(LayerNormRows, WithoutGammaAndWithoutDy) {
  const std::vector<double> x = numbers(37, 1), ones(37, 1.0), zeros(37, 0.0);
  const Reference want = reference(x, ones, zeros, zeros, 0.5, 0.25);
  for (const NormKernels* kernels : {&norm_kernels_plain(), norm_kernels_wide()}) {
    if (!kernels) continue;
    std::vector<double> y(37), dx(37);
    NormRow<double> row{37, x.data(), nullptr, nullptr, 1e-5, y.data()};
    kernels->forward(row);
    expect_near(y, want.y, 1e-12);
    kernels->gradient({37, x.data(), nullptr, nullptr, row.mean, row.deviation, 0.5, 0.25, dx.data()});
    expect_near(dx, want.dx, 1e-12);
  }
}

TEST(LayerNormRows, MayBeWrittenOverTheirInput) {
  std::vector<double> x = numbers(50, 1), y(50);
  NormRow<double> row{50, x.data(), nullptr, nullptr, 1e-5, y.data()};
  norm_kernels().forward(row);
  row.y = x.data();
  norm_kernels().forward(row);
  EXPECT_EQ(x, y);
}

}  // namespace
}  // namespace stepnet::layer_norm_rows_test
