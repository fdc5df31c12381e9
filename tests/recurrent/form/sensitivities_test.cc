// Gradients over a stream that is run in chunks, with what sensitivities carry from one to the next: beside
// backpropagation through the whole stream where they are exact, and beside plain loops where they are approximations.
#include "recurrent/form/sensitivities.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "recurrent/form/short_form.h"
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
class StreamRun {
 public:
  StreamRun(const Stream& stream, const LearningRule* rule) : stream_(stream) {
    NetDef net = stream.net();
    if (rule)
      carried_ = add_sensitivities(net, {*rule, stream.parameters()});
    else
      expand_recurrent(net);
    GradientRequest request;
    request.wanted = stream.parameters();
    for (const CellState& s : stream.cell.states) {
      request.targets.emplace_back(s.all, s.all + kGiven);
      if (net.external_input_size() > 0) net.add_external_input(s.all + kGiven);
    }
    gradients_ = add_gradient_operators(net, request);
    use_test_device(net);
    for (const auto& [name, value] : stream.feeds) put(name, value);
    if (rule) start();
    net_ = std::make_unique<Net>(net, workspace_);
  }

  void start() {
    NetDef start = carried_.start;
    use_test_device(start);
    Net bound(start, workspace_);
    RunContext run;
    bound.run(run);
  }

  void step(int64_t begin, int64_t end) {
    for (const char* name : {"X", "Y"})
      if (workspace_.find(name)) put(name, stream_.at(name).rows(begin, end - begin));
    for (const CellState& s : stream_.cell.states) {
      const Tensor first = stream_.at(s.initial);
      const Shape all = {stream_.at("X").dim(0), first.dim(1), first.dim(2)};
      put(s.all + kGiven, given_for(s, all).rows(begin, end - begin));
    }
    RunContext run;
    net_->run(run);
    for (const std::string& p : stream_.parameters())
      if (const auto g = gradients_.gradients.find(p); g != gradients_.gradients.end())
        add_to(sums[p], get(g->second.dense));
    for (const CellState& s : stream_.cell.states) put(s.initial, get(s.last));
    for (const CarriedSensitivity& c : carried_.carried) put(c.first, get(c.last));
  }

  const Sensitivities& carried() const { return carried_; }
  Tensor get(const std::string& name) const { return on_device(workspace_.fetch(name), {}); }
  Values sums;

 private:
  void put(const std::string& name, const Tensor& value) {
    workspace_.tensor(name) = on_device(value.clone(), test_device());
  }

  const Stream& stream_;
  Sensitivities carried_;
  GradientResult gradients_;
  Workspace workspace_;
  std::unique_ptr<Net> net_;
};

Values whole(const Stream& stream) {
  StreamRun run(stream, nullptr);
  run.step(0, stream.at("X").dim(0));
  return run.sums;
}

Values in_chunks(const Stream& stream, int64_t size, LearningRule rule = LearningRule::rtrl) {
  StreamRun run(stream, &rule);
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

// A state that is a product as it is, and is read a timestep later; and weights that have two products.
Stream delayed(int64_t batch) {
  return {{.step = {"y = Tanh(x)", "h = FC(x, W, b) axis=2", "v = FC(y, W, a) axis=2", "k = Mul(a, c_prev)",
                    "m = Mul(h_prev, v)", "c = Sum(k, m)"},
           .states = kTwoStates},
          feeds_of(batch, {"h0", "c0"},
                   {{"W", weights(kUnits, kInputs, 3)}, {"b", vector(kUnits, 4)}, {"a", vector(kUnits, 5)}})};
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

// Networks in full form; FCs of one input have become one.
TEST_P(Sensitive, TakesFullForms) {
  Stream stream = GetParam().stream(2);
  const Values expected = whole(stream);
  stream.change = [change = stream.change](NetDef& net) {
    if (change) change(net);
    expand_recurrent(net);
  };
  if (GetParam().name == "split")  // a product with a Concat has become products with its parts
    expect_contains(error_text([&] { in_chunks(stream, 3); }), "FCColumns");
  else
    EXPECT_EQ(compare_all(in_chunks(stream, 3), expected), "");
}

// Without what is carried the sums are others, so that the comparisons above say something.
TEST_P(Sensitive, CarriesSomething) {
  const Stream stream = GetParam().stream(2);
  const LearningRule rule = LearningRule::rtrl;
  StreamRun run(stream, &rule);
  for (int64_t t = 0; t < kSteps; ++t) {
    run.start();
    run.step(t, t + 1);
  }
  EXPECT_NE(compare_all(run.sums, whole(stream)), "");
}

TEST_P(Sensitive, LeavesValuesAsTheyAre) {
  const Stream stream = GetParam().stream(3);
  const LearningRule rule = LearningRule::rtrl;
  StreamRun plain(stream, nullptr), carrying(stream, &rule);
  for (int64_t t = 0; t < kSteps; ++t) {
    plain.step(t, t + 1);
    carrying.step(t, t + 1);
    for (const CellState& s : stream.cell.states)
      EXPECT_EQ(compare(carrying.get(s.all), plain.get(s.all), 1e-14), "") << s.all;
  }
}

INSTANTIATE_TEST_SUITE_P(Cells, Sensitive,
                         ::testing::Values(Exact{"leaky", leaky}, Exact{"gated", gated}, Exact{"coupled", coupled},
                                           Exact{"turning", turning}, Exact{"split", split}, Exact{"lstm", lstm},
                                           Exact{"outside", outside}, Exact{"delayed", delayed}),
                         [](const auto& info) { return info.param.name; });

// Chunks of any sizes, empty ones among them.
TEST(Sensitivities, TakesChunksOfNoTimesteps) {
  const Stream stream = coupled(2);
  const LearningRule rule = LearningRule::rtrl;
  StreamRun run(stream, &rule);
  const std::vector<int64_t> ends = {0, 2, 2, 3, 7, 7};
  for (size_t i = 1; i < ends.size(); ++i) run.step(ends[i - 1], ends[i]);
  EXPECT_EQ(compare_all(run.sums, whole(stream)), "");
}

TEST(Sensitivities, TakesStatesOfNoUnits) {
  Stream stream = leaky(2);
  for (auto& [name, value] : stream.feeds) {
    if (name == "X") continue;
    Shape shape = value.shape();
    shape = shape.with(name == "h0" ? 2 : 0, 0);
    value = Tensor::zeros(DType::float64, shape);
  }
  EXPECT_EQ(compare_all(in_chunks(stream, 3), whole(stream)), "");
}

// Beside the first chunks, whose memory is not yet there.
TEST(Sensitivities, MemoryDoesNotGrowWithTheStream) {
  const auto peak = [](int64_t steps) {
    Stream stream = coupled(2);
    const LearningRule rule = LearningRule::rtrl;
    StreamRun run(stream, &rule);
    run.step(0, 5);
    run.step(0, 5);
    const int64_t before = allocator({}).counters().live;
    allocator({}).reset_peak();
    for (int64_t t = 0; t < steps; t += 5) run.step(0, 5);
    return std::pair(before, allocator({}).counters().peak);
  };
  EXPECT_EQ(peak(1000), peak(100000));
}

// --- Approximations, by plain loops -----------------------------------------------------------------------------

double at(const Tensor& t, int64_t i) { return t.data<double>()[i]; }

// h = g h_prev + tanh(u), u = W x + b + R h_prev, with the sensitivities of unit n to row n of each parameter.
class LeakyByHand {
 public:
  LeakyByHand(const Stream& stream, bool keeps_diagonal)
      : stream_(stream), keeps_diagonal_(keeps_diagonal), batch_(stream.at("X").dim(1)), h_(stream.at("h0").clone()) {
    for (const char* p : {"W", "b", "R", "g"}) sums[p] = Tensor::zeros(DType::float64, stream.at(p).shape());
    of_w_.resize(batch_ * kUnits * kInputs), of_r_.resize(batch_ * kUnits * kUnits);
    of_b_.resize(batch_ * kUnits), of_g_.resize(batch_ * kUnits);
  }

  void chunk(int64_t begin, int64_t end) {
    const Tensor X = stream_.at("X"), given = given_for(stream_.cell.states[0], {X.dim(0), batch_, kUnits});
    std::vector<Tensor> before, slopes;
    for (int64_t t = begin; t < end; ++t) {
      before.push_back(h_.clone());
      slopes.push_back(forward(t));
    }
    Tensor dh = Tensor::zeros(DType::float64, h_.shape());
    for (int64_t t = end - 1; t >= begin; --t) {
      for (int64_t i = 0; i < dh.size(); ++i) dh.data<double>()[i] += at(given, t * batch_ * kUnits + i);
      backward(t, before[t - begin], slopes[t - begin], dh);
    }
    add_history(dh);
    for (int64_t t = begin; t < end; ++t) carry(t, before[t - begin], slopes[t - begin]);
  }

  Values sums;

 private:
  double x(int64_t t, int64_t b, int64_t k) const { return at(stream_.at("X"), (t * batch_ + b) * kInputs + k); }
  double r(int64_t n, int64_t m) const { return at(stream_.at("R"), n * kUnits + m); }
  double g(int64_t n) const { return at(stream_.at("g"), n); }
  void add(const char* p, int64_t i, double value) { sums[p].data<double>()[i] += value; }

  // Returns dh/du.
  Tensor forward(int64_t t) {
    const Tensor prev = h_.clone();
    Tensor slope = h_.clone();
    for (int64_t b = 0; b < batch_; ++b)
      for (int64_t n = 0; n < kUnits; ++n) {
        double u = at(stream_.at("b"), n);
        for (int64_t k = 0; k < kInputs; ++k) u += at(stream_.at("W"), n * kInputs + k) * x(t, b, k);
        for (int64_t m = 0; m < kUnits; ++m) u += r(n, m) * at(prev, b * kUnits + m);
        h_.data<double>()[b * kUnits + n] = g(n) * at(prev, b * kUnits + n) + std::tanh(u);
        slope.data<double>()[b * kUnits + n] = 1 - std::tanh(u) * std::tanh(u);
      }
    return slope;
  }

  void backward(int64_t t, const Tensor& prev, const Tensor& slope, Tensor& dh) {
    Tensor before = Tensor::zeros(DType::float64, dh.shape());
    for (int64_t b = 0; b < batch_; ++b)
      for (int64_t n = 0; n < kUnits; ++n) {
        const int64_t i = b * kUnits + n;
        const double du = at(dh, i) * at(slope, i);
        add("b", n, du);
        add("g", n, at(dh, i) * at(prev, i));
        before.data<double>()[i] += at(dh, i) * g(n);
        for (int64_t k = 0; k < kInputs; ++k) add("W", n * kInputs + k, du * x(t, b, k));
        for (int64_t m = 0; m < kUnits; ++m) {
          add("R", n * kUnits + m, du * at(prev, b * kUnits + m));
          before.data<double>()[b * kUnits + m] += du * r(n, m);
        }
      }
    dh = before;
  }

  void add_history(const Tensor& dh) {
    for (int64_t i = 0; i < batch_ * kUnits; ++i) {
      const int64_t n = i % kUnits;
      add("b", n, at(dh, i) * of_b_[i]);
      add("g", n, at(dh, i) * of_g_[i]);
      for (int64_t k = 0; k < kInputs; ++k) add("W", n * kInputs + k, at(dh, i) * of_w_[i * kInputs + k]);
      for (int64_t m = 0; m < kUnits; ++m) add("R", n * kUnits + m, at(dh, i) * of_r_[i * kUnits + m]);
    }
  }

  void carry(int64_t t, const Tensor& prev, const Tensor& slope) {
    for (int64_t i = 0; i < batch_ * kUnits; ++i) {
      const int64_t n = i % kUnits, b = i / kUnits;
      const double p = at(slope, i), a = g(n) + (keeps_diagonal_ ? p * r(n, n) : 0);
      of_b_[i] = a * of_b_[i] + p;
      of_g_[i] = a * of_g_[i] + at(prev, i);
      for (int64_t k = 0; k < kInputs; ++k) of_w_[i * kInputs + k] = a * of_w_[i * kInputs + k] + p * x(t, b, k);
      for (int64_t m = 0; m < kUnits; ++m)
        of_r_[i * kUnits + m] = a * of_r_[i * kUnits + m] + p * at(prev, b * kUnits + m);
    }
  }

  const Stream& stream_;
  bool keeps_diagonal_;
  int64_t batch_;
  Tensor h_;
  std::vector<double> of_w_, of_r_, of_b_, of_g_;
};

Stream fed_back(int64_t batch) {
  return {{.step = {"i = FC(x, W, b) axis=2", "r = FC(h_prev, R) axis=2", "u = Sum(i, r)", "n = Tanh(u)",
                    "k = Mul(g, h_prev)", "h = Sum(k, n)"},
           .states = kOneState},
          feeds_of(batch, {"h0"},
                   {{"W", weights(kUnits, kInputs, 3)},
                    {"b", vector(kUnits, 4)},
                    {"R", weights(kUnits, kUnits, 5)},
                    {"g", vector(kUnits, 6)}})};
}

TEST(Sensitivities, ApproximationsEqualPlainLoops) {
  for (const LearningRule rule : {LearningRule::snap1, LearningRule::eprop})
    for (const int64_t batch : {1, 3}) {
      const Stream stream = fed_back(batch);
      for (const int64_t size : {int64_t{1}, int64_t{3}, kSteps}) {
        LeakyByHand expected(stream, rule == LearningRule::snap1);
        for (int64_t t = 0; t < kSteps; t += size) expected.chunk(t, std::min(t + size, kSteps));
        EXPECT_EQ(compare_all(in_chunks(stream, size, rule), expected.sums), "") << size << " of batch " << batch;
      }
      EXPECT_EQ(compare_all(in_chunks(stream, kSteps, rule), whole(stream)), "");
    }
}

Stream lstm_fed_back(int64_t batch) {
  return {{.step = {"i = FC(x, W, b) axis=2", "r = FC(h_prev, R) axis=2", "g = Sum(i, r)",
                    "h, c = LSTMUnit(h_prev, c_prev, g, timestep) sequence_lengths=0"},
           .states = kTwoStates},
          feeds_of(batch, {"h0", "c0"},
                   {{"W", weights(4 * kUnits, kInputs, 3)},
                    {"b", vector(4 * kUnits, 4)},
                    {"R", weights(4 * kUnits, kUnits, 5)}})};
}

// The sensitivities of one unit's h and c to one number in the sum of one of its gates.
struct UnitSensitivity {
  double h = 0, c = 0;
};

double logistic(double x) { return 1 / (1 + std::exp(-x)); }

// Of an LSTM over the whole stream: to weights of gate `gate` and unit n that multiply x or h_prev, in column k, or to
// the bias (k < 0).
UnitSensitivity lstm_by_hand(const Stream& s, bool keeps_diagonal, int64_t b, int64_t gate, int64_t n, int64_t k,
                             bool recurrent_weight) {
  const int64_t batch = s.at("X").dim(1);
  UnitSensitivity of;
  std::vector<double> h(kUnits), c(kUnits);
  for (int64_t m = 0; m < kUnits; ++m) h[m] = at(s.at("h0"), b * kUnits + m), c[m] = at(s.at("c0"), b * kUnits + m);
  for (int64_t t = 0; t < kSteps; ++t) {
    const std::vector<double> prev = h;
    for (int64_t m = 0; m < kUnits; ++m) {
      double u[4], du[4];
      for (int64_t q = 0; q < 4; ++q) {
        const int64_t row = q * kUnits + m;
        u[q] = at(s.at("b"), row);
        for (int64_t i = 0; i < kInputs; ++i)
          u[q] += at(s.at("W"), row * kInputs + i) * at(s.at("X"), (t * batch + b) * kInputs + i);
        for (int64_t i = 0; i < kUnits; ++i) u[q] += at(s.at("R"), row * kUnits + i) * prev[i];
        du[q] = keeps_diagonal ? at(s.at("R"), row * kUnits + m) * of.h : 0;
        if (q == gate) du[q] += k < 0 ? 1 : recurrent_weight ? prev[k] : at(s.at("X"), (t * batch + b) * kInputs + k);
      }
      const double i = logistic(u[0]), f = logistic(u[1]), o = logistic(u[2]), z = std::tanh(u[3]), before = c[m];
      c[m] = f * before + i * z;
      h[m] = o * std::tanh(c[m]);
      if (m != n) continue;
      const double slope = 1 - std::tanh(c[m]) * std::tanh(c[m]);
      of.c = f * of.c + before * f * (1 - f) * du[1] + z * i * (1 - i) * du[0] + i * (1 - z * z) * du[3];
      of.h = std::tanh(c[m]) * o * (1 - o) * du[2] + o * slope * of.c;
    }
  }
  return of;
}

void expect_lstm(const Stream& stream, LearningRule rule, int64_t size) {
  StreamRun run(stream, &rule);
  for (int64_t t = 0; t < kSteps; t += size) run.step(t, std::min(t + size, kSteps));
  EXPECT_EQ(run.carried().carried.size(), 6U);
  for (const CarriedSensitivity& carried : run.carried().carried) {
    const Tensor found = run.get(carried.last), weight = stream.at(carried.parameter);
    const int64_t columns = weight.rank() == 1 ? 1 : weight.dim(1), rows = 4 * kUnits;
    for (int64_t i = 0; i < found.size(); ++i) {
      const int64_t k = i % columns, row = i / columns % rows, b = i / columns / rows;
      const UnitSensitivity s = lstm_by_hand(stream, rule == LearningRule::snap1, b, row / kUnits, row % kUnits,
                                             carried.parameter == "b" ? -1 : k, carried.parameter == "R");
      ASSERT_NEAR(at(found, i), carried.state == "h0" ? s.h : s.c, 1e-12) << carried.last << " " << i;
    }
  }
}

TEST(Sensitivities, OfUnitsOfGatesEqualPlainLoops) {
  for (const LearningRule rule : {LearningRule::snap1, LearningRule::eprop})
    for (const int64_t size : {int64_t{1}, int64_t{3}, kSteps}) expect_lstm(lstm_fed_back(2), rule, size);
}

// --- What is refused ----------------------------------------------------------------------------------------------

std::string refusal(Stream stream, const Lines& step, LearningRule rule = LearningRule::rtrl) {
  stream.cell.step = step;
  return error_text([&] {
    NetDef net = stream.net();
    add_sensitivities(net, {rule, stream.parameters()});
  });
}

TEST(Sensitivities, RefusesStatesWhoseUnitsDependOnEachOther) {
  const std::string text = refusal(fed_back(2), fed_back(2).cell.step);
  expect_contains(text, "FC: it multiplies \"h_prev\", which depends on a state");
  expect_contains(text, "\"h_prev\" -> FC -> \"r\" -> Sum -> \"u\" -> Tanh -> \"n\" -> Sum -> \"h\"");
  expect_contains(text, "r = FC(h_prev, R)");
  expect_contains(text, "snap1");
  expect_contains(refusal(leaky(2), {"u = FC(x, W, b) axis=2", "s = Softmax(h_prev) axis=2", "h = Sum(u, s)"}),
                  "Softmax: it stands between a state before the timestep and one after it (\"s\" -> Sum -> \"h\")");
  for (const LearningRule rule : {LearningRule::snap1, LearningRule::eprop}) {
    expect_contains(refusal(leaky(2), {"s = Softmax(h_prev) axis=2", "h = Sum(x, s)"}, rule), "Softmax: it stands");
    expect_contains(refusal(fed_back(2),
                            {"r = FC(h_prev, R) axis=2", "s = Sigmoid(r)", "k = Mul(s, h_prev)",
                             "u = FC(k, R, b) axis=2", "h = Tanh(u)"},
                            rule),
                    "FC: it multiplies \"k\", which depends on a state and, in the same timestep, on the parameter");
  }
}

TEST(Sensitivities, RefusesOtherStepNets) {
  const auto expect = [](const Lines& step, const std::string& text) {
    expect_contains(refusal(leaky(2), step), text);
  };
  expect({"u = FC(x, W, b) axis=2", "v = FC(u, V) axis=2", "k = Mul(a, h_prev)", "h = Sum(k, v)"},
         "it multiplies \"u\", which depends on the parameter");
  expect({"u = FC(x, W, b) axis=2", "u = Tanh(u)", "k = Mul(a, h_prev)", "h = Sum(k, u)"},
         "it writes \"u\", which holds another value");
  expect({"u = MatMul(x, W) trans_b=1", "k = Mul(a, h_prev)", "h = Sum(k, u)"},
         "MatMul: between the parameter \"W\" and a state");
  expect({"u = FC(x, W, b)", "k = Mul(a, h_prev)", "h = Sum(k, u)"}, "its axis is 1");
  expect({"u = FC(x, h_prev) axis=2", "h = Tanh(u)"}, "its \"h_prev\" is another one in each timestep");
  expect({"p, q = Split(h_prev) axis=2", "h = Concat(q, p) axis=2"}, "Concat: it stands between a state");
  expect({"m = Dropout(h_prev)", "h = Sum(m, x)"}, "Dropout: it stands between a state");
  expect({"u = FC(x, W, b) axis=2", "p, q = Split(u) axis=2", "k = Mul(a, h_prev)", "h = Sum(k, p)"},
         "no state depends on its part \"q\"");
  expect({"u = FC(x, W, b) axis=2", "p, q = Split(u) axis=1", "m = Mul(p, q)", "k = Mul(a, h_prev)", "h = Sum(k, m)"},
         "it takes parts of dimension 1");
  expect({"p, q = Split(h_prev) axis=2", "h = Mul(p, q)"}, "the state \"h_prev\" is taken apart");
  expect({"h, c = LSTMUnit(h_prev, h_prev, x, lengths, timestep)"}, "sequence_lengths: 0");
}

TEST(Sensitivities, RefusesOtherNetworks) {
  const auto expect = [](const std::function<void(Stream&)>& change, const std::string& text) {
    Stream stream = leaky(2);
    change(stream);
    expect_contains(refusal(stream, stream.cell.step), text);
  };
  expect([](Stream& s) { s.cell.reverse = true; }, "from the last timestep to the first");
  expect([](Stream& s) { s.cell.lengths = "L"; }, "samples of different lengths");
  expect([](Stream& s) { s.cell.states[0].initial = "", s.cell.states[0].size = {kUnits}; }, "starts at zero");
  expect(
      [](Stream& s) {
        s.change = [](NetDef& net) { net.mutable_op(0)->MutableExtension(recurrent)->set_forward_only(true); };
      },
      "forward_only");
  expect([](Stream& s) { s.change = [](NetDef& net) { *net.add_op() = make_op("Tanh", {"h0"}, {"y"}); }; },
         "is read by operator 1 (Tanh) too");
  expect([](Stream& s) { s.change = [](NetDef& net) { net.clear_op(); }; }, "has no recurrent network");
  const auto in_front = [](const OperatorDef& op) {
    return [op](Stream& s) {
      s.change = [op](NetDef& net) {
        const OperatorDef network = net.op(0);
        net.clear_op();
        *net.add_op() = op;
        *net.add_op() = network;
      };
    };
  };
  expect(
      [](Stream& s) {
        s.change = [](NetDef& net) {
          expand_recurrent(net);
          add_gradient_operators(net,
                                 {.targets = {{"h_all", ""}}, .wanted = {"W"}, .stop = {}, .fixed_storages = false});
        };
      },
      "has gradient operators");
  expect(in_front(make_op("Dropout", {"W"}, {"b"}, {make_arg("ratio", 0.5F)})),
         "depends on the parameter \"W\" and on \"b\"");
  expect(in_front(make_op("Tanh", {"Y"}, {"h0"})), "is computed in the net");
  expect(in_front(make_op("Mul", {"W", "Y"}, {"X"})),
         "it multiplies \"x\", which depends on the parameter \"W\": two layers");
  expect(in_front(make_op("Mul", {"W", "Y"}, {"b"})), "depends on the parameter \"W\" and on \"Y\", which is none");
}

// An operator that lays a part of one unit over all.
TEST(Sensitivities, RefusesShapesThatSpread) {
  Stream stream = leaky(2);
  stream.cell.step = {"u = FC(x, W, b) axis=2", "r = ReduceSum(x)", "v = Mul(u, h_prev)", "h = Tanh(v)"};
  std::ranges::find(stream.feeds, "W", &Feeds::value_type::first)->second = weights(1, kInputs, 3);
  std::ranges::find(stream.feeds, "b", &Feeds::value_type::first)->second = vector(1, 3);
  expect_contains(error_text([&] { in_chunks(stream, 3); }), "equal_shapes says that they have one shape");
  stream.cell.step = {"u = FC(x, W, b) axis=2", "o = OnesLike(C)", "y = Mul(u, o)", "v = Mul(y, h_prev)",
                      "h = Tanh(v)"};
  stream.feeds.emplace_back("C", Tensor::zeros(DType::float64, {kUnits}));
  EXPECT_NE(error_text([&] { in_chunks(stream, 3); }), "");
}

// Networks behind each other: exact is only the first one's own gradient.
TEST(Sensitivities, OfStackedNetworks) {
  Stream stream = leaky(2);
  stream.feeds.emplace_back("k0", normal<double>({1, 2, kUnits}, 9));
  stream.feeds.emplace_back("V", weights(kUnits, kUnits, 10));
  stream.cell.states.push_back({"k_prev", "k", "k0", "k_all", "k_last"});
  stream.cell.step.push_back("v = FC(h, V) axis=2");
  stream.cell.step.push_back("k1 = Sub(v, k_prev)");
  stream.cell.step.push_back("k = Tanh(k1)");
  expect_contains(refusal(stream, stream.cell.step), "it multiplies \"h\", which depends on a state");
}

}  // namespace
}  // namespace stepnet::testing::sensitivities_test
