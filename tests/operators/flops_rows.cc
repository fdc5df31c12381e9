// References of operators on rows: softmaxes, pairs of rows, lines along an axis.
#include <numeric>

#include "tests/operators/counted.h"

namespace stepnet::testing {
namespace {

Counted dot(const Counted* a, const Counted* b, int64_t size) {
  Counted sum;
  for (int64_t i = 0; i < size; ++i) sum += a[i] * b[i];
  return sum;
}

// Calls fn(row, first, size) for rows of the input `i`, flattened before `axis`.
template <class Fn>
void each_row(const CountedCall& c, int i, int64_t axis, Fn fn) {
  const CountedRows rows = rows_before(c.x(i).shape, axis);
  for (int64_t n = 0; n < rows.count; ++n) fn(n, n * rows.size, rows.size);
}

// The elements of lines along an axis, of input `i`: fn(indices).
template <class Fn>
void each_line(const CountedCall& c, int i, int64_t given_axis, Fn fn) {
  const Shape& s = c.x(i).shape;
  const int axis = canonical_axis(given_axis, s.rank());
  const int64_t inner = s.size_between(axis + 1, s.rank()), lines = s.size_between(0, axis) * inner;
  for (int64_t n = 0; n < lines; ++n) {
    std::vector<size_t> at;
    for (int64_t k = 0; k < s[axis]; ++k)
      at.push_back(static_cast<size_t>(n / inner * inner * s[axis] + k * inner + n % inner));
    fn(at);
  }
}

Counted dot(const Numbers& a, const Numbers& b, const std::vector<size_t>& at) {
  Counted sum;
  for (const size_t i : at) sum += a[i] * b[i];
  return sum;
}

// What is normalised by itself.
template <class Fn>
void each_softmax_line(const CountedCall& c, Fn fn) {
  if (c.whole("single_axis", 0) != 0) return each_line(c, 0, c.whole("axis", 1), fn);
  each_row(c, 0, c.whole("axis", 1), [&](int64_t, int64_t first, int64_t size) {
    std::vector<size_t> at(static_cast<size_t>(size));
    std::iota(at.begin(), at.end(), static_cast<size_t>(first));
    fn(at);
  });
}

void softmax(CountedCall& c) {
  each_softmax_line(c, [&](const std::vector<size_t>& at) {
    Counted most = -HUGE_VAL, sum;
    for (const size_t i : at) most = max(most, c.x(0).v[i]);
    for (const size_t i : at) sum += c.y(0)[i] = exp(c.x(0).v[i] - most);
    for (const size_t i : at) c.y(0)[i] = c.y(0)[i] / sum;
  });
}

void softmax_gradient(CountedCall& c) {
  each_softmax_line(c, [&](const std::vector<size_t>& at) {
    const Counted along = dot(c.x(0).v, c.x(1).v, at);
    for (const size_t i : at) c.y(0)[i] = c.x(0).v[i] * (c.x(1).v[i] - along);
  });
}

void log_softmax(CountedCall& c) {
  each_softmax_line(c, [&](const std::vector<size_t>& at) {
    Counted most = -HUGE_VAL, sum;
    for (const size_t i : at) most = max(most, c.x(0).v[i]);
    for (const size_t i : at) sum += exp(c.y(0)[i] = c.x(0).v[i] - most);
    const Counted log_sum = log(sum);
    for (const size_t i : at) c.y(0)[i] -= log_sum;
  });
}

void log_softmax_gradient(CountedCall& c) {
  each_softmax_line(c, [&](const std::vector<size_t>& at) {
    Counted sum;
    for (const size_t i : at) sum += c.x(1).v[i];
    for (const size_t i : at) c.y(0)[i] = c.x(1).v[i] - exp(c.x(0).v[i]) * sum;
  });
}

void normalize(CountedCall& c) {
  each_line(c, 0, c.whole("axis", -1), [&](const std::vector<size_t>& at) {
    const Counted norm = max(sqrt(dot(c.x(0).v, c.x(0).v, at)), 1e-12);
    for (const size_t i : at) c.y(0)[i] = c.x(0).v[i] / norm;
  });
}

void normalize_gradient(CountedCall& c) {
  const Numbers &x = c.x(0).v, &dy = c.x(1).v;
  each_line(c, 0, c.whole("axis", -1), [&](const std::vector<size_t>& at) {
    const Counted squares = dot(x, x, at), norm = sqrt(squares), along = dot(x, dy, at) / squares;
    for (const size_t i : at) c.y(0)[i] = (dy[i] - along * x[i]) / norm;
  });
}

// Pairs of rows: a vector is rows of one element.
template <class Fn>
void each_pair(const CountedCall& c, Fn fn) {
  each_row(c, 0, c.x(0).shape.rank() == 0 ? 0 : 1, fn);
}

// Z = last(sum of fn(x, y))
template <class Fn, class Last>
Reference of_pairs(Fn fn, Last last) {
  return [fn, last](CountedCall& c) {
    each_pair(c, [&](int64_t n, int64_t first, int64_t size) {
      Counted sum;
      for (int64_t i = first; i < first + size; ++i) sum += fn(c.x(0).v[i], c.x(1).v[i]);
      c.y(0)[n] = last(sum);
    });
  };
}

// The same of x - y, which may be wanted itself.
template <class Fn, class Last>
Reference of_differences(Fn fn, Last last) {
  return [fn, last](CountedCall& c) {
    each_pair(c, [&](int64_t n, int64_t first, int64_t size) {
      Counted sum;
      for (int64_t i = first; i < first + size; ++i) {
        const Counted difference = c.x(0).v[i] - c.x(1).v[i];
        if (c.wants(1)) c.y(1)[i] = difference;
        sum += fn(difference);
      }
      c.y(0)[n] = last(sum);
    });
  };
}

void dot_gradient(CountedCall& c) {
  each_pair(c, [&](int64_t n, int64_t first, int64_t size) {
    for (int64_t i = first; i < first + size; ++i) {
      if (c.wants(0)) c.y(0)[i] = c.x(1).v[i] * c.x(2).v[n];
      if (c.wants(1)) c.y(1)[i] = c.x(0).v[i] * c.x(2).v[n];
    }
  });
}

// dX = fn(x, y, dz), dY = -dX
template <class Fn>
Reference opposite_gradients(Fn fn) {
  return [fn](CountedCall& c) {
    each_pair(c, [&](int64_t n, int64_t first, int64_t size) {
      for (int64_t i = first; i < first + size; ++i) {
        const Counted slope = fn(c.x(0).v[i], c.x(1).v[i], c.x(2).v[n]);
        if (c.wants(0)) c.y(0)[i] = slope;
        if (c.wants(1)) c.y(1)[i] = -slope;
      }
    });
  };
}

struct Cosine {
  Counted xx, yy, scale, value;
  Cosine(const Counted* x, const Counted* y, int64_t size)
      : xx(dot(x, x, size)), yy(dot(y, y, size)), scale(1 / (sqrt(max(xx, 1e-12)) * sqrt(max(yy, 1e-12)))) {
    value = dot(x, y, size) * scale;
  }
};

void cosine(CountedCall& c) {
  each_pair(c, [&](int64_t n, int64_t first, int64_t size) {
    c.y(0)[n] = Cosine(c.x(0).v.data() + first, c.x(1).v.data() + first, size).value;
  });
}

void cosine_gradient(CountedCall& c) {
  each_pair(c, [&](int64_t n, int64_t first, int64_t size) {
    const Counted *x = c.x(0).v.data() + first, *y = c.x(1).v.data() + first, dz = c.x(2).v[n];
    const Cosine z(x, y, size);
    const auto slope = [&](const Counted* a, const Counted* b, Counted aa, Counted* d) {
      const Counted along = z.value / aa;
      for (int64_t i = 0; i < size; ++i) d[i] = (b[i] * z.scale - a[i] * along) * dz;
    };
    if (c.wants(0)) slope(x, y, z.xx, c.y(0).data() + first);
    if (c.wants(1)) slope(y, x, z.yy, c.y(1).data() + first);
  });
}

}  // namespace

void add_row_references(References& r) {
  r["Softmax"] = softmax;
  r["SoftmaxGradient"] = softmax_gradient;
  r["LogSoftmax"] = log_softmax;
  r["LogSoftmaxGradient"] = log_softmax_gradient;
  r["Normalize"] = normalize;
  r["NormalizeGradient"] = normalize_gradient;
  const auto as_it_is = [](Counted sum) { return sum; };
  r["DotProduct"] = of_pairs([](Counted x, Counted y) { return x * y; }, as_it_is);
  r["DotProductGradient"] = dot_gradient;
  r["L1Distance"] = of_differences([](Counted d) { return abs(d); }, as_it_is);
  r["L1DistanceGradient"] = opposite_gradients([](Counted x, Counted y, Counted dz) {
    return x > y ? dz : x < y ? -dz : Counted();
  });
  r["SquaredL2Distance"] = of_differences([](Counted d) { return square(d); }, [](Counted sum) { return sum / 2; });
  r["SquaredL2DistanceGradient"] = opposite_gradients([](Counted x, Counted y, Counted dz) { return (x - y) * dz; });
  r["CosineSimilarity"] = cosine;
  r["CosineSimilarityGradient"] = cosine_gradient;
}

}  // namespace stepnet::testing
