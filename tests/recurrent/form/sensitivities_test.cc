// Gradients over a stream that is run in chunks, with what sensitivities carry from one to the next: beside
// backpropagation through the whole stream where they are exact, and beside plain loops where they are approximations.
#include "recurrent/form/sensitivities.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "stepnet/gradients.h"
#include "stepnet/net.h"
#include "tests/core/errors.h"
#include "tests/recurrent/unrolled.h"

namespace stepnet::testing::sensitivities_test {
namespace {

constexpr double kTolerance = 1e-12;
constexpr const char* kGiven = "_given";

// A cell over a stream [T, B, K] of x. The gradients of all its states at all timesteps are given.
struct Stream {
  Cell cell;
  Feeds feeds;  // X, the states before the first timestep, and parameters
  std::function<void(NetDef&)> change = {};

  Tensor at(const std::string& name) const { return std::ranges::find(feeds, name, &Feeds::value_type::first)->second; }
  bool is_data(const std::string& name) const {
    const auto is_state = [&](const CellState& s) { return s.initial == name; };
    return name == "X" || name == "Y" || std::ranges::any_of(cell.states, is_state);
  }
  std::set<std::string> parameters() const {
    std::set<std::string> names;
    for (const auto& [name, value] : feeds)
      if (!is_data(name)) names.insert(name);
    return names;
  }
  NetDef net() const {
    NetDef net = recurrent_net(cell, feeds);
    if (change) change(net);
    return net;
  }
};

using Values = std::map<std::string, Tensor>;

Tensor given_for(const CellState& state, const Shape& shape) {
  return normal<double>(shape, 70 + state.all.size() + static_cast<uint64_t>(state.all[0]));
}

void add_to(Tensor& sum, const Tensor& more) {
  if (!sum.defined()) sum = Tensor::zeros(DType::float64, more.shape());
  for (int64_t i = 0; i < more.size(); ++i) sum.data<double>()[i] += more.data<double>()[i];
}

// A net with gradients, over a stream: chunk by chunk in one workspace, or all at once.
class Run {
 public:
  Run(const Stream& stream, const LearningRule* rule) : stream_(stream) {
    NetDef net = stream.net();
    if (rule)
      carried_ = add_sensitivities(net, {*rule, stream.parameters()});
    else
      expand_net(net);
    GradientRequest request;
    request.wanted = stream.parameters();
    for (const CellState& s : stream.cell.states) {
      request.targets.emplace_back(s.all, s.all + kGiven);
      if (net.external_input_size() > 0) net.add_external_input(s.all + kGiven);
    }
    gradients_ = add_gradient_operators(net, request);
    use_test_device(net);
    for (const auto& [name, value] : stream.feeds) workspace_.tensor(name) = value.clone();
    if (rule) start();
    net_ = std::make_unique<Net>(net, workspace_);
  }

  static void expand_net(NetDef& net);

  void start() {
    NetDef start = carried_.start;
    use_test_device(start);
    Net bound(start, workspace_);
    RunContext run;
    bound.run(run);
  }

  void step(int64_t begin, int64_t end) {
    for (const char* name : {"X", "Y"})
      if (workspace_.find(name)) workspace_.tensor(name) = stream_.at(name).rows(begin, end - begin).clone();
    for (const CellState& s : stream_.cell.states) {
      const Tensor first = stream_.at(s.initial);
      const Shape all = {stream_.at("X").dim(0), first.dim(1), first.dim(2)};
      workspace_.tensor(s.all + kGiven) = given_for(s, all).rows(begin, end - begin).clone();
    }
    RunContext run;
    net_->run(run);
    for (const std::string& p : stream_.parameters())
      if (const auto g = gradients_.gradients.find(p); g != gradients_.gradients.end())
        add_to(sums[p], workspace_.fetch(g->second.dense));
    for (const CellState& s : stream_.cell.states)
      workspace_.tensor(s.initial) = Tensor(workspace_.fetch(s.last)).clone();
    for (const CarriedSensitivity& c : carried_.carried)
      workspace_.tensor(c.first) = Tensor(workspace_.fetch(c.last)).clone();
  }

  const Sensitivities& carried() const { return carried_; }
  Workspace& workspace() { return workspace_; }
  Values sums;

 private:
  const Stream& stream_;
  Sensitivities carried_;
  GradientResult gradients_;
  Workspace workspace_;
  std::unique_ptr<Net> net_;
};

void Run::expand_net(NetDef& net) {
  stepnet::add_tangent_operators(net, {.given = {}, .wanted = {}, .stop = {}, .fixed_storages = false});
}

Values whole(const Stream& stream) {
  Run run(stream, nullptr);
  run.step(0, stream.at("X").dim(0));
  return run.sums;
}

Values in_chunks(const Stream& stream, int64_t size, LearningRule rule = LearningRule::rtrl) {
  Run run(stream, &rule);
  const int64_t steps = stream.at("X").dim(0);
  for (int64_t t = 0; t < steps; t += size) run.step(t, std::min(t + size, steps));
  return run.sums;
}

std::string compare_all(const Values& found, const Values& expected) {
  std::string text;
  for (const auto& [name, value] : expected) {
    if (found.count(name) == 0) {
      text += name + " is missing\n";
      continue;
    }
    const std::string wrong = compare(found.at(name), value, kTolerance, ErrorScale::tensor);
    if (!wrong.empty()) text += fmt::format("{}: {}\n", name, wrong);
  }
  return text;
}

constexpr int64_t kSteps = 7, kInputs = 3, kUnits = 4;

Feeds feeds_of(int64_t batch, const std::vector<std::string>& states, const Feeds& parameters) {
  Feeds feeds = {{"X", normal<double>({kSteps, batch, kInputs}, 1)}};
  for (const std::string& s : states)
    feeds.emplace_back(s, normal<double>({1, batch, kUnits}, 2 + s.size() + static_cast<uint64_t>(s[0])));
  feeds.insert(feeds.end(), parameters.begin(), parameters.end());
  return feeds;
}

Tensor weights(int64_t rows, int64_t columns, uint64_t seed) { return normal<double>({rows, columns}, seed, 0, 0.5); }
Tensor vector(int64_t size, uint64_t seed) { return uniform<double>({size}, 0.2, 0.9, seed); }

const std::vector<CellState> kOneState = {{"h_prev", "h", "h0", "h_all", "h_last"}};
const std::vector<CellState> kTwoStates = {{"h_prev", "h", "h0", "h_all", "h_last"},
                                           {"c_prev", "c", "c0", "c_all", "c_last"}};

Stream leaky(int64_t batch) {
  return {{.step = {"u = FC(x, W, b) axis=2", "n = Tanh(u)", "d = Sub(h_prev, n)", "m = Mul(d, a) broadcast=1",
                    "h = Sum(n, m)"},
           .states = kOneState},
          feeds_of(batch, {"h0"},
                   {{"W", weights(kUnits, kInputs, 3)}, {"b", vector(kUnits, 4)}, {"a", vector(kUnits, 5)}})};
}

Stream gated(int64_t batch) {
  return {{.step = {"u = FC(x, W, b) axis=2", "v = FC(x, V) axis=2", "n = Tanh(u)", "z = Sigmoid(v)",
                    "d = Sub(h_prev, n)", "m = Mul(z, d)", "h = Sum(n, m)"},
           .states = kOneState},
          feeds_of(batch, {"h0"},
                   {{"W", weights(kUnits, kInputs, 3)}, {"b", vector(kUnits, 4)}, {"V", weights(kUnits, kInputs, 5)}})};
}

// The second state is made of the first one, after the step and before it.
Stream coupled(int64_t batch) {
  return {
      {.step = {"u = FC(x, W, b) axis=2", "f = Sigmoid(u)", "k = Mul(f, c_prev)", "t = Tanh(h_prev)", "l = Mul(t, a)",
                "c = Sum(k, l)", "o = Tanh(c)", "p = Mul(o, f)", "e = Mul(g, h_prev)", "h = Add(p, e)"},
       .states = kTwoStates},
      feeds_of(batch, {"h0", "c0"},
               {{"W", weights(kUnits, kInputs, 3)},
                {"b", vector(kUnits, 4)},
                {"a", vector(kUnits, 5)},
                {"g", vector(1, 6)}})};
}

// Complex numbers, turned and made smaller: (h, c) is the state's real and imaginary part.
Stream turning(int64_t batch) {
  return {{.step = {"size = Sigmoid(nu)", "cos = Cos(angle)", "sin = Sin(angle)", "re = Mul(size, cos)",
                    "im = Mul(size, sin)", "u = FC(x, W) axis=2", "v = FC(x, V) axis=2", "a = Mul(re, h_prev)",
                    "b = Mul(im, c_prev)", "d = Sub(a, b)", "h = Sum(d, u)", "e = Mul(im, h_prev)",
                    "f = Mul(c_prev, re)", "c = Sum(e, f, v)"},
           .states = kTwoStates},
          feeds_of(batch, {"h0", "c0"},
                   {{"W", weights(kUnits, kInputs, 3)},
                    {"V", weights(kUnits, kInputs, 4)},
                    {"nu", vector(kUnits, 5)},
                    {"angle", vector(kUnits, 6)}})};
}

// Gates of one product, taken apart; an input that the step computes; and one that no parameter has a part in.
Stream split(int64_t batch) {
  return {{.step = {"y = Sqr(x)", "xy = Concat(x, y) axis=2", "g = FC(xy, W, b) axis=2", "gv, gz = Split(g) axis=2",
                    "r = Sqrt(y)", "z = Sigmoid(gz)", "d = Sub(h_prev, gv)", "m = Mul(z, d)", "s = Sum(gv, m)",
                    "q = Mul(s, s)", "t = Tanh(r)", "h = Sub(s, q)"},
           .states = kOneState},
          feeds_of(batch, {"h0"}, {{"W", weights(2 * kUnits, 2 * kInputs, 3)}, {"b", vector(2 * kUnits, 4)}})};
}

Stream lstm(int64_t batch) {
  return {{.step = {"g = FC(x, W, b) axis=2", "h, c = LSTMUnit(h_prev, c_prev, g, timestep) sequence_lengths=0"},
           .states = kTwoStates},
          feeds_of(batch, {"h0", "c0"}, {{"W", weights(4 * kUnits, kInputs, 3)}, {"b", vector(4 * kUnits, 4)}})};
}

// The product stands in front of the network; of its weights one factor is trained.
Stream outside(int64_t batch) {
  Stream s = {{.step = {"m = Mul(h_prev, A)", "h = Add(m, x)"}, .states = kOneState, .sequences = {{"U", "x"}}},
              feeds_of(batch, {"h0"},
                       {{"W", weights(kUnits, kInputs, 3)}, {"b", vector(kUnits, 4)}, {"a", vector(kUnits, 5)}})};
  s.change = [](NetDef& net) {
    const OperatorDef network = net.op(0);
    net.clear_op();
    *net.add_op() = make_op("Mul", {"W", "W"}, {"WW"});
    *net.add_op() = make_op("Sigmoid", {"a"}, {"A"});
    *net.add_op() = make_op("FC", {"X", "WW", "b"}, {"U"}, {make_arg("axis", 2)});
    *net.add_op() = network;
  };
  return s;
}

struct Exact {
  std::string name;
  Stream (*stream)(int64_t batch);
};
void PrintTo(const Exact& e, std::ostream* out) { *out << e.name; }

class Sensitive : public ::testing::TestWithParam<Exact> {};

TEST_P(Sensitive, ChunksAddUpToTheWhole) {
  for (const int64_t batch : {1, 2, 3, 0}) {
    const Stream stream = GetParam().stream(batch);
    const Values expected = whole(stream);
    for (const int64_t size : {int64_t{1}, int64_t{3}, kSteps})
      EXPECT_EQ(compare_all(in_chunks(stream, size), expected), "") << size << " of batch " << batch;
  }
}

INSTANTIATE_TEST_SUITE_P(Cells, Sensitive,
                         ::testing::Values(Exact{"leaky", leaky}, Exact{"gated", gated}, Exact{"coupled", coupled},
                                           Exact{"turning", turning}, Exact{"split", split}, Exact{"lstm", lstm},
                                           Exact{"outside", outside}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace stepnet::testing::sensitivities_test
