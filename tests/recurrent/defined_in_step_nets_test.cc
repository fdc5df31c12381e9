// Operators that a net defines in text, in step nets and with networks inside, beside nets with them written out.
#include "core/passes/defined_operators.h"

#include <gtest/gtest.h>

#include "recurrent/form/short_form.h"
#include "recurrent/train/model.h"
#include "stepnet/arguments.h"
#include "stepnet/gradient_check.h"
#include "stepnet/text.h"
#include "tests/core/defined_groups.h"
#include "tests/core/errors.h"
#include "tests/core/random_nets.h"
#include "tests/recurrent/cell_files.h"
#include "tests/recurrent/tiny_model.h"

namespace stepnet::testing::defined_in_step_nets_test {
namespace {

const Sizes kSizes = {{'T', 4}, {'B', 2}, {'I', 2}, {'H', 3}, {'P', 2}, {'D', 2}, {'S', 4}, {'A', 3}};

CellResults results_of(NetDef net, const Feeds& feeds) {
  CellData data{feeds, {}};
  const auto blobs = run_forward(net, feeds);
  for (const std::string& name : net.external_output())
    data.outside.emplace_back(name, normal<double>(blobs.at(name).shape(), 900 + data.outside.size()));
  expand_recurrent(net);
  CellResults results = run_in_turn(net, {data})[0];
  std::erase_if(results.outputs,
                [&](const auto& output) { return std::ranges::count(net.external_output(), output.first) == 0; });
  return results;
}

// Groups of operators of every cell's step net.
TEST(DefinedOperators, EqualCellsWrittenOut) {
  int moved = 0;
  for (const CellFile& file : cell_files()) {
    const Feeds feeds = cell_feeds(file.name, DType::float64, kSizes);
    const NetDef net = cell_net(file.name, true);
    const CellResults right = results_of(net, feeds);
    for (uint64_t seed = 0; seed < 4; ++seed) {
      NetDice dice(seed);
      NetDef other = net;
      NetDef& step = *recurrent_op(other).MutableExtension(recurrent)->mutable_step_net();
      const int begin = seed == 0 ? 0 : static_cast<int>(dice.below(step.op_size()));
      const int end = seed == 0 ? step.op_size() : begin + 1 + static_cast<int>(dice.below(step.op_size() - begin));
      if (!move_into_definition(other, step, begin, end, "Group")) continue;
      ++moved;
      EXPECT_EQ(compare_results(results_of(other, feeds), right, 1e-11), "") << file.name << "\n" << to_text(other);
    }
  }
  EXPECT_GT(moved, 20);
}

constexpr const char* kCell = R"(
  arg { name: 'stepnet.operators' nets {
    name: 'Gate' external_input: 'z' external_input: 'h' external_output: 'y'
    op { type: 'Sigmoid' input: 'z' output: 's' }
    op { type: 'Mul' input: 's' input: 'h' output: 'y' }
    arg { name: 'gradient_net' n {
      external_output: 'z_grad' external_output: 'h_grad'
      op { type: 'Sigmoid' input: 'z' output: 's' }
      op { type: 'Mul' input: 'y_grad' input: 's' output: 'h_grad' }
      op { type: 'Mul' input: 'y_grad' input: 'h' output: 'd' }
      op { type: 'SigmoidGradient' input: 's' input: 'd' output: 'e' }
      op { type: 'Scale' input: 'e' output: 'z_grad' arg { name: 'scale' f: $FACTOR } } } } } }
  op { type: 'RecurrentNetwork' input: 'X' input: 'h0' output: 'h_all' output: 'h_last'
       [stepnet.recurrent] {
         step_net { op { type: 'FC' input: 'h_prev' input: 'W' input: 'b' output: 'r' arg { name: 'axis' i: 2 } }
                    op { type: 'Gate' input: 'x' input: 'r' output: 'g' }
                    op { type: 'Gate' input: 'g' input: 'h_prev' output: 'k' }
                    op { type: 'Sum' input: 'g' input: 'k' output: 'h' } }
         sequence { outer: 'X' inner: 'x' }
         state { input: 'h_prev' initial: 'h0' output: 'h' all: 'h_all' last: 'h_last' } } }
  external_output: 'h_all')";

const Feeds kCellFeeds = {{"X", normal<double>({3, 2, 3})},
                          {"h0", normal<double>({2, 3}, 2)},
                          {"W", normal<double>({3, 3}, 3)},
                          {"b", normal<double>({3}, 4)}};

GradientSubject cell_subject(const std::string& factor) {
  std::string text = kCell;
  text.replace(text.find("$FACTOR"), 7, factor);
  GradientSubject subject{parse_net_text(text), {}, {"h_all"}, {}, {}, {}};
  expand_recurrent(subject.net);
  for (const auto& [name, value] : kCellFeeds) {
    subject.feeds[name] = value;
    subject.inputs.push_back(name);
  }
  return subject;
}

TEST(GivenGradients, OfOperatorsOfAStep) {
  GradientCheckOptions options;
  options.order = 2;
  EXPECT_EQ(check_gradients(cell_subject("1"), options).str(), "");
  options.forward = true;
  EXPECT_EQ(check_gradients(cell_subject("1"), options).str(), "");
  GradientCheckOptions hessian;
  hessian.hessian = true;
  EXPECT_EQ(check_gradients(cell_subject("1"), hessian).str(), "");
}

TEST(GivenGradients, OfOperatorsOfAStepAreBlamed) {
  const GradientReport report = check_gradients(cell_subject("2"));
  EXPECT_FALSE(report.right());
  ASSERT_FALSE(report.blamed.empty()) << report.str();
  for (const BlamedOperator& op : report.blamed) {
    expect_contains(op.path, "step net");
    expect_contains(op.path, "the gradient net of Gate");
  }
}

// A step net of the definition has blobs of the names that the use gives: these are not meant.
TEST(DefinedOperators, MayHoldNetworks) {
  const std::string network = R"(
    op { type: 'RecurrentNetwork' input: '$X' input: '$h0' output: '$all' output: '$last'
         [stepnet.recurrent] {
           step_net { op { type: 'Mul' input: 'h_prev' input: '$w' output: 'm' }
                      op { type: 'Sum' input: 'm' input: 'x' output: 's' }
                      op { type: 'Tanh' input: 's' output: 'h' } }
           sequence { outer: '$X' inner: 'x' }
           state { input: 'h_prev' initial: '$h0' output: 'h' all: '$all' last: '$last' } } })";
  const auto named = [&](std::vector<std::pair<std::string, std::string>> names) {
    std::string text = network;
    for (const auto& [from, to] : names)
      for (size_t at = 0; (at = text.find("'" + from + "'", at)) != std::string::npos;)
        text.replace(at, from.size() + 2, "'" + to + "'");
    return text;
  };
  const std::string definition =
      "arg { name: 'stepnet.operators' nets { name: 'Net' external_input: 'in' external_input: 'start' "
      "external_input: 'weight' external_output: 'out' external_output: 'end' " +
      named({{"$X", "in"}, {"$h0", "start"}, {"$w", "weight"}, {"$all", "out"}, {"$last", "end"}}) + " } }";
  NetDef net = parse_net_text(definition +
                              "op { type: 'Net' input: 'X' input: 'h0' input: 's' output: 'h' output: 'm' } "
                              "op { type: 'Net' input: 'h' input: 'm' input: 'x' output: 'all' output: 'last' } "
                              "external_input: 'X' external_input: 'h0' external_input: 's' external_input: 'x' "
                              "external_output: 'all' external_output: 'last' external_output: 'h'");
  NetDef other = parse_net_text(named({{"$X", "X"}, {"$h0", "h0"}, {"$w", "w1"}, {"$all", "h1"}, {"$last", "m1"}}) +
                                named({{"$X", "h1"}, {"$h0", "m1"}, {"$w", "w2"}, {"$all", "all"}, {"$last", "last"}}) +
                                "op { type: 'Copy' input: 'h1' output: 'hh' } "
                                "external_input: 'X' external_input: 'h0' external_input: 'w1' external_input: 'w2' "
                                "external_output: 'all' external_output: "
                                "'last' external_output: 'hh'");
  Feeds feeds = {{"X", normal<double>({3, 2, 3})}, {"h0", normal<double>({1, 2, 3}, 2)}};
  Feeds feeds_of_other = feeds;
  feeds.emplace_back("s", normal<double>({3}, 3));
  feeds.emplace_back("x", normal<double>({3}, 4));
  feeds_of_other.emplace_back("w1", normal<double>({3}, 3));
  feeds_of_other.emplace_back("w2", normal<double>({3}, 4));
  const CellResults made = results_of(net, feeds), right = results_of(other, feeds_of_other);
  for (const auto& [name, as] : {std::pair{"all", "all"}, {"last", "last"}, {"h", "hh"}})
    EXPECT_EQ(compare(made.outputs.at(name), right.outputs.at(as), 0), "") << name;
  for (const auto& [name, as] : {std::pair{"X", "X"}, {"h0", "h0"}, {"s", "w1"}, {"x", "w2"}})
    EXPECT_EQ(compare(made.gradients.at(name), right.gradients.at(as), 1e-12), "") << name;
}

// In a step net names of one storage share it: a use that writes one of them reads its inputs before.
TEST(DefinedOperators, ReadNamesOfOneStorageBeforeTheyWrite) {
  const auto net_of = [](const std::string& ops) {
    return parse_net_text(R"(
      arg { name: 'stepnet.operators' nets { name: 'Both' external_input: 'u' external_output: 'p' external_output: 'q'
             op { type: 'Tanh' input: 'u' output: 'p' } op { type: 'Sin' input: 'u' output: 'q' } } }
      op { type: 'RecurrentNetwork' input: 'X' input: 'h0' output: 'h_all'
           [stepnet.recurrent] { sequence { outer: 'X' inner: 'x' }
             state { input: 'h_prev' initial: 'h0' output: 'h' all: 'h_all' }
             step_net { op { type: 'Sum' input: 'x' input: 'h_prev' output: 'a' } )" +
                          ops + R"( op { type: 'Sum' input: 'p' input: 'q' output: 'h' } } } }
      external_output: 'h_all')");
  };
  const Feeds feeds = {{"X", normal<double>({3, 2, 3})}, {"h0", normal<double>({2, 3}, 2)}};
  const auto forward = [&](NetDef net) {
    net.mutable_op(0)->MutableExtension(recurrent)->set_forward_only(true);
    return run_forward(net, feeds).at("h_all");
  };
  const Tensor right =
      forward(net_of("op { type: 'Tanh' input: 'a' output: 'p' } op { type: 'Sin' input: 'a' output: 'q' }"));
  EXPECT_EQ(compare(forward(net_of("op { type: 'Alias' input: 'a' output: 'p' } "
                                   "op { type: 'Both' input: 'a' output: 'p' output: 'q' }")),
                    right, 0),
            "");
}

// What evaluation tells operators reaches those of definitions as well.
TEST(DefinedOperators, OfModelsAreToldThatNothingIsTrained) {
  std::string text = tiny_net_text();
  const std::string logits = "output: \"logits\" arg";
  text.replace(text.find(logits), logits.size(), "output: \"raw\" arg");
  text += R"(
    arg { name: 'stepnet.operators' nets { name: 'Dropped' external_input: 'x' external_output: 'y'
           op { type: 'Dropout' input: 'x' output: 'y' output: 'mask' } } })";
  NetDef net = parse_net_text(text);
  OperatorDef& use = *net.add_op();
  use.set_type("Dropped");
  use.add_input("raw");
  use.add_output("logits");
  net.mutable_op()->SwapElements(net.op_size() - 1, net.op_size() - 2);  // in front of the loss
  const Model model = read_model(net);
  for (const Mode mode : {Mode::train, Mode::evaluate}) {
    int dropouts = 0;
    const NetDef expanded = expanded_forward(model, mode);
    for (const OperatorDef& op : expanded.op()) {
      if (op.type() != "Dropout") continue;
      ++dropouts;
      const Argument* is_test = find_arg(op, "is_test");
      EXPECT_EQ(is_test && is_test->i() == 1, mode == Mode::evaluate);
    }
    EXPECT_EQ(dropouts, 1);
  }
}

}  // namespace
}  // namespace stepnet::testing::defined_in_step_nets_test
