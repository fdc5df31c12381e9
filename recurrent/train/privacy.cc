#include "recurrent/train/privacy.h"

#include <cmath>
#include <limits>

namespace stepnet {
namespace {

double normal_below(double x) { return std::erfc(-x / std::sqrt(2.0)) / 2; }

}  // namespace

double gaussian_delta(double noise, double epsilon) {
  const double half = 1 / (2 * noise), second = normal_below(-half - epsilon * noise);
  // Where the second factor is 0 the product is less than the first term's rounding.
  const double product = second > 0 ? std::exp(epsilon + std::log(second)) : 0;
  return normal_below(half - epsilon * noise) - product;
}

double gaussian_epsilon(double noise, int64_t steps, double delta) {
  if (steps == 0) return 0;
  if (noise == 0) return std::numeric_limits<double>::infinity();
  const double all = noise / std::sqrt(static_cast<double>(steps));
  double low = 0, high = 1;
  while (gaussian_delta(all, high) > delta) high *= 2;
  for (int i = 0; i < 100; ++i) {
    const double middle = (low + high) / 2;
    (gaussian_delta(all, middle) > delta ? low : high) = middle;
  }
  return high;
}

}  // namespace stepnet
