// References of sums, means and the like over dimensions.
#include "tests/operators/counted.h"

namespace stepnet::testing {
namespace {

// Which element of the reduced tensor each element of X belongs to. A gradient has Y's shape as dY: input 0.
std::vector<int64_t> places(const CountedCall& c, const Shape& x) {
  std::vector<bool> reduced(static_cast<size_t>(x.rank()), true);
  if (const Argument* axes = c.find("axes"); axes && axes->ints_size() > 0) {
    reduced.assign(reduced.size(), false);
    for (const int64_t axis : axes->ints()) reduced[static_cast<size_t>(canonical_axis(axis, x.rank()))] = true;
  }
  std::vector<int64_t> at(static_cast<size_t>(x.size()));
  for (int64_t i = 0; i < x.size(); ++i) {
    int64_t place = 0;
    for (int d = 0; d < x.rank(); ++d)
      if (!reduced[static_cast<size_t>(d)]) place = place * x[d] + i / x.size_between(d + 1, x.rank()) % x[d];
    at[static_cast<size_t>(i)] = place;
  }
  return at;
}

// Reductions of the first or the last dimensions: X's elements of each result, in order.
std::vector<std::vector<int64_t>> stretches(const CountedCall& c, const Shape& x) {
  const auto dims = static_cast<int>(c.whole("num_reduce_dim", 1));
  const bool front = c.def.type().starts_with("ReduceFront");
  const int cut = front ? dims : x.rank() - dims;
  const int64_t before = x.size_between(0, cut), after = x.size_between(cut, x.rank());
  std::vector<std::vector<int64_t>> all(static_cast<size_t>(front ? after : before));
  for (int64_t i = 0; i < x.size(); ++i) all[static_cast<size_t>(front ? i % after : i / after)].push_back(i);
  return all;
}

// Elements past a result's length are added as zeros.
void front_back(CountedCall& c, bool mean) {
  const auto all = stretches(c, c.x(0).shape);
  for (size_t j = 0; j < all.size(); ++j) {
    const double n = c.x(1).there ? c.x(1).v[j].value : static_cast<double>(all[j].size());
    for (size_t k = 0; k < all[j].size(); ++k)
      c.y(0)[j] += static_cast<double>(k) < n ? c.x(0).v[static_cast<size_t>(all[j][k])] : Counted();
    if (mean) c.y(0)[j] = c.y(0)[j] / std::max(1.0, n);
  }
}

void front_back_mean_gradient(CountedCall& c) {
  const auto all = stretches(c, c.x(1).shape);
  for (size_t j = 0; j < all.size(); ++j) {
    const double n = c.x(2).there ? c.x(2).v[j].value : static_cast<double>(all[j].size());
    const Counted share = c.x(0).v[j] / std::max(1.0, n);
    for (size_t k = 0; k < all[j].size(); ++k)
      c.y(0)[static_cast<size_t>(all[j][k])] = static_cast<double>(k) < n ? share : Counted();
  }
}

double elements_per_value(const Shape& x, int64_t values) {
  return values == 0 ? 1 : std::max(1.0, static_cast<double>(x.size()) / static_cast<double>(values));
}

// Y = last(sum of fn(x))
template <class Fn, class Last>
Reference reduction(Fn fn, Last last) {
  return [fn, last](CountedCall& c) {
    const std::vector<int64_t> at = places(c, c.x(0).shape);
    for (size_t i = 0; i < at.size(); ++i) c.y(0)[at[i]] += fn(c.x(0).v[i]);
    const double n = elements_per_value(c.x(0).shape, c.out[0].size());
    for (Counted& y : c.y(0)) y = last(y, n);
  };
}

void mean_gradient(CountedCall& c) {
  const std::vector<int64_t> at = places(c, c.x(1).shape);
  Numbers share;
  for (const Counted& dy : c.x(0).v) share.push_back(dy / elements_per_value(c.x(1).shape, c.x(0).size()));
  for (size_t i = 0; i < at.size(); ++i) c.y(0)[i] = share[at[i]];
}

void l2_gradient(CountedCall& c) {
  const std::vector<int64_t> at = places(c, c.x(1).shape);
  for (size_t i = 0; i < at.size(); ++i) {
    const Counted d = c.x(1).v[i] / c.x(2).v[at[i]] * c.x(0).v[at[i]];
    c.y(0)[i] = c.x(2).v[at[i]] > 0 ? d : Counted();
  }
}

// The sum of fn(x), divided if `divides`; of no elements 0.
template <class Fn>
void sum_all(CountedCall& c, bool divides, Fn fn) {
  for (const Counted& x : c.x(0).v) c.y(0)[0] += fn(x);
  if (divides) c.y(0)[0] = c.y(0)[0] / std::max(1.0, static_cast<double>(c.x(0).size()));
}

void share_of_all(CountedCall& c, bool divides) {
  Counted share = c.x(1).v[0];
  if (divides) share = share / std::max(1.0, static_cast<double>(c.out[0].size()));
  for (Counted& dx : c.y(0)) dx = share;
}

bool averages(const CountedCall& c) { return c.whole("average", 0) != 0; }

void sum(CountedCall& c) {
  c.y(0) = c.x(0).v;
  for (size_t k = 1; k < c.in.size(); ++k)
    for (size_t i = 0; i < c.y(0).size(); ++i) c.y(0)[i] += c.in[k].v[i];
}

void weighted_sum(CountedCall& c) {
  for (size_t i = 0; i < c.y(0).size(); ++i) {
    Counted y = c.in[1].v[0] * c.in[0].v[i];
    for (size_t k = 2; k < c.in.size(); k += 2) y += c.in[k + 1].v[0] * c.in[k].v[i];
    c.y(0)[i] = y;
  }
}

// Only counted: which places fall together is SumReduceLike's to know.
void sum_like(CountedCall& c) {
  c.compares = false;
  Counted sum;
  for (const Counted& x : c.x(0).v)
    if (c.x(0).size() > c.out[0].size()) sum += x;
}

void cumsum(CountedCall& c) {
  c.compares = c.whole("exclusive", 0) == 0 && c.whole("reverse", 0) == 0;
  const Shape& s = c.x(0).shape;
  const int axis = canonical_axis(c.whole("axis", 0), s.rank());
  const int64_t inner = s.size_between(axis + 1, s.rank());
  for (int64_t i = 0; i < s.size(); ++i)
    c.y(0)[i] = (i / inner % s[axis] == 0 ? Counted() : c.y(0)[i - inner]) + c.x(0).v[i];
}

void scan(CountedCall& c) {
  const int64_t inner = c.x(0).shape.from(1).size(), steps = c.x(0).shape[0];
  const bool leaving = c.whole("leaving", 0) != 0;
  for (int64_t i = 0; i < inner; ++i) {
    bool zero = !c.x(2).there;
    Counted state = c.x(2).at(i), factor;
    for (int64_t k = 0; k < steps; ++k) {
      const int64_t at = (c.whole("reverse", 0) != 0 ? steps - 1 - k : k) * inner + i;
      if (!zero && (!leaving || k > 0)) state = (leaving ? factor : c.x(0).at(at)) * state;
      state = zero ? c.x(1).at(at) : state + c.x(1).at(at);
      zero = false;
      factor = c.x(0).at(at);
      c.put(0, at, state);
    }
    if (c.wants(1)) c.put(1, i, leaving && steps > 0 ? factor * state : state);
  }
}

void summarize(CountedCall& c) {
  Counted sum, squares, least = c.x(0).v[0], most = least;
  for (const Counted& x : c.x(0).v) sum += x, least = min(least, x), most = max(most, x);
  const auto n = static_cast<double>(c.x(0).size());
  const Counted mean = sum / n;
  for (const Counted& x : c.x(0).v) squares += square(x - mean);
  const Counted deviation = sqrt(squares / std::max(1.0, n - 1));
  if (c.wants(0)) c.y(0) = {least, most, mean, deviation};
}

void elementwise_linear(CountedCall& c) {
  const auto rows = rows_before(c.x(0).shape, c.whole("axis", 1));
  for (int64_t i = 0; i < c.x(0).size(); ++i)
    c.y(0)[i] = c.x(0).v[i] * c.x(1).v[i % rows.size] + c.x(2).v[i % rows.size];
}

void elementwise_linear_gradient(CountedCall& c) {
  const auto rows = rows_before(c.x(0).shape, c.whole("axis", 1));
  for (int64_t i = 0; i < c.x(0).size(); ++i) {
    const Counted dy = c.x(0).v[i];
    if (c.wants(0)) c.y(0)[i] = dy * c.x(2).v[i % rows.size];
    if (c.wants(1)) c.y(1)[i % rows.size] += dy * c.x(1).v[i];
    if (c.wants(2)) c.y(2)[i % rows.size] += dy;
  }
}

}  // namespace

void add_sum_references(References& r) {
  const auto same = [](Counted x) { return x; };
  const auto square = [](Counted x) { return x * x; };
  const auto as_it_is = [](Counted y, double) { return y; };
  r["ReduceSum"] = reduction(same, as_it_is);
  r["ReduceMean"] = reduction(same, [](Counted y, double n) { return y / n; });
  r["ReduceL1"] = reduction([](Counted x) { return abs(x); }, as_it_is);
  r["ReduceL2"] = reduction(square, [](Counted y, double) { return sqrt(y); });
  r["ReduceMeanGradient"] = mean_gradient;
  for (const std::string side : {"ReduceFront", "ReduceBack"}) {
    r[side + "Sum"] = [](CountedCall& c) { front_back(c, false); };
    r[side + "Mean"] = [](CountedCall& c) { front_back(c, true); };
    r[side + "MeanGradient"] = front_back_mean_gradient;
  }
  r["ReduceL2Gradient"] = l2_gradient;
  r["SumElements"] = [=](CountedCall& c) { sum_all(c, averages(c), same); };
  r["SumSqrElements"] = [=](CountedCall& c) { sum_all(c, averages(c), square); };
  r["LpNorm"] = [=](CountedCall& c) {
    const bool squares = c.whole("p", 2) == 2;
    sum_all(c, averages(c), [squares](Counted x) { return squares ? x * x : abs(x); });
  };
  r["LpNormGradient"] = [](CountedCall& c) {
    Counted share = c.x(1).v[0];
    if (averages(c)) share = share / std::max(1.0, static_cast<double>(c.out[0].size()));
    for (size_t i = 0; i < c.y(0).size(); ++i) {
      const Counted x = c.x(0).v[i];
      c.y(0)[i] = (c.whole("p", 2) == 2 ? x + x : x > 0 ? Counted(1) : x < 0 ? Counted(-1) : Counted()) * share;
    }
  };
  r["SumElementsGradient"] = [](CountedCall& c) { share_of_all(c, averages(c)); };
  r["AveragedLoss"] = [=](CountedCall& c) { sum_all(c, true, same); };
  r["AveragedLossGradient"] = [](CountedCall& c) { share_of_all(c, true); };
  r["Sum"] = sum;
  r["WeightedSum"] = weighted_sum;
  r["WeightedSumGradient"] = [](CountedCall& c) {
    const int terms = (static_cast<int>(c.in.size()) - 1) / 2;
    for (int k = 0; k < terms; ++k)
      for (size_t i = 0; i < c.x(0).v.size(); ++i) {
        if (c.wants(k)) c.y(k)[i] = c.x(2 * k + 2).v[0] * c.x(0).v[i];
        if (c.wants(terms + k)) c.y(terms + k)[0] += c.x(0).v[i] * c.x(2 * k + 1).v[i];
      }
  };
  r["WeightedSumWeightGradient"] = [](CountedCall& c) {
    for (size_t i = 0; i < c.x(0).v.size(); ++i) c.y(0)[0] += c.x(0).v[i] * c.x(1).v[i];
  };
  r["SumReduceLike"] = r["MatchShape"] = r["ExpandGradient"] = r["TileGradient"] = sum_like;
  r["Cumsum"] = cumsum;
  r["Scan"] = scan;
  r["Summarize"] = summarize;
  r["ElementwiseLinear"] = elementwise_linear;
  r["ElementwiseLinearGradient"] = elementwise_linear_gradient;
}

}  // namespace stepnet::testing
