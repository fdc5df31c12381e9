// A step net run as an ordinary net computes what the network computes.
#include <gtest/gtest.h>

#include "core/passes/network_rules.h"
#include "recurrent/form/short_form.h"
#include "stepnet/net.h"
#include "stepnet/text.h"
#include "tests/core/errors.h"
#include "tests/operators/op_test.h"

namespace stepnet::testing::step_runs_test {
namespace {

OperatorDef network(const std::string& state, const std::string& more = "") {
  NetDef net = parse_net_text(fmt::format(R"(
    op {{ type: 'RecurrentNetwork' input: 'X' input: 'h0' output: 'h_all' output: 'O'
         [stepnet.recurrent] {{
           step_net {{ name: 'step'
             op {{ type: 'Mul' input: 'h_prev' input: 'W' output: 'm' }}
             op {{ type: 'Sum' input: 'm' input: 'x_t' output: 'o' }}
             op {{ type: 'Tanh' input: 'o' output: 'h' }} }}
           sequence {{ outer: 'X' inner: 'x_t' }}
           output {{ inner: 'o' outer: 'O' }}
           state {{ input: 'h_prev' output: 'h' all: 'h_all' {} }} {} }} }})",
                                          state, more));
  expand_recurrent(net);
  return net.op(0);
}

std::map<std::string, Tensor> values_of(const OperatorDef& op, int64_t steps, const Shape& initial) {
  std::map<std::string, Tensor> values = {
      {"X", normal<double>({steps, 2, 4}, 1)}, {"h0", normal<double>(initial, 2)}, {"W", normal<double>({1, 2, 4}, 3)}};
  std::erase_if(values, [&](const auto& value) { return std::ranges::count(op.input(), value.first) == 0; });
  return values;
}

void expect_same(const OperatorDef& op, const std::map<std::string, Tensor>& values, int64_t steps) {
  Workspace whole;
  for (const auto& [name, value] : values) whole.tensor(name) = value.clone();
  NetDef net;
  *net.add_op() = op;
  RunContext context;
  run_net_once(net, whole, context);
  const std::vector<InnerRun> runs = inner_run_rule("RecurrentNetwork")(op, values, 1);
  ASSERT_EQ(runs.size(), std::min<int64_t>(steps, 2));
  for (const InnerRun& run : runs) {
    EXPECT_EQ(run.what, "step net");
    EXPECT_EQ(run.results.count("h"), 1);
    EXPECT_EQ(run.results.count("o"), 1);
    Workspace step;
    for (const auto& [name, value] : run.feeds) step.tensor(name) = value.clone();
    run_net_once(run.net, step, context);
    const int64_t t = std::stoll(run.when.substr(std::string("timestep ").size()));
    for (const auto& [inner, outer] : {std::pair{"h", "h_all"}, {"o", "O"}})
      EXPECT_EQ(compare(step.fetch(inner), whole.fetch(outer).rows(t, 1), 1e-14), "") << run.when << " " << inner;
  }
}

TEST(StepRuns, AreTheTimestepsOfTheNetwork) {
  for (const char* reverse : {"", "reverse: true"})
    for (const int64_t steps : {4, 1, 2})
      for (const Shape& initial : {Shape{4}, Shape{2, 4}, Shape{1, 2, 4}}) {
        const OperatorDef op = network("initial: 'h0'", reverse);
        expect_same(op, values_of(op, steps, initial), steps);
      }
}

TEST(StepRuns, OfStatesThatStartAtZero) {
  const OperatorDef op = network("size: 4");
  expect_same(op, values_of(op, 3, {4}), 3);
}

TEST(StepRuns, OfNoTimesteps) {
  const OperatorDef op = network("initial: 'h0'");
  EXPECT_TRUE(inner_run_rule("RecurrentNetwork")(op, values_of(op, 0, {2, 4}), 1).empty());
}

TEST(StepRuns, AreThoseOfNetworksAlone) { EXPECT_EQ(inner_run_rule("Tanh"), nullptr); }

}  // namespace
}  // namespace stepnet::testing::step_runs_test
