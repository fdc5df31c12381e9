#include "tests/recurrent/layers.h"

#include <algorithm>
#include <cmath>

namespace stepnet::testing {
namespace {

int64_t gates_of(CellKind cell) { return cell == CellKind::lstm ? 4 : cell == CellKind::gru ? 3 : 1; }

const char* type_of(CellKind cell) { return cell == CellKind::lstm ? "LSTM" : cell == CellKind::gru ? "GRU" : "RNN"; }

Tensor feed(const Feeds& feeds, const std::string& name) {
  const auto it = std::ranges::find(feeds, name, &Feeds::value_type::first);
  return it == feeds.end() ? Tensor() : it->second;
}

struct State {
  Vec h, c;
};

// One timestep of one layer in one direction. `part` is layer * directions + direction.
using StepFunction = State (*)(const Layers& l, const Weights& w, int part, const Vec& x, const State& before);

Vec activation(const Layers& l, const Vec& v) {
  if (l.nonlinearity == "relu") return v.apply([](double a) { return a > 0 ? a : 0.0; });
  return std::tanh(v);
}

// torch.nn.RNN, GRU and LSTM, as their documentation writes them.
State pytorch_step(const Layers& l, const Weights& w, int part, const Vec& x, const State& before) {
  const int layer = part / l.directions;
  const std::string suffix = fmt::format("_l{}{}", layer, part % l.directions == 1 ? "_reverse" : "");
  const Vec a = w.affine("weight_ih" + suffix, "bias_ih" + suffix, x);
  const Vec b = w.affine("weight_hh" + suffix, "bias_hh" + suffix, before.h);
  if (l.cell == CellKind::rnn) return {activation(l, a + b), {}};
  if (l.cell == CellKind::gru) {
    const Vec r = sigmoid(testing::part(a, 0, 3) + testing::part(b, 0, 3));
    const Vec z = sigmoid(testing::part(a, 1, 3) + testing::part(b, 1, 3));
    const Vec n = std::tanh(Vec(testing::part(a, 2, 3) + r * testing::part(b, 2, 3)));
    return {(1.0 - z) * n + z * before.h, {}};
  }
  const Vec s = a + b;
  const Vec i = sigmoid(testing::part(s, 0, 4));
  const Vec f = sigmoid(testing::part(s, 1, 4) + static_cast<double>(l.forget_bias));
  const Vec g = std::tanh(testing::part(s, 2, 4)), o = sigmoid(testing::part(s, 3, 4));
  const Vec c = f * before.c + i * g;
  return {o * std::tanh(c), c};
}

// The rows of gate `g` of a direction in W or R [D, G * H, inputs], times v.
Vec gate(const Layers& l, const Weights& w, const std::string& name, int direction, int g, const Vec& v) {
  const auto h = static_cast<size_t>(l.width);
  Vec y(0.0, h);
  const int64_t first = (direction * gates_of(l.cell) + g) * l.width;
  for (size_t i = 0; i < h; ++i) {
    const Vec all = w[name];
    const auto size = v.size(), at = (static_cast<size_t>(first) + i) * size;
    y[i] = dot(Vec(all[std::slice(at, size, 1)]), v);
  }
  return y;
}

// The ONNX operators RNN, GRU and LSTM, as their specification writes them.
State onnx_step(const Layers& l, const Weights& w, int part, const Vec& x, const State& before) {
  const int layer = part / l.directions, d = part % l.directions;
  const std::string suffix = fmt::format("_l{}", layer);
  const auto gates = static_cast<int>(gates_of(l.cell));
  auto of_x = [&](int g) { return gate(l, w, "W" + suffix, d, g, x); };
  auto of_h = [&](int g, const Vec& h) { return gate(l, w, "R" + suffix, d, g, h); };
  auto bias = [&](int g) {  // g from `gates` on is the second half
    const auto h = static_cast<size_t>(l.width), at = static_cast<size_t>(2 * d * gates + g) * h;
    return Vec(w["B" + suffix][std::slice(at, h, 1)]);
  };
  auto sum = [&](int g) { return Vec(of_x(g) + of_h(g, before.h) + bias(g) + bias(gates + g)); };
  if (l.cell == CellKind::rnn) return {activation(l, sum(0)), {}};
  if (l.cell == CellKind::gru) {
    const Vec z = sigmoid(sum(0)), r = sigmoid(sum(1));
    const Vec past =
        l.linear_before_reset ? Vec(r * (of_h(2, before.h) + bias(5))) : Vec(of_h(2, Vec(r * before.h)) + bias(5));
    const Vec candidate = std::tanh(Vec(of_x(2) + past + bias(2)));
    return {(1.0 - z) * candidate + z * before.h, {}};
  }
  const Vec i = sigmoid(sum(0)), o = sigmoid(sum(1)), c = std::tanh(sum(3));
  const Vec f = sigmoid(Vec(sum(2) + static_cast<double>(l.forget_bias)));
  const Vec cell = f * before.c + i * c;
  return {o * std::tanh(cell), cell};
}

// The loop over layers, directions, streams and time, which both libraries have in common.
class Loop {
 public:
  Loop(const Layers& l, const Feeds& feeds, WeightOrder order) : l_(l), weights_(converted(l, feeds, order)) {
    x_ = to_double(feed(feeds, "X"));
    steps_ = x_.dim(0);
    batch_ = x_.dim(1);
    for (int64_t n = 0; n < batch_; ++n)
      lengths_.push_back(l.lengths ? feed(feeds, "lengths").data<int32_t>()[n] : steps_);
  }

  std::map<std::string, Tensor> run(StepFunction step) {
    const int parts = l_.layers * l_.directions;
    Tensor h_n = Tensor::zeros(DType::float64, {parts, batch_, l_.width}), c_n = h_n.clone(), below = x_;
    for (int layer = 0; layer < l_.layers; ++layer) {
      Tensor all = Tensor::zeros(DType::float64, {steps_, batch_, l_.directions * l_.width});
      for (int d = 0; d < l_.directions; ++d)
        for (int64_t n = 0; n < batch_; ++n) {
          const int part = layer * l_.directions + d;
          const State last = run_stream(step, part, n, below, all);
          put(h_n, part, n, 0, last.h);
          put(c_n, part, n, 0, last.c);
        }
      below = all;
    }
    std::map<std::string, Tensor> results = {{"Y", below}, {"h_n", h_n}};
    if (l_.cell == CellKind::lstm) results["c_n"] = c_n;
    return results;
  }

 private:
  static Weights converted(const Layers& l, const Feeds& feeds, WeightOrder order) {
    std::map<std::string, Tensor> blobs(feeds.begin(), feeds.end());
    std::vector<Tensor> given;
    for (const std::string& name : weight_names(l.weights(), WeightOrder::stepnet)) given.push_back(blobs.at(name));
    const auto weights = convert_weights(l.weights(), WeightOrder::stepnet, order, given);
    const auto names = weight_names(l.weights(), order);
    for (size_t i = 0; i < names.size(); ++i) blobs[names[i]] = weights[i];
    return Weights(blobs);
  }

  static Vec row(const Tensor& t, int64_t at, int64_t n) {
    const int64_t size = t.shape().at(-1);
    return Vec(t.data<double>() + (at * t.dim(1) + n) * size, static_cast<size_t>(size));
  }
  static void put(Tensor& t, int64_t at, int64_t n, int64_t column, const Vec& v) {
    std::copy(std::begin(v), std::end(v), t.data<double>() + (at * t.dim(1) + n) * t.shape().at(-1) + column);
  }

  State run_stream(StepFunction step, int part, int64_t n, const Tensor& below, Tensor& all) const {
    const Vec zeros(0.0, static_cast<size_t>(l_.width));
    State state{zeros, zeros};
    if (l_.initial) state.h = weights_.row("h0", part, n);
    if (l_.initial && l_.cell == CellKind::lstm) state.c = weights_.row("c0", part, n);
    const bool reverse = part % l_.directions == 1;
    for (int64_t k = 0; k < lengths_[static_cast<size_t>(n)]; ++k) {
      const int64_t t = reverse ? lengths_[static_cast<size_t>(n)] - 1 - k : k;
      state = step(l_, weights_, part, row(below, t, n), state);
      put(all, t, n, reverse ? l_.width : 0, state.h);
    }
    return state;
  }

  const Layers& l_;
  Weights weights_;
  Tensor x_;
  int64_t steps_ = 0, batch_ = 0;
  std::vector<int64_t> lengths_;
};

}  // namespace

std::string name_of(const Layers& l) {
  return fmt::format("{}{}layers{}directions{}", type_of(l.cell), l.layers, l.directions, l.lengths ? "lengths" : "");
}

void PrintTo(const Layers& l, std::ostream* out) { *out << name_of(l); }

NetDef net_of(const Layers& l) {
  std::vector<std::string> inputs = {"X", l.initial ? "h0" : ""}, outputs = {"Y", "h_n"};
  if (l.cell == CellKind::lstm) inputs.emplace_back(l.initial ? "c0" : ""), outputs.emplace_back("c_n");
  for (const std::string& name : weight_names(l.weights(), WeightOrder::stepnet)) inputs.push_back(name);
  if (l.lengths) inputs.emplace_back("lengths");
  NetDef net;
  net.set_name("layers");
  OperatorDef& op = *net.add_op();
  op = make_op(
      type_of(l.cell), inputs, outputs,
      {make_arg("hidden", l.width), make_arg("layers", l.layers), make_arg("bidirectional", l.directions == 2)});
  op.set_name("cells");
  if (l.dropout > 0) *op.add_arg() = make_arg("dropout", l.dropout);
  if (l.is_test) *op.add_arg() = make_arg("is_test", true);
  if (l.nonlinearity != "tanh") *op.add_arg() = make_arg("nonlinearity", l.nonlinearity);
  if (!l.linear_before_reset) *op.add_arg() = make_arg("linear_before_reset", false);
  if (l.forget_bias != 0) *op.add_arg() = make_arg("forget_bias", l.forget_bias);
  for (const std::string& name : inputs)
    if (!name.empty()) net.add_external_input(name);
  for (const std::string& name : outputs) net.add_external_output(name);
  return net;
}

Feeds feeds_of(const Layers& l, DType dtype, int64_t steps, int64_t batch) {
  Feeds feeds;
  auto add = [&](const std::string& name, const Shape& shape) {
    const uint64_t seed = 40 + feeds.size();
    feeds.emplace_back(
        name, dtype == DType::float64 ? normal<double>(shape, seed, 0, 0.7) : normal<float>(shape, seed, 0, 0.7));
  };
  add("X", {steps, batch, l.inputs});
  const int64_t parts = l.layers * l.directions, rows = gates_of(l.cell) * l.width;
  if (l.initial) add("h0", {parts, batch, l.width});
  if (l.initial && l.cell == CellKind::lstm) add("c0", {parts, batch, l.width});
  const auto names = weight_names(l.weights(), WeightOrder::stepnet);
  for (size_t i = 0; i < names.size(); i += 4) {
    const bool lowest = i < size_t{4} * static_cast<size_t>(l.directions);
    add(names[i], {rows, lowest ? l.inputs : l.directions * l.width});
    add(names[i + 1], {rows, l.width});
    add(names[i + 2], {rows});
    add(names[i + 3], {rows});
  }
  if (l.lengths) feeds.emplace_back("lengths", integers<int32_t>({batch}, 0, steps, 99));
  return feeds;
}

std::map<std::string, Tensor> run_as_pytorch(const Layers& l, const Feeds& feeds) {
  return Loop(l, feeds, WeightOrder::pytorch).run(pytorch_step);
}

std::map<std::string, Tensor> run_as_onnx(const Layers& l, const Feeds& feeds) {
  return Loop(l, feeds, WeightOrder::onnx).run(onnx_step);
}

}  // namespace stepnet::testing
