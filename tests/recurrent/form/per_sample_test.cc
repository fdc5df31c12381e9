// Per-sample gradients, their norms and their weighted sums against the ordinary gradients of one sample at a time.
#include "recurrent/form/per_sample.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <optional>

#include "core/net/expansions.h"
#include "recurrent/form/short_form.h"
#include "stepnet/arguments.h"
#include "stepnet/net.h"
#include "stepnet/text.h"
#include "tests/core/errors.h"
#include "tests/recurrent/cell_files.h"
#include "tests/recurrent/random_step_nets.h"

namespace stepnet::testing::per_sample_test {
namespace {

// A net whose loss adds samples up, what it reads, and which dimension of that holds samples.
struct Case {
  NetDef net;
  Feeds feeds;
  std::map<std::string, int> axes;
  std::set<std::string> parameters;
  int64_t samples = 0;
};

constexpr const char* kLoss = "the_loss";

Tensor one_sample(const Tensor& t, int axis, int64_t sample, int64_t samples) {
  const int64_t of_each = t.dim(axis) / samples;
  Tensor cut = Tensor::zeros(t.dtype(), t.shape().with(axis, of_each));
  const size_t inner = t.shape().size_between(axis + 1, t.rank()) * dtype_size(t.dtype());
  const int64_t outer = t.shape().size_between(0, axis);
  for (int64_t o = 0; o < outer; ++o)
    for (int64_t k = 0; k < of_each; ++k)
      std::memcpy(cut.raw() + (o * of_each + k) * inner, t.raw() + (o * t.dim(axis) + k * samples + sample) * inner,
                  inner);
  return cut;
}

using Values = std::map<std::string, std::vector<double>>;

std::vector<double> elements(const Tensor& t) { return {t.data<double>(), t.data<double>() + t.size()}; }

// The ordinary gradients of the parameters, where the batch is one sample alone. Those that the loss does not depend on
// are left out.
Values alone(const Case& c, int64_t sample) {
  NetDef net = c.net;
  expand_net(net);
  GradientRequest request;
  request.targets = {{kLoss, ""}};
  request.wanted = c.parameters;
  const GradientResult result = add_gradient_operators(net, request);
  Workspace workspace;
  for (const auto& [name, value] : c.feeds) {
    const auto axis = c.axes.find(name);
    workspace.tensor(name) = axis == c.axes.end() ? value.clone() : one_sample(value, axis->second, sample, c.samples);
  }
  Values values;
  std::map<std::string, std::string> names;
  for (const std::string& p : c.parameters) {
    const auto found = result.gradients.find(p);
    if (found == result.gradients.end() || !found->second.defined()) continue;
    names[p] = found->second.dense;
    if (!found->second.is_sparse()) continue;
    OperatorDef& op = *net.add_op();
    op.set_type("SparseToDense");
    for (const std::string& name : {found->second.indices, found->second.values, p}) op.add_input(name);
    op.add_output(names[p] = p + "_dense");
  }
  RunContext run;
  run_net_once(net, workspace, run);
  for (const auto& [p, name] : names) values[p] = elements(workspace.fetch(name));
  return values;
}

struct Results {
  Values gradients, sums;
  std::vector<double> squares;
};

SampleRequest request_of(const Case& c) {
  SampleRequest request{
      .loss = kLoss, .parameters = c.parameters, .types = {}, .batch_axes = c.axes, .samples = c.samples};
  for (const auto& [name, value] : c.feeds) request.types[name] = TensorType::of(value.dtype(), value.shape());
  return request;
}

Results together(const Case& c, const std::vector<double>& weights) {
  NetDef net = c.net;
  SampleTaps taps = tap_parameters(net, request_of(c));
  expand_net(net);
  differentiate_taps(net, taps, kLoss, "", {});
  if (net.external_input_size() > 0) net.add_external_input("weights");
  const std::string squares = add_squared_norms(net, taps);
  const auto gradients = add_sample_gradients(net, taps), sums = add_weighted_gradients(net, taps, "weights");
  Workspace workspace;
  for (const auto& [name, value] : c.feeds) workspace.tensor(name) = value.clone();
  Tensor given = Tensor::zeros(DType::float64, {c.samples});
  std::ranges::copy(weights, given.data<double>());
  workspace.tensor("weights") = given;
  RunContext run;
  run_net_once(net, workspace, run);
  Results results;
  for (const auto& [p, name] : gradients) results.gradients[p] = elements(workspace.fetch(name));
  for (const auto& [p, name] : sums) {
    EXPECT_EQ(workspace.fetch(name).shape(), workspace.fetch(p).shape()) << p;
    results.sums[p] = elements(workspace.fetch(name));
  }
  results.squares = elements(workspace.fetch(squares));
  return results;
}

void expect_close(const std::vector<double>& a, const std::vector<double>& b, const std::string& what) {
  ASSERT_EQ(a.size(), b.size()) << what;
  double largest = 1e-3, difference = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    largest = std::max(largest, std::abs(b[i]));
    difference = std::max(difference, std::isnan(a[i] - b[i]) ? 1e300 : std::abs(a[i] - b[i]));
  }
  EXPECT_LE(difference, 1e-10 * largest) << what;
}

void check(const Case& c) {
  std::vector<double> weights;
  for (int64_t s = 0; s < c.samples; ++s) weights.push_back(0.3 + 0.7 * static_cast<double>(s));
  const Results all = together(c, weights);
  Values sums;
  for (int64_t s = 0; s < c.samples; ++s) {
    Values one = alone(c, s);
    double square = 0;
    // Where the loss does not depend on a parameter, a network gives zeros, and a net none.
    for (const auto& [p, values] : all.gradients)
      one.emplace(p, std::vector<double>(values.size() / static_cast<size_t>(c.samples), 0.0));
    std::erase_if(one, [&](const auto& gradient) {
      return all.gradients.count(gradient.first) == 0 &&
             std::ranges::all_of(gradient.second, [](double g) { return g == 0; });
    });
    ASSERT_EQ(one.size(), all.gradients.size());
    for (const auto& [p, values] : one) {
      const auto from = all.gradients.at(p).begin() + static_cast<ptrdiff_t>(s * values.size());
      expect_close({from, from + static_cast<ptrdiff_t>(values.size())}, values, fmt::format("{}, sample {}", p, s));
      std::vector<double>& sum = sums[p];
      sum.resize(values.size());
      for (size_t i = 0; i < values.size(); ++i) {
        square += values[i] * values[i];
        sum[i] += weights[static_cast<size_t>(s)] * values[i];
      }
    }
    EXPECT_NEAR(all.squares[static_cast<size_t>(s)], square, 1e-10 * std::max(square, 1e-3)) << "sample " << s;
  }
  ASSERT_EQ(sums.size(), all.sums.size());
  for (const auto& [p, sum] : sums) expect_close(all.sums.at(p), sum, "the sum of " + p);
}

void add_loss(NetDef& net, const std::string& of) {
  const NetDef loss = parse_net_text(fmt::format(
      "op {{ type: 'Mul' input: '{0}' input: '{0}' output: 'loss_square' }} op {{ type: 'Mul' input: 'loss_square' "
      "input: '{0}' output: 'loss_cube' }} op {{ type: 'SumElements' input: 'loss_cube' output: '{1}' }}",
      of, kLoss));
  net.mutable_op()->MergeFrom(loss.op());
}

Case plain(const std::string& text, const std::string& output, Feeds feeds, std::map<std::string, int> axes,
           int64_t samples) {
  Case c{.net = parse_net_text(text),
         .feeds = std::move(feeds),
         .axes = std::move(axes),
         .parameters = {},
         .samples = samples};
  add_loss(c.net, output);
  for (const auto& [name, value] : c.feeds)
    if (c.axes.count(name) == 0 && value.dtype() == DType::float64) c.parameters.insert(name);
  return c;
}

constexpr const char* kPerceptron = R"(
  op { type: 'FC' input: 'x' input: 'W' input: 'b' output: 'h' arg { name: 'axis' i: AXIS } }
  op { type: 'Tanh' input: 'h' output: 'h' }
  op { type: 'FCTransposed' input: 'h' input: 'V' input: 'c' output: 'y' arg { name: 'axis' i: AXIS } }
  op { type: 'Mul' input: 'y' input: 'g' output: 'z' arg { name: 'broadcast' i: 1 } }
  op { type: 'Sigmoid' input: 'z' output: 'p' })";

Case perceptron(const Shape& x, int axis, int samples_axis, int64_t samples) {
  std::string text = kPerceptron;
  for (size_t at; (at = text.find("AXIS")) != text.npos;) text.replace(at, 4, std::to_string(axis));
  return plain(text, "p",
               {{"x", normal<double>(x, 1)},
                {"W", normal<double>({4, 3}, 2)},
                {"b", normal<double>({4}, 3)},
                {"V", normal<double>({4, 2}, 4)},
                {"c", normal<double>({2}, 5)},
                {"g", normal<double>({2}, 6)}},
               {{"x", samples_axis}}, samples);
}

TEST(PerSample, LayersOfOneRow) { check(perceptron({5, 3}, 1, 0, 5)); }
TEST(PerSample, LayersOfOneSample) { check(perceptron({1, 3}, 1, 0, 1)); }
TEST(PerSample, LayersOfManyTimesteps) { check(perceptron({6, 4, 3}, 2, 1, 4)); }
TEST(PerSample, LayersOfTimestepsAndSamplesInOneDimension) { check(perceptron({12, 3}, 1, 0, 4)); }

// Rows of a sample that follow each other; g would be laid over the rows too, so it has none.
TEST(PerSample, LayersOfSamplesOfSeveralRows) {
  Case c =
      plain(R"(
    op { type: 'FC' input: 'x' input: 'W' input: 'b' output: 'h' arg { name: 'axis' i: 2 } }
    op { type: 'Tanh' input: 'h' output: 'y' })",
            "y", {{"x", normal<double>({4, 5, 3}, 1)}, {"W", normal<double>({2, 3}, 2)}, {"b", normal<double>({2}, 3)}},
            {{"x", 0}}, 4);
  check(c);
}

TEST(PerSample, TablesWhoseIndicesRepeat) {
  Case c = plain(R"(
    op { type: 'Gather' input: 'E' input: 'ids' output: 'e' }
    op { type: 'Reshape' input: 'e' output: 'rows' output: 'old' arg { name: 'shape' ints: -1 ints: 3 } }
    op { type: 'FC' input: 'rows' input: 'W' input: 'b' output: 's' }
    op { type: 'Tanh' input: 's' output: 'y' })",
                 "y",
                 {{"ids", Tensor::of<int32_t>({4, 3}, {0, 1, 2, 0, 4, 2, 3, 1, 2, 0, 1, 1})},
                  {"E", normal<double>({6, 3}, 1)},
                  {"W", normal<double>({2, 3}, 2)},
                  {"b", normal<double>({2}, 3)}},
                 {{"ids", 1}}, 3);
  check(c);
}

TEST(PerSample, ParametersThatAreReadTwice) {
  check(plain(R"(
    op { type: 'FC' input: 'x' input: 'W' input: 'b' output: 's' }
    op { type: 'Tanh' input: 's' output: 'h' }
    op { type: 'FC' input: 'h' input: 'W' input: 'b' output: 'y' })",
              "y", {{"x", normal<double>({4, 3}, 1)}, {"W", normal<double>({3, 3}, 2)}, {"b", normal<double>({3}, 3)}},
              {{"x", 0}}, 4));
}

TEST(PerSample, SomeParametersOnly) {
  Case c = perceptron({5, 3}, 1, 0, 5);
  c.parameters = {"b", "V"};
  check(c);
}

TEST(PerSample, ParametersThatTheLossDoesNotDependOn) {
  Case c = perceptron({5, 3}, 1, 0, 5);
  *c.net.add_op() = parse_net_text("op { type: 'FC' input: 'x' input: 'U' input: 'u' output: 'unused' }").op(0);
  c.feeds.emplace_back("U", normal<double>({2, 3}, 7));
  c.feeds.emplace_back("u", normal<double>({2}, 8));
  c.parameters.insert({"U", "u"});
  check(c);
}

// --- Networks ------------------------------------------------------------------------------------------------------

const Sizes kSizes = {{'T', 4}, {'B', 3}, {'I', 2}, {'H', 5}, {'P', 2}, {'D', 2}, {'S', 4}, {'A', 6}};

Case cell_case(const std::string& name, int64_t steps, int64_t samples) {
  Sizes sizes = kSizes, others = kSizes;
  sizes['T'] = steps;
  sizes['B'] = samples;
  others['T'] = steps;
  others['B'] = samples + 1;
  Case c{.net = cell_net(name, true),
         .feeds = cell_feeds(name, DType::float64, sizes),
         .axes = {},
         .parameters = {},
         .samples = samples};
  const Feeds more = cell_feeds(name, DType::float64, others);
  for (size_t i = 0; i < more.size(); ++i) {
    const Shape &a = c.feeds[i].second.shape(), &b = more[i].second.shape();
    for (int d = 0; d < a.rank(); ++d)
      if (a[d] != b[d]) c.axes[more[i].first] = d;
    if (a == b && more[i].second.dtype() == DType::float64) c.parameters.insert(more[i].first);
  }
  add_loss(c.net, c.net.external_output(0));
  c.net.clear_external_output();
  return c;
}

// Cells whose parameters' gradients cannot be told by samples, and what is said of them.
const std::map<std::string, std::string> kRefused = {
    {"attention_additive", "\"by_place\", which is"},
    {"attention_recurrent", "\"by_place\", which is"},
    {"delta_rule", "samples are not apart"},
    {"gated_delta_rule", "samples are not apart"},
    {"gated_retention", "samples are not apart"},
    {"gru_resets", "samples are not apart"},
    {"lif", "it reads the parameter \"beta\" in a way in which gradients cannot be told by samples"},
    {"lstm", "samples are not apart"},  // its unit reads lengths
    {"m_lstm", "samples are not apart"},
    {"qrnn", "samples are not apart"},
    {"rwkv", "it reads the parameter \"log_w\" in a way in which gradients cannot be told by samples"},
    {"rwkv7", "samples are not apart"},
    {"s_lstm_heads", "it reads the parameter \"W_h\" in a way in which gradients cannot be told by samples"},
    {"selective_scan", "it reads the parameter \"A_log\" in a way in which gradients cannot be told by samples"},
    {"titans_memory", "samples are not apart"},
    {"ttt", "the parameter \"gamma\" must be laid over"},
};

class PerSampleCells : public ::testing::TestWithParam<CellFile> {};

TEST_P(PerSampleCells, EqualSamplesAlone) {
  for (const auto& [steps, samples] : {std::pair<int64_t, int64_t>{4, 3}, {1, 1}, {9, 2}}) {
    const Case c = cell_case(GetParam().name, steps, samples);
    NetDef net = c.net;
    if (const auto refused = kRefused.find(GetParam().name); refused != kRefused.end()) {
      if (samples == 1) continue;  // which is apart from no other
      expect_contains(error_text([&] { tap_parameters(net, request_of(c)); }), refused->second);
    } else {
      check(c);
    }
  }
}

// --- Layers, lengths, and what is refused --------------------------------------------------------------------------

Case layer_case(const std::string& op, int directions, int layers, bool lengths, int64_t gates) {
  const int64_t hidden = 4, samples = 3;
  Case c{.net = {},
         .feeds = {{"x", normal<double>({5, samples, 2}, 1)}},
         .axes = {{"x", 1}},
         .parameters = {},
         .samples = samples};
  std::string text = fmt::format("op {{ type: '{}' input: 'x' input: '' ", op);
  if (op == "LSTM") text += "input: '' ";
  for (int i = 0; i < layers * directions; ++i) {
    const int64_t in = i < directions ? 2 : directions * hidden;
    const std::vector<std::pair<std::string, Shape>> weights = {{"wi", Shape{gates * hidden, in}},
                                                                {"wh", Shape{gates * hidden, hidden}},
                                                                {"bi", Shape{gates * hidden}},
                                                                {"bh", Shape{gates * hidden}}};
    for (const auto& [name, shape] : weights) {
      const std::string own = fmt::format("{}_{}", name, i);
      c.feeds.emplace_back(own, normal<double>(shape, 10 + c.feeds.size(), 0, 0.5));
      c.parameters.insert(own);
      text += fmt::format("input: '{}' ", own);
    }
  }
  if (lengths) {
    text += "input: 'lengths' ";
    c.feeds.emplace_back("lengths", Tensor::of<int32_t>({samples}, {2, 5, 0}));
    c.axes["lengths"] = 0;
  }
  text += fmt::format(
      "output: 'y' arg {{ name: 'hidden' i: {} }} arg {{ name: 'layers' i: {} }} "
      "arg {{ name: 'bidirectional' i: {} }} }}",
      hidden, layers, directions - 1);
  c.net = parse_net_text(text);
  add_loss(c.net, "y");
  return c;
}

TEST(PerSample, Layers) {
  check(layer_case("LSTM", 1, 1, false, 4));
  check(layer_case("LSTM", 2, 2, false, 4));
  check(layer_case("LSTM", 2, 1, true, 4));
  check(layer_case("GRU", 1, 2, true, 3));
  check(layer_case("RNN", 2, 1, false, 1));
}

std::string refusal(const Case& c) {
  NetDef net = c.net;
  return error_text([&] { tap_parameters(net, request_of(c)); });
}

TEST(PerSample, WhatMixesSamplesIsRefused) {
  Case c = perceptron({5, 3}, 1, 0, 5);
  OperatorDef norm = parse_net_text("op { type: 'Softmax' input: 'x' output: 'x1' arg { name: 'axis' i: 0 } }").op(0);
  *c.net.add_op() = norm;
  for (int i = c.net.op_size() - 1; i > 0; --i) c.net.mutable_op()->SwapElements(i, i - 1);
  c.net.mutable_op(1)->set_input(0, "x1");
  expect_contains(refusal(c), "in \"x1\" samples are not apart");
}

// Rows of a matrix that is made of samples, too, are no parameters.
TEST(PerSample, SamplesThatMeetInAProductAreRefused) {
  const Case c = plain(R"(
    op { type: 'FC' input: 'x' input: 'W' input: 'b' output: 'h' }
    op { type: 'FC' input: 'h' input: 'h' output: 'pairs' }
    op { type: 'FC' input: 'pairs' input: 'V' input: 'c' output: 'y' })",
                       "y",
                       {{"x", normal<double>({4, 3}, 1)},
                        {"W", normal<double>({3, 3}, 2)},
                        {"b", normal<double>({3}, 3)},
                        {"V", normal<double>({2, 4}, 4)},
                        {"c", normal<double>({2}, 5)}},
                       {{"x", 0}}, 4);
  expect_contains(refusal(c), "in \"pairs\" samples are not apart");
}

// A product whose matrices are as large as the result is still no operator that works element by element.
TEST(PerSample, SamplesThatMeetInColumnsAreRefused) {
  Case c = plain(R"(
    op { type: 'BatchMatMul' input: 'mixture' input: 'x' output: 'h' }
    op { type: 'FC' input: 'h' input: 'W' input: 'b' output: 'y' arg { name: 'axis' i: 2 } })",
                 "y",
                 {{"x", normal<double>({3, 4, 4}, 1)},
                  {"mixture", normal<double>({3, 4, 4}, 2)},
                  {"W", normal<double>({2, 4}, 3)},
                  {"b", normal<double>({2}, 4)}},
                 {{"x", 1}}, 4);
  c.parameters = {"W", "b"};
  expect_contains(refusal(c), "in \"h\" samples are not apart");
}

TEST(PerSample, ALossThatIsMoreThanASumIsRefused) {
  Case c = perceptron({5, 3}, 1, 0, 5);
  const int last = c.net.op_size() - 1;
  c.net.mutable_op(last)->set_output(0, "sum");
  *c.net.add_op() =
      parse_net_text(fmt::format("op {{ type: 'Mul' input: 'sum' input: 'sum' output: '{}' }}", kLoss)).op(0);
  expect_contains(refusal(c), "is computed from \"sum\", in which samples are not apart");
}

TEST(PerSample, ALossWithoutParametersIsRefused) {
  Case c = perceptron({5, 3}, 1, 0, 5);
  c.parameters.clear();
  NetDef net = c.net;
  SampleTaps taps = tap_parameters(net, request_of(c));
  expand_net(net);
  expect_contains(error_text([&] { differentiate_taps(net, taps, kLoss, "", {}); }),
                  "depends on none of the parameters");
}

TEST(PerSample, ParametersInOtherPlacesAreRefused) {
  Case c = perceptron({5, 3}, 1, 0, 5);
  *c.net.add_op() = parse_net_text("op { type: 'Tanh' input: 'W' output: 'other' }").op(0);
  expect_contains(refusal(c), "it reads the parameter \"W\" in a way");
  c.net.mutable_op(c.net.op_size() - 1)->set_input(0, "x");
  c.net.mutable_op(c.net.op_size() - 1)->set_output(0, "W");
  expect_contains(refusal(c), "it writes \"W\", a parameter");
  Case state = cell_case("rnn_tanh", 3, 2);
  state.parameters.insert("h0");
  expect_contains(refusal(state), "the initial value of state");
}

TEST(PerSample, FeedsThatDoNotHoldTheSamplesAreRefused) {
  Case c = perceptron({5, 3}, 1, 0, 5);
  c.samples = 4;
  expect_contains(refusal(c), "does not hold 4 samples");
  c.samples = 5;
  c.axes["x"] = 2;
  expect_contains(refusal(c), "has no dimension 2");
  c.axes.clear();
  expect_contains(refusal(c), "does not depend on the samples");
}

TEST(PerSample, WhatIsOverwrittenLaterIsRefused) {
  Case c = perceptron({5, 3}, 1, 0, 5);
  c.net.mutable_op()->Add()->CopyFrom(parse_net_text("op { type: 'Alias' input: 'x' output: 'again' }").op(0));
  c.net.mutable_op()->Add()->CopyFrom(parse_net_text("op { type: 'Relu' input: 'again' output: 'again' }").op(0));
  NetDef net = c.net;
  SampleTaps taps = tap_parameters(net, request_of(c));
  expand_net(net);
  expect_contains(error_text([&] { differentiate_taps(net, taps, kLoss, "", {}); }), "is overwritten later");
}

// --- Random step nets ----------------------------------------------------------------------------------------------

bool draws(const NetDef& net) {
  return std::ranges::any_of(net.op(), [](const OperatorDef& op) { return op_spec(op.type()).random; });
}

// Of a net whose derivatives are those of one formula everywhere; none if it has no output of samples.
std::optional<Case> random_case(uint64_t seed) {
  const StepNet net = random_step_net(seed);
  const NetShape shape{.steps = 3, .batch = 3};
  if (net.has_kinks || net.grows || net.forward_only || draws(net.cell.step_net)) return std::nullopt;
  Case c{.net = {}, .feeds = feeds_of(net, shape, seed), .axes = {}, .parameters = {}, .samples = shape.batch};
  c.net = net_of(net, {}, c.feeds);
  for (const StepFeed& feed : net.feeds) {
    const auto axis = std::ranges::find(feed.sizes, kBatch) - feed.sizes.begin();
    if (axis < static_cast<ptrdiff_t>(feed.sizes.size()))
      c.axes[feed.name] = static_cast<int>(axis);
    else if (feed.kind == StepFeed::Kind::normal)
      c.parameters.insert(feed.name);
  }
  const auto loss = parse_net_text(fmt::format(
      "op {{ type: 'Sigmoid' input: '{}' output: 'loss_terms' }} op {{ type: 'SumElements' input: 'loss_terms' "
      "output: '{}' }}",
      c.net.op(0).output(0), kLoss));
  c.net.mutable_op()->MergeFrom(loss.op());
  c.net.clear_external_output();
  return c;
}

TEST(PerSample, OfRandomStepNets) {
  int checked = 0;
  for (uint64_t seed = 1; seed <= 1500; ++seed) {
    const std::optional<Case> c = random_case(seed);
    if (!c) continue;
    try {
      NetDef net = c->net;
      SampleTaps taps = tap_parameters(net, request_of(*c));
      expand_net(net);
      differentiate_taps(net, taps, kLoss, "", {});
      alone(*c, 0);  // which may be refused, too
    } catch (const Error&) {
      continue;
    }
    SCOPED_TRACE(fmt::format("seed {}\n{}", seed, to_text(c->net)));
    ASSERT_NO_THROW(check(*c));
    if (HasFailure()) return;
    ++checked;
  }
  EXPECT_GT(checked, 100);
}

INSTANTIATE_TEST_SUITE_P(Files, PerSampleCells, ::testing::ValuesIn(cell_files()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace stepnet::testing::per_sample_test
