// References of LayerNorm and BatchNorm.
#include "tests/operators/counted.h"

namespace stepnet::testing {
namespace {

// A group of elements that is normalized together: a row, or a channel.
struct Group {
  int64_t index = 0;
  std::vector<int64_t> at;
  double size() const { return static_cast<double>(at.size()); }
};

std::vector<Group> rows_of(const CountedCall& c, int x) {
  const CountedRows rows = rows_before(c.x(x).shape, c.whole("axis", 1));
  std::vector<Group> groups(static_cast<size_t>(rows.count));
  for (int64_t n = 0; n < rows.count; ++n) {
    groups[n].index = n;
    for (int64_t i = 0; i < rows.size; ++i) groups[n].at.push_back(n * rows.size + i);
  }
  return groups;
}

std::vector<Group> channels_of(const CountedCall& c, int x) {
  const Shape& s = c.x(x).shape;
  const bool last = c.text("order") == "NHWC";
  const int64_t count = last ? s[s.rank() - 1] : s[1], inner = last ? 1 : s.size_between(2, s.rank());
  std::vector<Group> groups(static_cast<size_t>(count));
  for (int64_t k = 0; k < count; ++k) groups[k].index = k;
  for (int64_t i = 0; i < s.size(); ++i) groups[i / inner % count].at.push_back(i);
  return groups;
}

template <class Fn>
Counted sum(const Group& g, Fn fn) {
  Counted total;
  for (const int64_t i : g.at) total += fn(i);
  return total;
}

void layer_norm(CountedCall& c) {
  for (const Group& g : rows_of(c, 0)) {
    const auto x = [&](int64_t i) { return c.x(0).v[i]; };
    const auto off = [&](Counted mean) { return [&x, mean](int64_t i) { return square(x(i) - mean); }; };
    const double n = std::max(g.size(), 1.0);
    const Counted mean = sum(g, x) / n, deviation = sqrt(sum(g, off(mean)) / n + c.arg("epsilon", 1e-5F));
    for (const int64_t i : g.at) {
      const Counted u = (x(i) - mean) / deviation;
      const int64_t j = i - g.at[0];
      c.y(0)[i] = c.x(1).there ? c.x(1).v[j] * u + c.x(2).v[j] : u;
    }
    if (c.wants(1)) c.y(1)[g.index] = mean;
    if (c.wants(2)) c.y(2)[g.index] = deviation;
  }
}

// Inputs are dY, Y, mean, std, X, gamma, dmean, dstd.
void layer_norm_gradient(CountedCall& c) {
  for (const Group& g : rows_of(c, 4)) {
    const double n = g.size();
    const Counted mean = c.x(2).v[g.index], deviation = c.x(3).v[g.index];
    Numbers u, e;
    for (const int64_t i : g.at) {
      const int64_t j = i - g.at[0];
      u.push_back((c.x(4).v[i] - mean) / deviation);
      e.push_back(c.x(0).at(i));
      if (c.wants(0) && c.x(5).there) e.back() = e.back() * c.x(5).v[j];
      if (c.wants(1)) c.y(1)[j] += c.x(0).at(i) * u.back();
      if (c.wants(2)) c.y(2)[j] += c.x(0).at(i);
    }
    if (!c.wants(0)) continue;
    Counted along, slope;
    for (size_t j = 0; j < u.size(); ++j) along += e[j], slope += e[j] * u[j];
    const Counted a = along / n, b = slope / n, of_mean = c.x(6).at(g.index) / n, of_std = c.x(7).at(g.index) / n;
    for (size_t j = 0; j < u.size(); ++j) c.y(0)[g.at[j]] = (e[j] - a - u[j] * b) / deviation + of_mean + of_std * u[j];
  }
}

void batch_norm(CountedCall& c) {
  const bool test = c.whole("is_test", 0) != 0;
  const double keep = c.arg("momentum", 0.9F), add = 1 - keep;
  for (const Group& g : channels_of(c, 0)) {
    const int64_t k = g.index;
    const auto x = [&](int64_t i) { return c.x(0).v[i]; };
    Counted mean = c.x(3).v[k], variance = c.x(4).v[k];
    if (!test) {
      mean = sum(g, x) / g.size();
      variance = sum(g, [&](int64_t i) { return square(x(i) - mean); }) / g.size();
      c.y(1)[k] = keep * c.x(3).v[k] + add * mean;
      const double m = g.size(), share = c.def.type() == "SpatialBN" && m > 1 ? m / (m - 1) : 1;
      c.y(2)[k] = keep * c.x(4).v[k] + add * share * variance;
    }
    const Counted inv = 1 / sqrt(variance + c.arg("epsilon", 1e-5F));
    for (const int64_t i : g.at) c.y(0)[i] = (x(i) - mean) * inv * c.x(1).v[k] + c.x(2).v[k];
    if (c.wants(3)) c.y(3)[k] = mean;
    if (c.wants(4)) c.y(4)[k] = inv;
  }
}

// Inputs are X, scale, dY, mean, inv_std, dmean, dinv_std.
void batch_norm_gradient(CountedCall& c) {
  for (const Group& g : channels_of(c, 0)) {
    const int64_t k = g.index;
    const double m = g.size();
    const auto dy = [&](int64_t i) { return c.x(2).at(i); };
    if (!c.wants(0) && !c.wants(1)) {
      c.y(2)[k] = sum(g, dy);
      continue;
    }
    const Counted inv = c.x(4).v[k];
    Numbers u;
    for (const int64_t i : g.at) u.push_back((c.x(0).v[i] - c.x(3).v[k]) * inv);
    Counted constant, slope;
    for (size_t j = 0; j < u.size(); ++j) constant += dy(g.at[j]), slope += dy(g.at[j]) * u[j];
    if (c.wants(1)) c.y(1)[k] = slope;
    if (c.wants(2)) c.y(2)[k] = constant;
    if (!c.wants(0)) continue;
    const Counted factor = c.x(1).v[k] * inv;
    const Counted a = (c.x(5).at(k) - factor * constant) / m, b = (factor * slope + c.x(6).at(k) * inv * inv) / m;
    for (size_t j = 0; j < u.size(); ++j) c.y(0)[g.at[j]] = factor * dy(g.at[j]) + a - b * u[j];
  }
}

}  // namespace

void add_norm_references(References& r) {
  r["LayerNorm"] = layer_norm;
  r["LayerNormGradient"] = layer_norm_gradient;
  r["BatchNorm"] = r["SpatialBN"] = batch_norm;
  r["BatchNormGradient"] = r["SpatialBNGradient"] = batch_norm_gradient;
}

}  // namespace stepnet::testing
