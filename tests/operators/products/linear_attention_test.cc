// LinearAttention against plain loops, central differences, and the same states as a RecurrentNetwork.
#include <cmath>
#include <limits>
#include <random>

#include "core/compute/threads.h"
#include "stepnet/gradient_check.h"
#include "tests/operators/op_test.h"
#include "tests/recurrent/unrolled.h"

namespace stepnet::testing::linear_attention_test {
namespace {

struct Kind {
  bool reverse = false, leaving = false, decay = false, first = false;
  std::string str() const {
    return fmt::format("reverse {} leaving {} decay {} first {}", reverse, leaving, decay, first);
  }
};

std::vector<Kind> kinds() {
  std::vector<Kind> all;
  for (int bits = 0; bits < 16; ++bits)
    all.push_back({(bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0, (bits & 8) != 0});
  return all;
}

struct Sizes {
  int64_t steps, batch, heads, keys, values;
  std::string str() const { return fmt::format("{} x {} x {}, {} to {}", steps, batch, heads, keys, values); }
};

OperatorDef attention(const Kind& kind, const std::vector<std::string>& outputs = {"y", "last"}) {
  std::vector<std::string> inputs = {"q", "k", "v"};
  if (kind.decay || kind.first) inputs.emplace_back(kind.decay ? "g" : "");
  if (kind.first) inputs.emplace_back("first");
  return make_op("LinearAttention", inputs, outputs,
                 {make_arg("reverse", kind.reverse), make_arg("leaving", kind.leaving)});
}

template <class T>
Feeds feeds_of(const Kind& kind, const Sizes& s) {
  Feeds feeds = {{"q", normal<T>({s.steps, s.batch, s.heads, s.keys}, 1)},
                 {"k", normal<T>({s.steps, s.batch, s.heads, s.keys}, 2)},
                 {"v", normal<T>({s.steps, s.batch, s.heads, s.values}, 3)}};
  if (kind.decay) feeds.emplace_back("g", uniform<T>({s.steps, s.batch, s.heads}, -0.9, 0.1, 4));
  if (kind.first) feeds.emplace_back("first", normal<T>({s.batch, s.heads, s.keys, s.values}, 5));
  return feeds;
}

const Tensor* feed(const Feeds& feeds, const std::string& name) {
  for (const auto& [key, value] : feeds)
    if (key == name) return &value;
  return nullptr;
}

// y and last, timestep by timestep, in float64.
std::vector<Tensor> naive(const Kind& kind, const Sizes& s, const Feeds& feeds) {
  const int64_t pairs = s.batch * s.heads;
  std::vector<Tensor> made = {Tensor::zeros(DType::float64, {s.steps, s.batch, s.heads, s.values}),
                              Tensor::zeros(DType::float64, {s.batch, s.heads, s.keys, s.values})};
  if (kind.first) made[1] = feed(feeds, "first")->clone();
  const auto at = [&](const char* name, int64_t i) { return feed(feeds, name)->data<double>()[i]; };
  double *y = made[0].data<double>(), *state = made[1].data<double>();
  for (int64_t n = 0; n < s.steps; ++n)
    for (int64_t pair = 0; pair < pairs; ++pair) {
      const int64_t row = (kind.reverse ? s.steps - 1 - n : n) * pairs + pair;
      const double factor = kind.decay ? std::exp(at("g", row)) : 1;
      for (int64_t i = 0; i < s.keys; ++i)
        for (int64_t j = 0; j < s.values; ++j) {
          double& cell = state[(pair * s.keys + i) * s.values + j];
          const double term = at("k", row * s.keys + i) * at("v", row * s.values + j);
          cell = kind.leaving ? cell + term : (factor == 0 ? 0 : factor * cell) + term;
          y[row * s.values + j] += at("q", row * s.keys + i) * cell;
          if (kind.leaving) cell *= factor;
        }
    }
  return made;
}

void expect_naive(const Kind& kind, const Sizes& s, const Feeds& feeds, double tolerance) {
  SCOPED_TRACE(kind.str() + ", " + s.str());
  const std::vector<Tensor> expected = naive(kind, s, feeds), both = run_op_on(attention(kind), feeds);
  for (const int o : {0, 1}) EXPECT_EQ(compare(both.at(o), expected[o], tolerance), "") << o;
  EXPECT_EQ(compare(run_op_on(attention(kind, {"y"}), feeds).at(0), expected[0], tolerance), "");
  EXPECT_EQ(compare(run_op_on(attention(kind, {"", "last"}), feeds).at(1), expected[1], tolerance), "");
}

TEST(LinearAttention, IsAPlainLoop) {
  for (const Sizes& s : {Sizes{5, 2, 3, 4, 2}, Sizes{0, 2, 1, 3, 2}, Sizes{1, 1, 2, 3, 4}, Sizes{200, 1, 1, 1, 1},
                         Sizes{64, 1, 2, 1, 3}, Sizes{65, 1, 1, 5, 1}, Sizes{131, 2, 1, 3, 7}, Sizes{3, 0, 2, 2, 2},
                         Sizes{4, 2, 2, 0, 3}, Sizes{4, 2, 2, 3, 0}})
    for (const Kind& kind : kinds()) expect_naive(kind, s, feeds_of<double>(kind, s), 1e-12);
}

TEST(LinearAttention, RandomSizesAreAPlainLoop) {
  std::mt19937 dice(7);
  const auto draw = [&](int64_t most) { return std::uniform_int_distribution<int64_t>(1, most)(dice); };
  for (int n = 0; n < 60; ++n) {
    const Sizes s{draw(300), draw(3), draw(3), draw(40), draw(40)};
    const auto bits = draw(16);
    const Kind kind{(bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0, (bits & 8) != 0};
    expect_naive(kind, s, feeds_of<double>(kind, s), 1e-12);
  }
}

TEST(LinearAttention, FloatsAreRoundedDoubles) {
  const Sizes s{150, 2, 2, 16, 24};
  for (const Kind& kind : kinds()) {
    const Kind decays{kind.reverse, kind.leaving, true, kind.first};
    const std::vector<Tensor> found = run_op_on(attention(decays), feeds_of<float>(decays, s)),
                              expected = run_op_on(attention(decays), feeds_of<double>(decays, s));
    for (const int o : {0, 1}) {
      Tensor wide = Tensor::empty(DType::float64, found[o].shape());
      for (int64_t i = 0; i < wide.size(); ++i) wide.data<double>()[i] = found[o].data<float>()[i];
      EXPECT_EQ(compare(wide, expected[o], 3e-5), "") << decays.str();
    }
  }
}

// Factors of e^-300 and e^100, and 0: a sum of logarithms would lose what the others say, or be no number.
TEST(LinearAttention, StrongDecaysLoseNothing) {
  const Sizes s{150, 1, 2, 3, 2};
  for (const Kind& kind : kinds()) {
    if (!kind.decay) continue;
    Feeds feeds = feeds_of<double>(kind, s);
    double* g = feeds[3].second.data<double>();
    for (int64_t i = 0; i < 2 * s.steps; ++i)
      if (i % 7 == 0) g[i] = i % 3 == 0 ? -std::numeric_limits<double>::infinity() : i % 3 == 1 ? -300 : 100;
    for (int64_t i = 0; i < 2 * s.steps; ++i)
      if (g[i] == 100) g[i + 2] = -100;
    expect_naive(kind, s, feeds, 1e-12);
  }
}

TEST(LinearAttention, NumbersOfThreadsDoNotMatter) {
  const int before = threads();
  for (const Sizes& s : {Sizes{300, 3, 2, 16, 24}, Sizes{200, 1, 1, 32, 128}})
    for (const Kind& kind : kinds()) {
      const Feeds feeds = feeds_of<double>(kind, s);
      set_threads(1);
      const std::vector<Tensor> alone = run_op_on(attention(kind), feeds);
      for (const int count : {2, 3}) {
        set_threads(count);
        const std::vector<Tensor> together = run_op_on(attention(kind), feeds);
        for (const int o : {0, 1}) EXPECT_EQ(compare(together[o], alone[o], 1e-12), "") << s.str() << count;
      }
    }
  set_threads(before);
}

// Of factors down to e^-30, and 0, all of one size or a few among larger ones: the gradient of a decay is as small as
// its factor, and as precise.
TEST(LinearAttention, GradientsOfStrongDecaysAreAsPreciseAsTheirSize) {
  const Sizes s{200, 1, 2, 8, 6};
  for (const Kind& kind : kinds())
    for (const double mean : {-1.0, -8.0, -16.0, -30.0})
      for (const bool all : {false, true}) {
        if (!kind.decay) continue;
        Feeds narrow = feeds_of<float>(kind, s);
        float* g = narrow[3].second.data<float>();
        for (int64_t i = 0; i < 2 * s.steps; ++i) {
          if (all || i % 7 == 0) g[i] += static_cast<float>(mean);
          if (i % 31 == 0) g[i] = -std::numeric_limits<float>::infinity();
        }
        Feeds wide;
        for (const auto& [name, value] : narrow) {
          wide.emplace_back(name, Tensor::empty(DType::float64, value.shape()));
          for (int64_t i = 0; i < value.size(); ++i)
            wide.back().second.data<double>()[i] = static_cast<double>(value.data<float>()[i]);
        }
        NetDef net;
        *net.add_op() = attention(kind);
        for (const auto& feed : wide) net.add_external_input(feed.first);
        Feeds outside = {{"y", normal<double>({s.steps, 1, 2, s.values}, 8)},
                         {"last", normal<double>({1, 2, s.keys, s.values}, 9)}};
        const Tensor expected = run_with_gradients(net, wide, outside).gradients.at("g");
        for (auto& [name, value] : outside) {
          Tensor cut = Tensor::empty(DType::float32, value.shape());
          for (int64_t i = 0; i < value.size(); ++i) {
            cut.data<float>()[i] = static_cast<float>(value.data<double>()[i]);
          }
          value = cut;
        }
        const Tensor found = run_with_gradients(net, narrow, outside).gradients.at("g");
        for (int64_t i = 0; i < found.size(); ++i) {
          const double factor = std::exp(static_cast<double>(g[i]));
          EXPECT_NEAR(found.data<float>()[i], expected.data<double>()[i], 1e-3 * factor)
              << kind.str() << ", " << mean << (all ? " all, " : " some, ") << i;
        }
      }
}

TEST(LinearAttention, DecaysHaveDerivativesOfAnyOrder) {
  for (const Sizes& s : {Sizes{3, 1, 2, 2, 3}, Sizes{0, 1, 1, 2, 1}, Sizes{35, 1, 1, 1, 2}})
    for (const Kind& kind : kinds())
      for (const bool last : {false, true}) {
        if (!kind.decay) continue;
        Feeds feeds = feeds_of<double>(kind, s);
        feeds.emplace_back("dy", normal<double>({s.steps, s.batch, s.heads, s.values}, 8));
        std::vector<std::string> inputs = {"q", "k", "v", "g", "dy"}, wrt = inputs;
        if (kind.first || last) inputs.emplace_back(kind.first ? "first" : "");
        if (kind.first) wrt.emplace_back("first");
        if (last) {
          feeds.emplace_back("dlast", normal<double>({s.batch, s.heads, s.keys, s.values}, 9));
          inputs.emplace_back("dlast"), wrt.emplace_back("dlast");
        }
        const OperatorDef op = make_op("LinearAttentionDecay", inputs, {"dg"},
                                       {make_arg("reverse", kind.reverse), make_arg("leaving", kind.leaving)});
        EXPECT_EQ(check_gradient(op, feeds, wrt), "") << kind.str() << ", " << s.str() << last;
        for (const std::string& name : wrt) EXPECT_EQ(check_gradient(op, feeds, {name}), "") << kind.str() << name;
      }
}

TEST(LinearAttention, Gradients) {
  for (const Sizes& s : {Sizes{4, 1, 2, 2, 3}, Sizes{1, 2, 1, 1, 2}, Sizes{0, 1, 1, 2, 1}, Sizes{2, 1, 1, 0, 2}})
    for (const Kind& kind : kinds()) {
      std::vector<std::string> wrt = {"q", "k", "v"};
      if (kind.decay) wrt.emplace_back("g");
      if (kind.first) wrt.emplace_back("first");
      for (const std::vector<std::string>& outputs : {std::vector<std::string>{"y"}, {"y", "last"}, {"", "last"}})
        EXPECT_EQ(check_gradient(attention(kind, outputs), feeds_of<double>(kind, s), wrt), "")
            << kind.str() << ", " << s.str() << outputs.size();
    }
}

TEST(LinearAttention, GradientsOverChunks) {
  const Sizes s{70, 1, 1, 2, 1};
  for (const Kind& kind : kinds()) {
    if (!kind.decay || !kind.first) continue;
    EXPECT_EQ(check_gradient(attention(kind), feeds_of<double>(kind, s), {"q", "k", "v", "g", "first"}), "")
        << kind.str();
  }
}

// Each gradient alone is what it is with the others.
TEST(LinearAttention, GradientsOfSomeInputs) {
  for (const Kind& kind : kinds()) {
    if (!kind.decay || !kind.first) continue;
    for (const char* name : {"q", "k", "v", "g", "first"})
      EXPECT_EQ(check_gradient(attention(kind), feeds_of<double>(kind, {3, 1, 2, 2, 2}), {name}), "") << name;
  }
}

TEST(LinearAttention, GradientsOfGradients) {
  for (const Kind& kind : kinds())
    for (const std::vector<std::string>& outputs : {std::vector<std::string>{"y", "last"}, {"", "last"}}) {
      GradientSubject subject;
      *subject.net.add_op() = attention(kind, outputs);
      for (const auto& [name, value] : feeds_of<double>(kind, {3, 1, 1, 2, 1})) {
        subject.feeds[name] = value;
        subject.inputs.push_back(name);
      }
      for (const std::string& name : outputs)
        if (!name.empty()) subject.outputs.push_back(name);
      GradientCheckOptions options;
      options.order = 2;
      EXPECT_EQ(check_gradients(subject, options).str(), "") << kind.str();
      options.forward = true;
      EXPECT_EQ(check_gradients(subject, options).str(), "") << kind.str();
    }
}

// Lines in which "dims" of one dimension is a list, too.
NetDef net_with_dims(const Lines& lines) {
  NetDef net = net_of_lines(lines);
  for (OperatorDef& op : *net.mutable_op())
    for (Argument& arg : *op.mutable_arg())
      if (arg.name() == "dims" && arg.has_i()) arg = make_arg("dims", std::vector<int64_t>{arg.i()});
  return net;
}

TEST(LinearAttention, IsTheRecurrentNetworkOfItsFormula) {
  for (const bool reverse : {false, true}) {
    const Cell cell = {.step = {},
                       .states = {{.input = "S_prev", .output = "S", .initial = "first", .last = "last"}},
                       .sequences = {{"q", "q_t"}, {"k", "k_t"}, {"v", "v_t"}, {"g", "g_t"}},
                       .outputs = {{"y_t", "y"}},
                       .reverse = reverse,
                       .step_net = net_with_dims({"f = Exp(g_t)", "f_matrix = ExpandDims(f) dims=3/4",
                                                  "kept = Mul(S_prev, f_matrix)", "column = ExpandDims(k_t) dims=4",
                                                  "row = ExpandDims(v_t) dims=3", "added = BatchMatMul(column, row)",
                                                  "S = Sum(kept, added)", "asked = ExpandDims(q_t) dims=3",
                                                  "answer = BatchMatMul(asked, S)", "y_t = Squeeze(answer) dims=3"})};
    const Kind kind = {.reverse = reverse, .decay = true, .first = true};
    Feeds feeds = feeds_of<double>(kind, {70, 2, 2, 3, 4});
    feeds.back().second = normal<double>({1, 2, 2, 3, 4}, 5);
    const Feeds outside = outside_gradients(cell, feeds);
    NetDef net =
        net_with_dims({"states = Squeeze(first) dims=0", "y, states_last = LinearAttention(q, k, v, g, states)",
                       "last = ExpandDims(states_last) dims=0"});
    *net.mutable_op(1)->add_arg() = make_arg("reverse", reverse);
    for (const auto& feed : feeds) net.add_external_input(feed.first);
    const CellResults network = run_recurrent(cell, feeds, outside),
                      operators = run_with_gradients(net, feeds, outside);
    for (const char* name : {"y", "last"})
      EXPECT_EQ(compare(operators.outputs.at(name), network.outputs.at(name), 1e-11), "") << name;
    for (const auto& feed : feeds)
      EXPECT_EQ(compare(operators.gradients.at(feed.first), network.gradients.at(feed.first), 1e-11), "") << feed.first;
  }
}

TEST(LinearAttention, SaysWhatDoesNotFit) {
  const auto error = [](const Shape& q, const Shape& k, const Shape& v, const Shape& g, const Shape& first) {
    const Feeds feeds = {{"q", normal<float>(q)},
                         {"k", normal<float>(k)},
                         {"v", normal<float>(v)},
                         {"g", normal<float>(g)},
                         {"first", normal<float>(first)}};
    return error_of([&] { run_op_on(attention({.decay = true, .first = true}), feeds); });
  };
  const auto expect = [&](const std::string& text, const char* part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  const Shape q{4, 1, 2, 3}, v{4, 1, 2, 5}, g{4, 1, 2}, first{1, 2, 3, 5};
  expect(error({4, 1, 2}, q, v, g, first), "queries must be [T, B, N, K], but are [4, 1, 2]");
  expect(error(q, {4, 1, 2, 3, 1}, v, g, first), "keys must be [T, B, N, K], but are [4, 1, 2, 3, 1]");
  expect(error(q, q, {4, 5}, g, first), "values must be [T, B, N, V], but are [4, 5]");
  expect(error(q, {4, 1, 2, 2}, v, g, first),
         "queries are [4, 1, 2, 3], but keys [4, 1, 2, 2]; both must have one shape");
  expect(error(q, q, {3, 1, 2, 5}, g, first),
         "queries are [4, 1, 2, 3], but values [3, 1, 2, 5]; T, B and N must be the same");
  expect(error(q, q, v, {4, 1}, first), "log_decay must be [T, B, N], [4, 1, 2], but is [4, 1]");
  expect(error(q, q, v, g, {1, 2, 5, 3}), "first must be [B, N, K, V], [1, 2, 3, 5], but is [1, 2, 5, 3]");
}

}  // namespace
}  // namespace stepnet::testing::linear_attention_test
