// References of LayerNorm and BatchNorm. What their gradients' gradients leave out if it is not wanted is counted all
// the same.
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

// Inputs are mean, std, X, dY, gamma, dstd, ddX, ddgamma, ddbeta; outputs the gradients of dY, mean, std, X, gamma,
// dmean, dstd.
void layer_norm_second(CountedCall& c) {
  const auto gamma = [&c](int64_t j) { return c.x(4).there ? c.x(4).v[j] : Counted(1); };
  const std::vector<Group> rows = rows_of(c, 2);
  Numbers gamma_grad(rows.empty() ? 0 : rows[0].at.size());
  for (const Group& g : rows) {
    const double n = g.size();
    const Counted deviation = c.x(1).v[g.index];
    Numbers u, e, a, v;
    Counted h_sum, e_sum, hu, eu;
    for (const int64_t i : g.at) {
      const Counted h = c.x(6).at(i);
      u.push_back((c.x(2).v[i] - c.x(0).v[g.index]) / deviation);
      e.push_back(c.x(3).at(i) * gamma(i - g.at[0]));
      h_sum += h, e_sum += e.back(), hu += h * u.back(), eu += e.back() * u.back();
    }
    const Counted h_mean = h_sum / n, hu_mean = hu / n, eu_mean = eu / n, of_std = c.x(5).at(g.index) / n;
    Counted v_sum, vu, ae;
    for (size_t j = 0; j < u.size(); ++j) {
      const Counted h = c.x(6).at(g.at[j]), dy = c.x(3).at(g.at[j]), k = c.x(7).at(static_cast<int64_t>(j));
      a.push_back((h - h_mean - u[j] * hu_mean) / deviation);
      v.push_back(h * of_std + dy * k - (hu_mean * e[j] + eu_mean * h) / deviation);
      v_sum += v[j], vu += v[j] * u[j], ae += a[j] * e[j];
      c.put(0, g.at[j], gamma(static_cast<int64_t>(j)) * a[j] + k * u[j] + c.x(8).at(static_cast<int64_t>(j)));
      c.put(3, g.at[j], v[j] / deviation);
      gamma_grad[j] += dy * a[j];
    }
    c.put(1, g.index, -v_sum / deviation);
    c.put(2, g.index, -(vu + ae) / deviation);
    c.put(5, g.index, h_mean);
    c.put(6, g.index, hu_mean);
  }
  for (size_t j = 0; j < gamma_grad.size(); ++j) c.put(4, static_cast<int64_t>(j), gamma_grad[j]);
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
      c.y(2)[k] = keep * c.x(4).v[k] + add * variance;
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

// Inputs are X, scale, dY, mean, inv_std, dinv_std, ddX, ddscale, ddbias; outputs the gradients of X, scale, dY, mean,
// inv_std, dmean, dinv_std.
void batch_norm_second(CountedCall& c) {
  for (const Group& g : channels_of(c, 0)) {
    const int64_t k = g.index;
    const double m = g.size();
    const Counted inv = c.x(4).v[k], scale = c.x(1).v[k], dinv = c.x(5).at(k), of_scale = c.x(7).at(k);
    Counted h_sum, d_sum, hd, hu, du, v_sum, vu;
    Numbers u;
    for (const int64_t i : g.at) {
      const Counted h = c.x(6).at(i), d = c.x(2).at(i);
      u.push_back((c.x(0).v[i] - c.x(3).v[k]) * inv);
      h_sum += h, d_sum += d, hd += h * d, hu += h * u.back(), du += d * u.back();
    }
    const Counted factor = scale * inv, h_mean = h_sum / m, hu_mean = hu / m, du_mean = du / m;
    const Counted r = hd - h_mean * d_sum - hu_mean * du, of_dinv = dinv * inv * inv / m;
    for (size_t j = 0; j < u.size(); ++j) {
      const Counted h = c.x(6).at(g.at[j]), d = c.x(2).at(g.at[j]);
      c.put(2, g.at[j], factor * (h - h_mean - u[j] * hu_mean) + of_scale * u[j] + c.x(8).at(k));
      const Counted v = of_scale * d - factor * (h * du_mean + d * hu_mean) - of_dinv * h;
      c.put(0, g.at[j], v * inv);
      v_sum += v, vu += v * u[j];
    }
    c.put(1, k, inv * r);
    c.put(3, k, -inv * v_sum);
    c.put(4, k, vu / inv + scale * r - 2 * dinv * inv * hu_mean);
    c.put(5, k, h_mean);
    c.put(6, k, -inv * inv * hu_mean);
  }
}

}  // namespace

void add_norm_references(References& r) {
  r["LayerNorm"] = layer_norm;
  r["LayerNormGradient"] = layer_norm_gradient;
  r["LayerNormSecondGradient"] = layer_norm_second;
  r["BatchNorm"] = r["SpatialBN"] = batch_norm;
  r["BatchNormGradient"] = r["SpatialBNGradient"] = batch_norm_gradient;
  r["BatchNormSecondGradient"] = batch_norm_second;
}

}  // namespace stepnet::testing
