#include "tests/recurrent/caffe2_rows.h"

#include <cmath>

namespace stepnet::testing {
namespace {

constexpr int64_t kWidth = 3;  // of states
constexpr float kEpsilon = 1e-4F;

struct LstmKind {
  bool norm = false, multiplicative = false;
  UnitOptions unit = {};
};

std::string name_of(const LstmKind& k) {
  return fmt::format("{}{}Lstm{}{}", k.norm ? "Norm" : "", k.multiplicative ? "Mi" : "",
                     k.unit.drop_states ? "Dropping" : "", k.unit.forget_bias != 0 ? "ForgetBias" : "");
}

Vec normalised(const Vec& a) {
  const double n = static_cast<double>(a.size());
  const Vec centred = a - a.sum() / n;
  return centred / std::sqrt(dot(centred, centred) / n + static_cast<double>(kEpsilon));
}

Vec gates_of(const Weights& w, const LstmKind& k, const Vec& x, const Vec& h_prev) {
  const Vec p = w.affine("W", "b", h_prev);
  Vec gates = k.multiplicative ? Vec((w["alpha"] * x + w["beta_1"]) * p + w["beta_2"] * x + w["b_mi"]) : Vec(x + p);
  if (k.norm) gates = normalised(gates) * w["scale"] + w["bias"];
  return gates;
}

Lines lstm_lines(const LstmKind& k) {
  Lines lines = {"p = FC(h_prev, W, b) axis=2"};
  if (k.multiplicative) {
    lines.insert(lines.end(), {"factor = ElementwiseLinear(x, alpha, beta_1) axis=2", "product = Mul(factor, p)",
                               "addend = ElementwiseLinear(x, beta_2, b_mi) axis=2", "gates = Sum(product, addend)"});
  } else {
    lines.emplace_back("gates = Sum(p, x)");
  }
  if (k.norm)
    lines.insert(lines.end(), {"normed, mean, std = LayerNorm(gates) axis=2", "scaled = Mul(normed, scale) broadcast=1",
                               "gates_norm = Add(scaled, bias) broadcast=1"});
  lines.push_back(
      fmt::format("h, c = LSTMUnit(h_prev, c_prev, {}, lengths, timestep)", k.norm ? "gates_norm" : "gates"));
  return lines;
}

Caffe2Row lstm_row(const LstmKind& k) {
  Caffe2Row row = {
      .name = name_of(k),
      .cell = {.step = {}, .states = {kHidden, kMemory}, .step_net = caffe2_step(lstm_lines(k), k.unit)},
      .reference = [k](const Weights& w, const StepOfStream& now,
                       States& s) { lstm_unit(w, now, k.unit, gates_of(w, k, now.x, s["h"]), s); },
      .width = 4 * kWidth,
      .feeds = {{"h0", {1, -1, kWidth}}, {"c0", {1, -1, kWidth}}, {"W", {4 * kWidth, kWidth}}, {"b", {4 * kWidth}}},
      .choices = {{"h_all"}, {"h_last"}, {"c_all"}, {"h_all", "c_all"}, {}}};
  if (k.multiplicative)
    for (const char* name : {"alpha", "beta_1", "beta_2", "b_mi"}) row.feeds[name] = {4 * kWidth};
  if (k.norm)
    for (const char* name : {"scale", "bias"}) row.feeds[name] = {4 * kWidth};
  return row;
}

// Reset and update gates are made by the step net; GRUUnit reads the update gate's sum and the candidate's.
Lines gru_lines(bool linear_before_reset) {
  Lines lines = {"rx, ux, ox = Split(x) axis=2",
                 "rh = FC(h_prev, W_r, b_r) axis=2",
                 "rs = Sum(rh, rx)",
                 "uh = FC(h_prev, W_u, b_u) axis=2",
                 "us = Sum(uh, ux)",
                 "r = Sigmoid(rs)"};
  if (linear_before_reset) {
    lines.insert(lines.end(), {"oh = FC(h_prev, W_o, b_o) axis=2", "os = Mul(r, oh)"});
  } else {
    lines.insert(lines.end(), {"rh_prev = Mul(r, h_prev)", "os = FC(rh_prev, W_o, b_o) axis=2"});
  }
  lines.insert(lines.end(), {"o = Sum(os, ox)", "gates, sizes = Concat(rs, us, o) axis=2",
                             "h = GRUUnit(h_prev, gates, lengths, timestep)"});
  return lines;
}

Caffe2Row gru_row(bool linear_before_reset, bool drop) {
  const Reference reference = [=](const Weights& w, const StepOfStream& now, States& s) {
    Vec& h = s["h"];
    if (is_over(w, now)) {
      if (drop) h = Vec(0.0, h.size());
      return;
    }
    const Vec r = sigmoid(Vec(part(now.x, 0, 3) + w.affine("W_r", "b_r", h)));
    const Vec u = sigmoid(Vec(part(now.x, 1, 3) + w.affine("W_u", "b_u", h)));
    const Vec seen = linear_before_reset ? Vec(r * w.affine("W_o", "b_o", h)) : w.affine("W_o", "b_o", Vec(r * h));
    h = u * h + (1.0 - u) * std::tanh(Vec(part(now.x, 2, 3) + seen));
  };
  Caffe2Row row = {
      .name = fmt::format("Gru{}{}", linear_before_reset ? "LinearBeforeReset" : "", drop ? "Dropping" : ""),
      .cell = {.step = {}, .states = {kHidden}, .step_net = caffe2_step(gru_lines(linear_before_reset), {drop})},
      .reference = reference,
      .width = 3 * kWidth,
      .feeds = {{"h0", {1, -1, kWidth}}},
      .choices = {{"h_all"}, {"h_last"}, {}}};
  for (const char* gate : {"r", "u", "o"}) {
    row.feeds[fmt::format("W_{}", gate)] = {kWidth, kWidth};
    row.feeds[fmt::format("b_{}", gate)] = {kWidth};
  }
  return row;
}

}  // namespace

void PrintTo(const Caffe2Row& row, std::ostream* out) { *out << row.name; }

NetDef caffe2_step(const Lines& lines, const UnitOptions& options) {
  NetDef net = net_of_lines(lines);
  for (OperatorDef& op : *net.mutable_op()) {
    for (Argument& arg : *op.mutable_arg())
      if (arg.name() == "dims" && arg.has_i()) arg = make_arg("dims", std::vector<int64_t>{arg.i()});
    if (op.type() == "LayerNorm") *op.add_arg() = make_arg("epsilon", kEpsilon);
    if (op.type() == "LSTMUnit" || op.type() == "GRUUnit") *op.add_arg() = make_arg("drop_states", options.drop_states);
    if (op.type() == "LSTMUnit") *op.add_arg() = make_arg("forget_bias", options.forget_bias);
    if (op.type() == "Dropout") *op.add_arg() = make_arg("ratio", 0.0F);
  }
  return net;
}

bool is_over(const Weights& w, const StepOfStream& now) {
  return static_cast<double>(now.t) >= w["lengths"][static_cast<size_t>(now.stream)];
}

void lstm_unit(const Weights& w, const StepOfStream& now, const UnitOptions& o, const Vec& gates, States& s) {
  Vec &h = s["h"], &c = s["c"];
  if (is_over(w, now)) {
    if (o.drop_states) h = c = Vec(0.0, h.size());
    return;
  }
  const Vec f = sigmoid(Vec(part(gates, 1, 4) + static_cast<double>(o.forget_bias)));
  c = f * c + sigmoid(part(gates, 0, 4)) * std::tanh(part(gates, 3, 4));
  h = sigmoid(part(gates, 2, 4)) * std::tanh(c);
}

std::vector<Caffe2Row> lstm_rows() {
  std::vector<Caffe2Row> rows;
  for (const bool norm : {false, true})
    for (const bool multiplicative : {false, true})
      for (const UnitOptions& unit : {UnitOptions{}, {true, 2.5F}, {false, -10.0F}})
        rows.push_back(lstm_row({norm, multiplicative, unit}));
  return rows;
}

std::vector<Caffe2Row> gru_rows() {
  return {gru_row(false, false), gru_row(false, true), gru_row(true, false), gru_row(true, true)};
}

}  // namespace stepnet::testing
