#include "tests/recurrent/lstm_reference.h"

#include <cmath>

namespace stepnet::testing {
namespace {

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// One row of the batch at one timestep.
struct Place {
  bool valid = false;
  Numbers h_prev, c_prev, h, c, i, f, o, g, dlogits;
};

struct Lstm {
  const LstmModel& m;
  std::vector<Place> places = {};  // [T, B]
  LstmResults results = {};

  Place& at(int t, int b) { return places[t * m.batch + b]; }
  double value(const char* name, int index) const { return m.values.at(name)[index]; }
  double& gradient(const char* name, int index) { return results.gradients.at(name)[index]; }
  int token(int t, int b) const { return m.tokens[t * m.batch + b]; }

  double gate_sum(int t, int b, int row) {
    double sum = value("bx", row) + value("bh", row);
    for (int k = 0; k < m.embedding; ++k)
      sum += value("Wx", row * m.embedding + k) * value("table", token(t, b) * m.embedding + k);
    for (int k = 0; k < m.width; ++k) sum += value("Wh", row * m.width + k) * at(t, b).h_prev[k];
    return sum;
  }

  void forward_cell(int t, int b) {
    Place& p = at(t, b);
    p.valid = t < m.lengths[b];
    for (int j = 0; j < m.width; ++j) {
      p.h_prev.push_back(t > 0 ? at(t - 1, b).h[j] : value("h0", b * m.width + j));
      p.c_prev.push_back(t > 0 ? at(t - 1, b).c[j] : value("c0", b * m.width + j));
    }
    for (int j = 0; j < m.width; ++j) {
      p.i.push_back(sigmoid(gate_sum(t, b, j)));
      p.f.push_back(sigmoid(gate_sum(t, b, m.width + j) + m.forget_bias));
      p.o.push_back(sigmoid(gate_sum(t, b, 2 * m.width + j)));
      p.g.push_back(std::tanh(gate_sum(t, b, 3 * m.width + j)));
      const double c = p.f[j] * p.c_prev[j] + p.i[j] * p.g[j];
      p.c.push_back(p.valid ? c : m.drop_states ? 0 : p.c_prev[j]);
      p.h.push_back(p.valid ? p.o[j] * std::tanh(c) : m.drop_states ? 0 : p.h_prev[j]);
    }
  }

  void forward_loss(int t, int b) {
    Place& p = at(t, b);
    const int count = m.steps * m.batch;
    double sum = 0;
    for (int v = 0; v < m.classes; ++v) {
      double logit = value("bo", v);
      for (int k = 0; k < m.width; ++k) logit += value("Wo", v * m.width + k) * p.h[k];
      p.dlogits.push_back(std::exp(logit));
      sum += std::exp(logit);
    }
    const int next = m.next[t * m.batch + b];
    results.loss -= std::log(p.dlogits[next] / sum) / count;
    for (int v = 0; v < m.classes; ++v) p.dlogits[v] = (p.dlogits[v] / sum - (v == next ? 1 : 0)) / count;
  }

  void add_gate_gradient(int t, int b, int row, double d, Numbers& dh_prev) {
    gradient("bx", row) += d;
    gradient("bh", row) += d;
    for (int k = 0; k < m.embedding; ++k) {
      const int entry = token(t, b) * m.embedding + k;
      gradient("Wx", row * m.embedding + k) += d * value("table", entry);
      gradient("table", entry) += d * value("Wx", row * m.embedding + k);
    }
    for (int k = 0; k < m.width; ++k) {
      gradient("Wh", row * m.width + k) += d * at(t, b).h_prev[k];
      dh_prev[k] += d * value("Wh", row * m.width + k);
    }
  }

  // On entry dh and dc are the gradients of the states after the step, on return of those before it.
  void backward(int t, int b, Numbers& dh, Numbers& dc) {
    const Place& p = at(t, b);
    for (int v = 0; v < m.classes; ++v) {
      gradient("bo", v) += p.dlogits[v];
      for (int k = 0; k < m.width; ++k) {
        gradient("Wo", v * m.width + k) += p.dlogits[v] * p.h[k];
        dh[k] += p.dlogits[v] * value("Wo", v * m.width + k);
      }
    }
    if (!p.valid) {
      if (m.drop_states) dh.assign(m.width, 0), dc.assign(m.width, 0);
      return;
    }
    Numbers dh_prev(m.width, 0);
    for (int j = 0; j < m.width; ++j) {
      const double tanh_c = std::tanh(p.c[j]);
      const double e = dc[j] + dh[j] * p.o[j] * (1 - tanh_c * tanh_c);
      add_gate_gradient(t, b, j, e * p.g[j] * p.i[j] * (1 - p.i[j]), dh_prev);
      add_gate_gradient(t, b, m.width + j, e * p.c_prev[j] * p.f[j] * (1 - p.f[j]), dh_prev);
      add_gate_gradient(t, b, 2 * m.width + j, dh[j] * tanh_c * p.o[j] * (1 - p.o[j]), dh_prev);
      add_gate_gradient(t, b, 3 * m.width + j, e * p.i[j] * (1 - p.g[j] * p.g[j]), dh_prev);
      dc[j] = e * p.f[j];
    }
    dh = dh_prev;
  }
};

}  // namespace

LstmResults run_lstm(const LstmModel& model) {
  Lstm lstm{model};
  lstm.places.resize(model.steps * model.batch);
  for (const auto& [name, values] : model.values) lstm.results.gradients[name].assign(values.size(), 0);
  for (int t = 0; t < model.steps; ++t)
    for (int b = 0; b < model.batch; ++b) {
      lstm.forward_cell(t, b);
      lstm.forward_loss(t, b);
    }
  for (int b = 0; b < model.batch; ++b) {
    Numbers dh(model.width, 0), dc(model.width, 0);
    for (int t = model.steps - 1; t >= 0; --t) lstm.backward(t, b, dh, dc);
    for (int j = 0; j < model.width; ++j) {
      lstm.gradient("h0", b * model.width + j) = dh[j];
      lstm.gradient("c0", b * model.width + j) = dc[j];
    }
  }
  return lstm.results;
}

}  // namespace stepnet::testing
