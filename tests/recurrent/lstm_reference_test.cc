// A character LSTM gives the loss and all gradients of the same model in plain loops: in short form, and in the full
// forms that other builders wrote over the years, with step nets as messages or as text in strings.
#include "tests/recurrent/lstm_reference.h"

#include <gtest/gtest.h>

#include <cmath>

#include "recurrent/form/short_form.h"
#include "recurrent/step/counters.h"
#include "stepnet/gradients.h"
#include "stepnet/text.h"
#include "tests/operators/op_test.h"

namespace stepnet::testing::lstm_reference_test {
namespace {

constexpr int kSteps = 5, kBatch = 3, kClasses = 7, kEmbedding = 4, kWidth = 6;

const char* const kShortForm = R"(
op { type: "Gather" input: "table" input: "tokens" output: "x" arg { name: "dense_gradient" i: 1 } }
op {
  type: "RecurrentNetwork" name: "lstm" input: "x" input: "h0" input: "c0" output: "h_all" output: "c_last"
  [stepnet.recurrent] {
    step_net {
      op { type: "FC" input: "x_t" input: "Wx" input: "bx" output: "gx" arg { name: "axis" i: 2 } }
      op { type: "FC" input: "h_prev" input: "Wh" input: "bh" output: "gh" arg { name: "axis" i: 2 } }
      op { type: "Sum" input: "gx" input: "gh" output: "gates" }
      op { type: "LSTMUnit" input: "h_prev" input: "c_prev" input: "gates" input: "lengths" input: "timestep"
           output: "h" output: "c" arg { name: "forget_bias" f: 1 } arg { name: "drop_states" i: DROP } }
    }
    sequence { outer: "x" inner: "x_t" }
    state { input: "h_prev" output: "h" initial: "h0" all: "h_all" }
    state { input: "c_prev" output: "c" initial: "c0" last: "c_last" }
  }
}
)";

// As the public format's own builder wrote it, with the sequence's FC before the loop.
const char* const kFullForm = R"(
op { type: "Gather" input: "table" input: "tokens" output: "x" arg { name: "dense_gradient" i: 1 } }
op { type: "FC" input: "x" input: "Wx" input: "bx" output: "i2h" arg { name: "axis" i: 2 } }
op {
  type: "RecurrentNetwork" input: "i2h" input: "h0" input: "c0" input: "Wh" input: "bh" input: "lengths"
  output: "h_all" output: "h_last" output: "c_all" output: "c_last" output: "step_workspaces"
  arg { name: "timestep" s: "timestep" }
  arg { name: "recurrent_states" strings: "h_states" strings: "c_states" }
  arg { name: "initial_recurrent_state_ids" ints: 1 ints: 2 }
  arg { name: "link_internal"
        strings: "h_prev" strings: "h" strings: "c_prev" strings: "c" strings: "input_t" }
  arg { name: "link_external"
        strings: "h_states" strings: "h_states" strings: "c_states" strings: "c_states" strings: "i2h" }
  arg { name: "link_offset" ints: 0 ints: 1 ints: 0 ints: 1 ints: 0 }
  arg { name: "backward_link_internal"
        strings: "h_grad" strings: "h_prev_grad" strings: "c_grad" strings: "c_prev_grad" strings: "gates_grad" }
  arg { name: "backward_link_external" strings: "h_states_grad" strings: "h_states_grad"
        strings: "c_states_grad" strings: "c_states_grad" strings: "i2h_grad" }
  arg { name: "backward_link_offset" ints: 1 ints: 0 ints: 1 ints: 0 ints: 0 }
  arg { name: "alias_src" strings: "h_states" strings: "h_states" strings: "c_states" strings: "c_states" }
  arg { name: "alias_dst" strings: "h_all" strings: "h_last" strings: "c_all" strings: "c_last" }
  arg { name: "alias_offset" ints: 1 ints: -1 ints: 1 ints: -1 }
  arg { name: "param" ints: 3 ints: 4 }
  arg { name: "outputs_with_grads" ints: 0 }
}
)";

const char* const kLoss = R"(
op { type: "FC" input: "h_all" input: "Wo" input: "bo" output: "logits" arg { name: "axis" i: 2 } }
op { type: "SoftmaxWithLoss" input: "logits" input: "next" output: "p" output: "loss" arg { name: "axis" i: 2 } }
)";

const char* const kGates = R"(
op { input: "h_prev" input: "Wh" input: "bh" output: "gates" type: "FC" arg { name: "axis" i: 2 } engine: "CUDNN" }
op { input: "gates" input: "input_t" output: "gates" type: "Sum" }
)";

const char* const kUnit = R"(
op { input: "h_prev" input: "c_prev" input: "gates" input: "lengths" input: "timestep" output: "h" output: "c"
     type: "LSTMUnit" arg { name: "forget_bias" f: 1.0 } arg { name: "drop_states" i: DROP } }
)";

const char* const kBackward = R"(
op { input: "h_prev" input: "c_prev" input: "gates" input: "lengths" input: "timestep" input: "h" input: "c"
     input: "h_grad" input: "c_grad" output: "h_prev_grad" output: "c_prev_grad" output: "gates_grad"
     type: "LSTMUnitGradient" arg { name: "forget_bias" f: 1.0 } arg { name: "drop_states" i: DROP }
     is_gradient_op: true }
op { input: "h_prev" input: "Wh" input: "gates_grad" output: "Wh_grad" output: "bh_grad" output: "SPLIT"
     type: "FCGradient" arg { name: "axis" i: 2 } is_gradient_op: true }
op { input: "h_prev_grad" input: "SPLIT" output: "h_prev_grad" type: "Sum" }
)";

std::string replaced(std::string text, const std::string& what, const std::string& with) {
  for (size_t at = text.find(what); at != text.npos; at = text.find(what, at + with.size()))
    text.replace(at, what.size(), with);
  return text;
}

struct Generation {
  std::string name;
  std::string step_type, split;
  bool text = false;         // step nets are protobuf text in strings
  bool param_grads = false;  // present
  bool executor = false;     // has the arguments of the step executor
  bool recompute = false;    // the backward step net makes the gates again
  bool valueless = false;    // the list of recomputed blobs is there and empty
};

const Generation kGenerations[] = {
    {.name = "Spring2017", .step_type = "rnn", .split = "h_prev_grad_split", .text = true},
    {.name = "Autumn2017",
     .step_type = "rnn",
     .split = "_h_prev_grad_split",
     .text = true,
     .param_grads = true,
     .valueless = true},
    {.name = "Of2018",
     .step_type = "simple",
     .split = "_h_prev_grad_autosplit_0",
     .param_grads = true,
     .executor = true,
     .valueless = true},
    {.name = "Recomputed",
     .step_type = "simple",
     .split = "_h_prev_grad_autosplit_0",
     .param_grads = true,
     .executor = true,
     .recompute = true},
    {.name = "RecomputedText",
     .step_type = "simple",
     .split = "_h_prev_grad_split",
     .text = true,
     .param_grads = true,
     .recompute = true},
};

void PrintTo(const Generation& g, std::ostream* out) { *out << g.name; }

NetDef full_form(const Generation& g, bool drop) {
  NetDef net = parse_net_text(std::string(kFullForm) + kLoss);
  OperatorDef& op = *net.mutable_op(2);
  const std::string backward = (g.recompute ? kGates : "") + replaced(kBackward, "SPLIT", g.split);
  for (const auto& [name, body, type] : {std::tuple{"step_net", std::string(kGates) + kUnit, g.step_type},
                                         std::tuple{"backward_step_net", backward, std::string("simple")}}) {
    const std::string text =
        fmt::format("name: \"{}\"\ntype: \"{}\"\n{}", name, type, replaced(body, "DROP", drop ? "1" : "0"));
    *op.add_arg() = g.text ? make_arg(name, text) : make_arg(name, parse_net_text(text));
  }
  using Strings = std::vector<std::string>;
  if (g.param_grads) *op.add_arg() = make_arg("param_grads", Strings{"Wh_grad", "bh_grad"});
  if (g.recompute) *op.add_arg() = make_arg("recompute_blobs_on_backward", Strings{"gates"});
  if (g.valueless) *op.add_arg() = make_arg("recompute_blobs_on_backward", Strings{});
  if (g.executor) *op.add_arg() = make_arg("enable_rnn_executor", 1);
  if (g.executor) *op.add_arg() = make_arg("rnn_executor.num_threads", 2);
  return net;
}

NetDef short_form(bool drop) {
  NetDef net = parse_net_text(replaced(kShortForm, "DROP", drop ? "1" : "0") + kLoss);
  expand_recurrent(net);
  return net;
}

// Fixed weights of a size that lets every gate matter.
LstmModel model(bool drop) {
  LstmModel m = {.steps = kSteps,
                 .batch = kBatch,
                 .classes = kClasses,
                 .embedding = kEmbedding,
                 .width = kWidth,
                 .forget_bias = 1,
                 .drop_states = drop,
                 .tokens = {},
                 .next = {},
                 .lengths = {kSteps, 2, 4},
                 .values = {}};
  for (int i = 0; i < kSteps * kBatch; ++i) {
    m.tokens.push_back((i * i + 2 * i) % kClasses);
    m.next.push_back((i * 5 + i / 3) % kClasses);
  }
  double phase = 0;
  auto fill = [&](const char* name, int count) {
    for (int i = 0; i < count; ++i) m.values[name].push_back(0.8 * std::sin(phase += 1.7));
  };
  fill("table", kClasses * kEmbedding);
  fill("Wx", 4 * kWidth * kEmbedding);
  fill("bx", 4 * kWidth);
  fill("Wh", 4 * kWidth * kWidth);
  fill("bh", 4 * kWidth);
  fill("Wo", kClasses * kWidth);
  fill("bo", kClasses);
  fill("h0", kBatch * kWidth);
  fill("c0", kBatch * kWidth);
  return m;
}

const std::map<std::string, Shape> kShapes = {{"table", {kClasses, kEmbedding}},
                                              {"Wx", {4 * kWidth, kEmbedding}},
                                              {"bx", {4 * kWidth}},
                                              {"Wh", {4 * kWidth, kWidth}},
                                              {"bh", {4 * kWidth}},
                                              {"Wo", {kClasses, kWidth}},
                                              {"bo", {kClasses}},
                                              {"h0", {kBatch, kWidth}},
                                              {"c0", {kBatch, kWidth}}};

template <class T, class From>
Tensor tensor_of(const Shape& shape, const std::vector<From>& values) {
  const std::vector<T> converted(values.begin(), values.end());
  return Tensor::of<T>(shape, std::span<const T>(converted));
}

// Runs twice in one workspace; the second run's loss and gradients must be the loops'.
template <class T>
std::string check(NetDef net, const LstmModel& m, double tol) {
  Workspace workspace;
  workspace.tensor("tokens") = tensor_of<int32_t>({kSteps, kBatch}, m.tokens);
  workspace.tensor("next") = tensor_of<int32_t>({kSteps * kBatch}, m.next);
  workspace.tensor("lengths") = tensor_of<int32_t>({kBatch}, m.lengths);
  GradientRequest request = {.targets = {{"loss", ""}}, .wanted = {}, .stop = {}};
  for (const auto& [name, values] : m.values) {
    workspace.tensor(name) = tensor_of<T>(kShapes.at(name), values);
    request.wanted.insert(name);
  }
  const GradientResult result = add_gradient_operators(net, request);
  Net bound(net, workspace);
  RunContext run;
  const RecurrentCounters before = recurrent_counters();
  bound.run(run);
  bound.run(run);
  std::string text;
  if (const int64_t copied = recurrent_counters().copied - before.copied; copied != 0)
    text += fmt::format("{} bytes were copied\n", copied);
  if (const int64_t spread = recurrent_counters().spread - before.spread; spread != 0)
    text += fmt::format("{} bytes were written twice\n", spread);
  const LstmResults expected = run_lstm(m);
  auto expect_same = [&](const std::string& name, const Tensor& actual, const Tensor& wanted) {
    if (const std::string wrong = compare(to_double(actual), wanted, tol); !wrong.empty())
      text += fmt::format("{}: {}\n", name, wrong);
  };
  expect_same("loss", workspace.fetch("loss"), Tensor::scalar(expected.loss));
  for (const auto& [name, values] : expected.gradients)
    expect_same("gradient of " + name, workspace.fetch(result.gradients.at(name).dense),
                tensor_of<double>(kShapes.at(name), values));
  return text;
}

std::string check_both_types(const NetDef& net, bool drop) {
  return check<double>(net, model(drop), 1e-10) + check<float>(net, model(drop), 1e-5);
}

// The loops themselves, by central differences.
TEST(LstmReference, LoopsAgreeWithDifferences) {
  for (const bool drop : {false, true}) {
    LstmModel m = model(drop);
    const LstmResults results = run_lstm(m);
    for (auto& [name, values] : m.values)
      for (size_t i = 0; i < values.size(); i += 5) {
        const double value = values[i], step = 1e-5;
        values[i] = value + step;
        const double above = run_lstm(m).loss;
        values[i] = value - step;
        const double below = run_lstm(m).loss;
        values[i] = value;
        EXPECT_NEAR(results.gradients.at(name)[i], (above - below) / (2 * step), 1e-9) << name << " " << i;
      }
  }
}

TEST(LstmReference, ShortForm) {
  for (const bool drop : {false, true}) EXPECT_EQ(check_both_types(short_form(drop), drop), "") << drop;
}

class FullForm : public ::testing::TestWithParam<Generation> {};

TEST_P(FullForm, AsBuiltInCode) {
  for (const bool drop : {false, true}) EXPECT_EQ(check_both_types(full_form(GetParam(), drop), drop), "") << drop;
}

// A file's reader turns text in strings into messages.
TEST_P(FullForm, AsReadFromAFile) {
  const NetDef net = parse_net_text(to_text(full_form(GetParam(), false)));
  EXPECT_TRUE(find_arg(net.op(2), "step_net")->has_n());
  EXPECT_EQ(check_both_types(net, false), "");
}

INSTANTIATE_TEST_SUITE_P(LstmReference, FullForm, ::testing::ValuesIn(kGenerations),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace stepnet::testing::lstm_reference_test
