// The operations and their derivatives.
#include "tools/bench/tape.h"

#include <algorithm>
#include <cmath>

#include "core/compute/matmul.h"

namespace stepnet::bench {
namespace {

// What normalize() keeps: rows without gain and shift, and what each was divided by.
struct Normalized {
  std::vector<double> rows, scale;
};

Normalized normalized(const Matrix& a, double epsilon) {
  Normalized result{a.value, {}};
  const auto n = static_cast<double>(a.columns);
  for (int64_t r = 0; r < a.rows; ++r) {
    const std::span<double> row(result.rows.data() + r * a.columns, static_cast<size_t>(a.columns));
    double mean = 0, variance = 0;
    for (const double v : row) mean += v / n;
    for (const double v : row) variance += (v - mean) * (v - mean) / n;
    result.scale.push_back(std::sqrt(variance + epsilon));
    for (double& v : row) v = (v - mean) / result.scale.back();
  }
  return result;
}

}  // namespace

Tape::Var Tape::make(int64_t rows, int64_t columns) {
  const auto size = static_cast<size_t>(rows * columns);
  return &all_.emplace_back(Matrix{rows, columns, std::vector<double>(size), std::vector<double>(size), [] {}});
}

Tape::Var Tape::leaf(int64_t rows, int64_t columns, std::span<const float> values) {
  const Var y = make(rows, columns);
  std::copy(values.begin(), values.end(), y->value.begin());
  return y;
}

Tape::Var Tape::affine(Var a, Var w, Var b) {
  const int64_t m = a->rows, n = w->rows, k = a->columns;
  const Var y = make(m, n);
  for (int64_t r = 0; r < m; ++r) std::copy(b->value.begin(), b->value.end(), y->value.begin() + r * n);
  matmul(false, true, m, n, k, a->value.data(), w->value.data(), y->value.data(), true);
  y->pull = [=] {
    const double* dy = y->gradient.data();
    matmul(false, false, m, k, n, dy, w->value.data(), a->gradient.data(), true);
    matmul(true, false, n, k, m, dy, a->value.data(), w->gradient.data(), true);
    for (int64_t r = 0; r < m; ++r)
      for (int64_t c = 0; c < n; ++c) b->gradient[static_cast<size_t>(c)] += dy[r * n + c];
  };
  return y;
}

Tape::Var Tape::add(Var a, Var b) {
  const Var y = make(a->rows, a->columns);
  for (size_t i = 0; i < y->value.size(); ++i) y->value[i] = a->value[i] + b->value[i];
  y->pull = [=] {
    for (size_t i = 0; i < y->value.size(); ++i) {
      a->gradient[i] += y->gradient[i];
      b->gradient[i] += y->gradient[i];
    }
  };
  return y;
}

Tape::Var Tape::sub(Var a, Var b) {
  const Var y = make(a->rows, a->columns);
  for (size_t i = 0; i < y->value.size(); ++i) y->value[i] = a->value[i] - b->value[i];
  y->pull = [=] {
    for (size_t i = 0; i < y->value.size(); ++i) {
      a->gradient[i] += y->gradient[i];
      b->gradient[i] -= y->gradient[i];
    }
  };
  return y;
}

Tape::Var Tape::mul(Var a, Var b) {
  const Var y = make(a->rows, a->columns);
  for (size_t i = 0; i < y->value.size(); ++i) y->value[i] = a->value[i] * b->value[i];
  y->pull = [=] {
    for (size_t i = 0; i < y->value.size(); ++i) {
      a->gradient[i] += y->gradient[i] * b->value[i];
      b->gradient[i] += y->gradient[i] * a->value[i];
    }
  };
  return y;
}

template <class Fn, class Slope>
Tape::Var Tape::map(Var a, Fn fn, Slope slope) {
  const Var y = make(a->rows, a->columns);
  for (size_t i = 0; i < y->value.size(); ++i) y->value[i] = fn(a->value[i]);
  y->pull = [=] {
    for (size_t i = 0; i < y->value.size(); ++i) a->gradient[i] += y->gradient[i] * slope(y->value[i]);
  };
  return y;
}

Tape::Var Tape::sigmoid(Var a) {
  return map(
      a, [](double x) { return 1 / (1 + std::exp(-x)); }, [](double y) { return y * (1 - y); });
}

Tape::Var Tape::tanh(Var a) {
  return map(
      a, [](double x) { return std::tanh(x); }, [](double y) { return 1 - y * y; });
}

Tape::Var Tape::columns(Var a, int64_t begin, int64_t count) {
  const Var y = make(a->rows, count);
  for (int64_t r = 0; r < a->rows; ++r)
    for (int64_t c = 0; c < count; ++c) y->at(r, c) = a->at(r, begin + c);
  y->pull = [=] {
    for (int64_t r = 0; r < a->rows; ++r)
      for (int64_t c = 0; c < count; ++c)
        a->gradient[static_cast<size_t>(r * a->columns + begin + c)] += y->gradient[static_cast<size_t>(r * count + c)];
  };
  return y;
}

Tape::Var Tape::normalize(Var a, Var gain, Var shift, double epsilon) {
  const Var y = make(a->rows, a->columns);
  const int64_t n = a->columns;
  Normalized u = normalized(*a, epsilon);
  for (size_t i = 0; i < y->value.size(); ++i) {
    const size_t c = i % static_cast<size_t>(n);
    y->value[i] = u.rows[i] * gain->value[c] + shift->value[c];
  }
  y->pull = [=, u = std::move(u)] {
    for (int64_t r = 0; r < a->rows; ++r) {
      double mean = 0, along = 0;  // of du and of du u
      for (int64_t c = 0; c < n; ++c) {
        const auto i = static_cast<size_t>(r * n + c), column = static_cast<size_t>(c);
        gain->gradient[column] += y->gradient[i] * u.rows[i];
        shift->gradient[column] += y->gradient[i];
        mean += y->gradient[i] * gain->value[column] / static_cast<double>(n);
        along += y->gradient[i] * gain->value[column] * u.rows[i] / static_cast<double>(n);
      }
      for (int64_t c = 0; c < n; ++c) {
        const auto i = static_cast<size_t>(r * n + c);
        const double du = y->gradient[i] * gain->value[static_cast<size_t>(c)];
        a->gradient[i] += (du - mean - u.rows[i] * along) / u.scale[static_cast<size_t>(r)];
      }
    }
  };
  return y;
}

void Tape::pull_all() {
  for (auto at = all_.rbegin(); at != all_.rend(); ++at) at->pull();
}

}  // namespace stepnet::bench
