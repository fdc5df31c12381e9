// The formulas of tools/examples/cells, each written from its published source as a plain function of one timestep.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "tests/recurrent/cell_files.h"

namespace stepnet::testing {
namespace {

struct LstmState {
  Vec h, c;
};

// Gates' sums in the order i, f, o, g.
LstmState lstm(const Vec& sums, const Vec& c_prev, double forget_bias = 0) {
  const Vec i = sigmoid(part(sums, 0, 4)), f = sigmoid(Vec(part(sums, 1, 4) + forget_bias));
  const Vec o = sigmoid(part(sums, 2, 4)), g = std::tanh(part(sums, 3, 4));
  const Vec c = f * c_prev + i * g;
  return {o * std::tanh(c), c};
}

Vec both(const Weights& w, const Vec& x, const Vec& h, const std::string& layer = "") {
  return w.affine("W_x" + layer, "b_x" + layer, x) + w.affine("W_h" + layer, "b_h" + layer, h);
}

void put(States& s, const LstmState& new_state, const std::string& layer = "") {
  s["h" + layer] = new_state.h;
  s["c" + layer] = new_state.c;
}

void rnn_tanh(const Weights& w, const StepOfStream& now, States& s) { s["h"] = std::tanh(both(w, now.x, s["h"])); }

Vec relu(const Vec& x) {
  return x.apply([](double v) { return v > 0 ? v : 0; });
}

Vec larger(const Vec& a, const Vec& b) {
  Vec y(a.size());
  for (size_t i = 0; i < y.size(); ++i) y[i] = std::max(a[i], b[i]);
  return y;
}

Vec cumulative_softmax(const Vec& x) {
  Vec y = std::exp(x);
  y /= y.sum();
  std::partial_sum(std::begin(y), std::end(y), std::begin(y));
  return y;
}

void rnn_relu(const Weights& w, const StepOfStream& now, States& s) { s["h"] = relu(both(w, now.x, s["h"])); }

void lstm_of_lengths(const Weights& w, const StepOfStream& now, States& s) {
  if (static_cast<double>(now.t) < w["lengths"][static_cast<size_t>(now.stream)])
    put(s, lstm(both(w, now.x, s["h"]), s["c"]));
}

void lstm_forget_bias(const Weights& w, const StepOfStream& now, States& s) {
  put(s, lstm(both(w, now.x, s["h"]), s["c"], 1));
}

void lstm_peephole(const Weights& w, const StepOfStream& now, States& s) {
  const Vec sums = both(w, now.x, s["h"]), old = s["c"];
  const Vec i = sigmoid(part(sums, 0, 4) + w["p_i"] * old), f = sigmoid(part(sums, 1, 4) + w["p_f"] * old);
  const Vec c = f * old + i * std::tanh(part(sums, 3, 4));
  const Vec o = sigmoid(part(sums, 2, 4) + w["p_o"] * c);
  put(s, {o * std::tanh(c), c});
}

void lstm_projection(const Weights& w, const StepOfStream& now, States& s) {
  const LstmState m = lstm(both(w, now.x, s["h"]), s["c"]);
  put(s, {w.affine("W_p", "", m.h), m.c});
}

void lstm_coupled(const Weights& w, const StepOfStream& now, States& s) {
  const Vec sums = both(w, now.x, s["h"]);
  const Vec f = sigmoid(part(sums, 0, 3)), o = sigmoid(part(sums, 1, 3));
  const Vec c = f * s["c"] + (1.0 - f) * std::tanh(part(sums, 2, 3));
  put(s, {o * std::tanh(c), c});
}

void gru(const Weights& w, const StepOfStream& now, States& s) {
  const Vec x = w.affine("W_x", "b_x", now.x), h = w.affine("W_h", "b_h", s["h"]);
  const Vec r = sigmoid(part(x, 0, 3) + part(h, 0, 3)), z = sigmoid(part(x, 1, 3) + part(h, 1, 3));
  const Vec n = std::tanh(Vec(part(x, 2, 3) + r * part(h, 2, 3)));
  s["h"] = (1.0 - z) * n + z * s["h"];
}

void gru_reset_before(const Weights& w, const StepOfStream& now, States& s) {
  const Vec x = w.affine("W_x", "b_x", now.x), h = w.affine("W_h", "b_h", s["h"]);
  const Vec r = sigmoid(part(x, 0, 3) + part(h, 0, 2)), z = sigmoid(part(x, 1, 3) + part(h, 1, 2));
  const Vec n = std::tanh(Vec(part(x, 2, 3) + w.affine("W_n", "b_n", r * s["h"])));
  s["h"] = (1.0 - z) * n + z * s["h"];
}

Vec normalised(const Weights& w, const Vec& a, const std::string& which) {
  const double n = static_cast<double>(a.size()), mean = a.sum() / n;
  const Vec centred = a - mean;
  const double variance = dot(centred, centred) / n;
  return w["s_" + which] * centred / std::sqrt(variance + static_cast<double>(1e-5F)) + w["d_" + which];
}

void lstm_layer_norm(const Weights& w, const StepOfStream& now, States& s) {
  const Vec sums =
      normalised(w, w.affine("W_x", "b_x", now.x), "x") + normalised(w, w.affine("W_h", "b_h", s["h"]), "h");
  const Vec c = lstm(sums, s["c"]).c;
  put(s, {sigmoid(part(sums, 2, 4)) * std::tanh(normalised(w, c, "c")), c});
}

void lstm_multiplicative(const Weights& w, const StepOfStream& now, States& s) {
  const Vec p = w.affine("W_x", "b_x", now.x), q = w.affine("W_h", "b_h", s["h"]);
  const Vec sums = w["alpha"] * p * q + w["beta_1"] * q + w["beta_2"] * p + w["b"];
  put(s, lstm(sums, s["c"]));
}

void lstm_two_layers(const Weights& w, const StepOfStream& now, States& s) {
  put(s, lstm(both(w, now.x, s["h1"], "1"), s["c1"]), "1");
  put(s, lstm(both(w, s["h1"], s["h2"], "2"), s["c2"]), "2");
}

void residual_stack(const Weights& w, const StepOfStream& now, States& s) {
  put(s, lstm(both(w, now.x, s["h1"], "1"), s["c1"]), "1");
  const Vec y1 = now.x + s["h1"];
  put(s, lstm(both(w, y1, s["h2"], "2"), s["c2"]), "2");
  s["y"] = y1 + s["h2"];
}

void highway_stack(const Weights& w, const StepOfStream& now, States& s) {
  s["h1"] = std::tanh(both(w, now.x, s["h1"], "1"));
  s["h2"] = std::tanh(both(w, s["h1"], s["h2"], "2"));
  const Vec t = sigmoid(w.affine("W_t", "b_t", s["h1"]));
  s["y"] = t * s["h2"] + (1.0 - t) * s["h1"];
}

void recurrent_highway(const Weights& w, const StepOfStream& now, States& s) {
  auto layer = [](const Vec& sums, const Vec& carried) {
    const Vec t = sigmoid(part(sums, 1, 2));
    return Vec(std::tanh(part(sums, 0, 2)) * t + carried * (1.0 - t));
  };
  const Vec m = layer(w.affine("W_x", "b_x", now.x) + w.affine("W_1", "b_1", s["h"]), s["h"]);
  s["h"] = layer(w.affine("W_2", "b_2", m), m);
}

void minimal_gated(const Weights& w, const StepOfStream& now, States& s) {
  const Vec x = w.affine("W_x", "b_x", now.x);
  const Vec f = sigmoid(part(x, 0, 2) + w.affine("W_f", "b_f", s["h"]));
  const Vec n = std::tanh(Vec(part(x, 1, 2) + w.affine("W_n", "b_n", f * s["h"])));
  s["h"] = (1.0 - f) * s["h"] + f * n;
}

void min_gru(const Weights& w, const StepOfStream& now, States& s) {
  const Vec sums = w.affine("W_x", "b_x", now.x), z = sigmoid(part(sums, 0, 2));
  s["h"] = (1.0 - z) * s["h"] + z * part(sums, 1, 2);
}

void min_lstm(const Weights& w, const StepOfStream& now, States& s) {
  const Vec sums = w.affine("W_x", "b_x", now.x);
  const Vec f = sigmoid(part(sums, 0, 3)), i = sigmoid(part(sums, 1, 3));
  s["h"] = (f * s["h"] + i * part(sums, 2, 3)) / (f + i);
}

void li_gru(const Weights& w, const StepOfStream& now, States& s) {
  const Vec sums = w.affine("W_x", "b_x", now.x) + w.affine("W_h", "", s["h"]);
  const Vec z = sigmoid(part(sums, 0, 2)), n = relu(part(sums, 1, 2));
  s["h"] = z * s["h"] + (1.0 - z) * n;
}

void ind_rnn(const Weights& w, const StepOfStream& now, States& s) {
  s["h"] = relu(w.affine("W_x", "b_x", now.x) + w["u"] * s["h"]);
}

void sru(const Weights& w, const StepOfStream& now, States& s) {
  const Vec f = sigmoid(w.affine("W_f", "b_f", now.x) + w["v_f"] * s["c"]);
  const Vec r = sigmoid(w.affine("W_r", "b_r", now.x) + w["v_r"] * s["c"]);
  s["c"] = f * s["c"] + (1.0 - f) * w.affine("W_c", "", now.x);
  s["h"] = r * s["c"] + (1.0 - r) * now.x;
}

// Gates' sums in the order i, f, o, z. Without the stabiliser, but for what is stored: c and n times exp(-m).
void put_s_lstm(const Vec& sums, States& s) {
  const Vec i = std::exp(part(sums, 0, 4)), f = sigmoid(part(sums, 1, 4)), factor = std::exp(s["m"]);
  const Vec c = f * factor * s["c"] + i * std::tanh(part(sums, 3, 4)), n = f * factor * s["n"] + i;
  s["h"] = sigmoid(part(sums, 2, 4)) * c / n;
  s["m"] = larger(std::log(f) + s["m"], part(sums, 0, 4));
  s["c"] = c / std::exp(s["m"]);
  s["n"] = n / std::exp(s["m"]);
}

void s_lstm(const Weights& w, const StepOfStream& now, States& s) {
  put_s_lstm(w.affine("W_x", "b_x", now.x) + w.affine("W_h", "", s["h"]), s);
}

void on_lstm(const Weights& w, const StepOfStream& now, States& s) {
  const Vec sums = both(w, now.x, s["h"]);
  const Vec i = sigmoid(part(sums, 0, 6)), f = sigmoid(part(sums, 1, 6));
  const Vec o = sigmoid(part(sums, 2, 6)), g = std::tanh(part(sums, 3, 6));
  const Vec master_f = cumulative_softmax(part(sums, 4, 6)), master_i = 1.0 - cumulative_softmax(part(sums, 5, 6));
  const Vec overlap = master_f * master_i;
  const Vec c = (f * overlap + (master_f - overlap)) * s["c"] + (i * overlap + (master_i - overlap)) * g;
  put(s, {o * std::tanh(c), c});
}

void ode_rk4(const Weights& w, const StepOfStream& now, States& s) {
  const double d = 3.0 / 16;
  const Vec from_x = w.affine("W_x", "b_x", now.x), h = s["h"];
  auto slope = [&](const Vec& at) { return Vec(std::tanh(Vec(from_x + w.affine("W_h", "", at))) - at); };
  const Vec k1 = slope(h), k2 = slope(h + d / 2 * k1), k3 = slope(h + d / 2 * k2), k4 = slope(h + d * k3);
  s["h"] = h + d / 6 * (k1 + 2.0 * k2 + 2.0 * k3 + k4);
}

void selective_scan(const Weights& w, const StepOfStream& now, States& s) {
  const Vec sums = w.affine("W_dt", "b_dt", w.affine("W_r", "", now.x)), dt = std::log(Vec(1.0 + std::exp(sums)));
  const Vec u = w.affine("W_B", "", now.x), q = w.affine("W_C", "", now.x), a = -std::exp(w["A_log"]);
  Vec h = s["h"], y = w["skip"] * now.x;
  for (size_t i = 0; i < h.size(); ++i) {
    const size_t channel = i / u.size(), d = i % u.size();
    h[i] = std::exp(dt[channel] * a[i]) * h[i] + dt[channel] * u[d] * now.x[channel];
    y[channel] += h[i] * q[d];
  }
  s["h"] = h;
  s["y"] = y;
}

// Without the stabiliser, but for what is stored: a and b times exp(-p).
void rwkv(const Weights& w, const StepOfStream& now, States& s) {
  const Vec x = part(now.x, 0, 2), x_before = part(now.x, 1, 2);
  auto mixed = [&](const std::string& which) {
    const Vec mu = w["mu_" + which];
    return w.affine("W_" + which, "", mu * x + (1.0 - mu) * x_before);
  };
  const Vec r = sigmoid(mixed("r")), k = mixed("k"), v = mixed("v"), rate = std::exp(w["log_w"]);
  const Vec a = s["a"] * std::exp(s["p"]), b = s["b"] * std::exp(s["p"]), now_weight = std::exp(Vec(w["bonus"] + k));
  s["y"] = w.affine("W_o", "", r * (a + now_weight * v) / (b + now_weight));
  s["p"] = larger(s["p"] - rate, k);
  s["a"] = (std::exp(-rate) * a + std::exp(k) * v) / std::exp(s["p"]);
  s["b"] = (std::exp(-rate) * b + std::exp(k)) / std::exp(s["p"]);
}

void qrnn(const Weights& w, const StepOfStream& now, States& s) {
  const Vec sums = w.affine("W_x", "b_x", now.x);
  const Vec f = sigmoid(part(sums, 1, 3));
  s["c"] = f * s["c"] + (1.0 - f) * std::tanh(part(sums, 0, 3));
  s["h"] = sigmoid(part(sums, 2, 3)) * s["c"];
}

void lstm_zoneout_in_evaluation(const Weights& w, const StepOfStream& now, States& s) {
  const LstmState next = lstm(both(w, now.x, s["h"]), s["c"]);
  put(s, {0.125 * s["h"] + 0.875 * next.h, 0.25 * s["c"] + 0.75 * next.c});
}

void lstm_variational_dropout(const Weights& w, const StepOfStream& now, States& s) {
  const Vec x = now.x * w.row("m_x", 0, now.stream), h = s["h"] * w.row("m_h", 0, now.stream);
  put(s, lstm(both(w, x, h), s["c"]));
}

// The context from scores, which are a function of an encoder's output.
template <class Score>
Vec attended(const Weights& w, int64_t stream, Score score) {
  Vec total(0.0, w.row("encoder", 0, stream).size());
  double sum = 0;
  for (int64_t place = 0; place < w.rows("encoder"); ++place) {
    const Vec e = w.row("encoder", place, stream);
    const double weight = std::exp(score(e));
    total += weight * e;
    sum += weight;
  }
  return total / sum;
}

template <bool kRecurrent>
void attention_additive(const Weights& w, const StepOfStream& now, States& s) {
  const Vec before = s["context"];
  put(s, lstm(both(w, joined(now.x, before), s["h"]), s["c"]));
  s["context"] = attended(w, now.stream, [&](const Vec& e) {
    Vec sums = w.affine("W_k", "b_k", e) + w.affine("W_q", "b_q", s["h"]);
    if (kRecurrent) sums += w.affine("W_c", "b_c", before);
    return dot(w["w_v"], std::tanh(sums)) + w["b_v"][0];
  });
}

void attention_dot(const Weights& w, const StepOfStream& now, States& s) {
  put(s, lstm(both(w, joined(now.x, s["context"]), s["h"]), s["c"]));
  s["context"] = attended(w, now.stream, [&](const Vec& e) { return dot(e, s["h"]); });
}

// Matrices are their rows, one behind the other.
Vec product(const Vec& matrix, const Vec& x) {
  Vec y(0.0, matrix.size() / x.size());
  for (size_t i = 0; i < y.size(); ++i) y[i] = dot(part(matrix, i, y.size()), x);
  return y;
}

Vec product_transposed(const Vec& matrix, const Vec& y) {
  Vec x(0.0, matrix.size() / y.size());
  for (size_t i = 0; i < y.size(); ++i) x += y[i] * part(matrix, i, y.size());
  return x;
}

Vec outer_product(const Vec& a, const Vec& b) {
  Vec matrix(a.size() * b.size());
  for (size_t i = 0; i < matrix.size(); ++i) matrix[i] = a[i / b.size()] * b[i % b.size()];
  return matrix;
}

// Rows of W_x are all gates of the first head, then those of the second, and states are head by head.
void s_lstm_heads(const Weights& w, const StepOfStream& now, States& s) {
  const Vec from_x = w.affine("W_x", "b_x", now.x), all = w["W_h"], h = s["h"];
  Vec sums(from_x.size());
  const size_t units = h.size() / 2;
  for (size_t head = 0; head < 2; ++head) {
    const Vec own = part(from_x, head, 2) + product_transposed(part(all, head, 2), part(h, head, 2));
    for (size_t gate = 0; gate < 4; ++gate) sums[std::slice((2 * gate + head) * units, units, 1)] = part(own, gate, 4);
  }
  put_s_lstm(sums, s);
}

void lif(const Weights& w, const StepOfStream& now, States& s) {
  s["v"] = w["beta"] * s["v"] + w.affine("W_x", "b_x", now.x) + w.affine("W_s", "", s["s"]) - s["s"];
  s["s"] = s["v"].apply([](double v) { return v > 1 ? 1.0 : 0.0; });
}

void clockwork(const Weights& w, const StepOfStream& now, States& s) {
  const Vec h1 = s["h1"], h2 = s["h2"], h3 = s["h3"], slower = joined(h2, h3);
  s["h1"] = std::tanh(Vec(w.affine("W_x1", "b_1", now.x) + w.affine("W_1", "", joined(h1, slower))));
  if (now.t % 2 == 0) s["h2"] = std::tanh(Vec(w.affine("W_x2", "b_2", now.x) + w.affine("W_2", "", slower)));
  if (now.t % 4 == 0) s["h3"] = std::tanh(Vec(w.affine("W_x3", "b_3", now.x) + w.affine("W_3", "", h3)));
  s["y"] = joined(s["h1"], joined(s["h2"], s["h3"]));
}

void gru_resets(const Weights& w, const StepOfStream& now, States& s) {
  const size_t inputs = now.x.size() - 1;
  s["h"] *= 1 - now.x[inputs];
  gru(w, {now.t, now.stream, now.x[std::slice(0, inputs, 1)]}, s);
}

void rssm(const Weights& w, const StepOfStream& now, States& s) {
  const Vec u = std::tanh(w.affine("W_u", "b_u", joined(s["z"], part(now.x, 0, 3))));
  gru(w, {now.t, now.stream, u}, s);
  const Vec prior = w.affine("W_p", "b_p", s["h"]);
  const Vec posterior = w.affine("W_q", "b_q", joined(s["h"], part(now.x, 1, 3)));
  auto deviation = [](const Vec& sums) { return Vec(std::log(Vec(1.0 + std::exp(part(sums, 1, 2))))); };
  const Vec sigma_p = deviation(prior), sigma_q = deviation(posterior);
  const Vec m_p = part(prior, 0, 2), m_q = part(posterior, 0, 2), apart = m_q - m_p;
  s["z"] = m_q + sigma_q * part(now.x, 2, 3);
  s["kl"] = std::log(sigma_p / sigma_q) + (sigma_q * sigma_q + apart * apart) / (2.0 * sigma_p * sigma_p) - 0.5;
}

void delta_rule(const Weights& w, const StepOfStream& now, States& s) {
  const Vec k = w.affine("W_k", "", now.x), error = product(s["W"], k) - w.affine("W_v", "", now.x);
  s["W"] -= sigmoid(w.affine("W_b", "b_b", now.x))[0] * outer_product(error, k);
  s["y"] = product(s["W"], w.affine("W_q", "", now.x));
}

Vec unit(const Vec& x) { return x / std::sqrt(dot(x, x)); }

void gated_delta_rule(const Weights& w, const StepOfStream& now, States& s) {
  const Vec k = unit(w.affine("W_k", "", now.x)), kept = sigmoid(w.affine("W_a", "b_a", now.x))[0] * s["S"];
  const Vec error = product(kept, k) - w.affine("W_v", "", now.x);
  s["S"] = kept - sigmoid(w.affine("W_b", "b_b", now.x))[0] * outer_product(error, k);
  s["y"] = product(s["S"], unit(w.affine("W_q", "", now.x)));
}

void gated_retention(const Weights& w, const StepOfStream& now, States& s) {
  const Vec added = outer_product(w.affine("W_v", "", now.x), w.affine("W_k", "", now.x));
  s["S"] = sigmoid(w.affine("W_a", "b_a", now.x))[0] * s["S"] + added;
  s["y"] = sigmoid(w.affine("W_o", "", now.x)) * product(s["S"], w.affine("W_q", "", now.x));
}

// Without the stabiliser, but for what is stored: C and n times exp(-m).
void m_lstm(const Weights& w, const StepOfStream& now, States& s) {
  const Vec k = w.affine("W_k", "", now.x), q = w.affine("W_q", "", now.x), v = w.affine("W_v", "", now.x);
  const Vec gates = w.affine("W_g", "b_g", now.x);
  const double i = std::exp(gates[0]), f = 1 / (1 + std::exp(-gates[1])), stored = std::exp(s["m"][0]);
  const Vec all = f * stored * s["C"] + i * outer_product(v, k), n = f * stored * s["n"] + i * k;
  s["h"] = sigmoid(w.affine("W_o", "b_o", now.x)) * product(all, q) / std::max(std::abs(dot(n, q)), 1.0);
  s["m"] = Vec(std::max(std::log(f) + s["m"][0], gates[0]), 1);
  s["C"] = all / std::exp(s["m"][0]);
  s["n"] = n / std::exp(s["m"][0]);
}

void rwkv7(const Weights& w, const StepOfStream& now, States& s) {
  const Vec k = w.affine("W_k", "", now.x), a = sigmoid(w.affine("W_a", "b_a", now.x)), c = unit(w["xi"] * k);
  const double most = -0.60653066F;  // the argument of Scale
  const Vec decay = std::exp(most * sigmoid(w.affine("W_w", "b_w", now.x)));
  const Vec k_new = k * (1.0 + (a - 1.0) * w["alpha"]), v = w.affine("W_v", "", now.x), read = product(s["S"], c);
  Vec kept = s["S"];
  for (size_t i = 0; i < kept.size(); ++i) kept[i] *= decay[i % decay.size()];
  s["S"] = kept - outer_product(read, a * c) + outer_product(v, k_new);
  s["y"] = product(s["S"], w.affine("W_r", "", now.x));
}

void titans_memory(const Weights& w, const StepOfStream& now, States& s) {
  const Vec k = w.affine("W_k", "", now.x), rates = sigmoid(w.affine("W_g", "b_g", now.x));
  const Vec hidden = std::tanh(product(s["M1"], k));
  const Vec error = product(s["M2"], hidden) - w.affine("W_v", "", now.x);
  const Vec below = product_transposed(s["M2"], error) * (1.0 - hidden * hidden);
  auto learn = [&](const std::string& layer, const Vec& gradient) {
    s["S" + layer] = rates[0] * s["S" + layer] - rates[1] * gradient;
    s["M" + layer] = (1.0 - rates[2]) * s["M" + layer] + s["S" + layer];
  };
  learn("1", outer_product(below, k));
  learn("2", outer_product(error, hidden));
  s["y"] = product(s["M2"], std::tanh(product(s["M1"], w.affine("W_q", "", now.x))));
}

double mean(const Vec& x) { return x.sum() / static_cast<double>(x.size()); }

// The gradient of the layer normalisation: with u = (z - mean) / std and g the gradient that reaches u, that of z is
// (g - mean(g) - u mean(g u)) / std.
void ttt(const Weights& w, const StepOfStream& now, States& s) {
  const Vec k = w.affine("W_k", "", now.x), q = w.affine("W_q", "", now.x), gamma = w["gamma"], beta = w["beta"];
  const double eta = sigmoid(w.affine("W_e", "b_e", now.x))[0] / 4;
  auto deviation = [](const Vec& z) {
    return std::sqrt(mean((z - mean(z)) * (z - mean(z))) + static_cast<double>(1e-5F));
  };
  const Vec z = product(s["W"], k) + s["b"], u = (z - mean(z)) / deviation(z);
  const Vec g = gamma * (k + gamma * u + beta - w.affine("W_v", "", now.x));
  const Vec dz = (g - mean(g) - u * mean(g * u)) / deviation(z);
  s["W"] -= eta * outer_product(dz, k);
  s["b"] -= eta * dz;
  const Vec answer = product(s["W"], q) + s["b"];
  s["y"] = q + gamma * (answer - mean(answer)) / deviation(answer) + beta;
}

}  // namespace

const std::vector<CellFile>& cell_files() {
  static const std::vector<CellFile> files = {
      {"attention_additive", attention_additive<false>},
      {"attention_dot", attention_dot},
      {"attention_recurrent", attention_additive<true>},
      {"clockwork", clockwork},
      {"delta_rule", delta_rule},
      {"gated_delta_rule", gated_delta_rule},
      {"gated_retention", gated_retention},
      {"gru", gru},
      {"gru_reset_before", gru_reset_before},
      {"gru_resets", gru_resets},
      {"highway_stack", highway_stack},
      {"ind_rnn", ind_rnn},
      {"li_gru", li_gru},
      {"lif", lif, false, true},
      {"lstm", lstm_of_lengths},
      {"lstm_coupled", lstm_coupled},
      {"lstm_forget_bias", lstm_forget_bias},
      {"lstm_layer_norm", lstm_layer_norm},
      {"lstm_multiplicative", lstm_multiplicative},
      {"lstm_peephole", lstm_peephole},
      {"lstm_projection", lstm_projection},
      {"lstm_two_layers", lstm_two_layers},
      {"lstm_variational_dropout", lstm_variational_dropout},
      {"lstm_zoneout", lstm_zoneout_in_evaluation, true},
      {"m_lstm", m_lstm},
      {"min_gru", min_gru},
      {"min_lstm", min_lstm},
      {"minimal_gated", minimal_gated},
      {"ode_rk4", ode_rk4},
      {"on_lstm", on_lstm},
      {"qrnn", qrnn},
      {"recurrent_highway", recurrent_highway},
      {"residual_stack", residual_stack},
      {"rnn_relu", rnn_relu},
      {"rnn_tanh", rnn_tanh},
      {"rssm", rssm},
      {"rwkv", rwkv},
      {"rwkv7", rwkv7},
      {"s_lstm", s_lstm},
      {"s_lstm_heads", s_lstm_heads},
      {"selective_scan", selective_scan},
      {"sru", sru},
      {"titans_memory", titans_memory},
      {"ttt", ttt},
  };
  return files;
}

}  // namespace stepnet::testing
