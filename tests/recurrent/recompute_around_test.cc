// Recomputation around a RecurrentNetwork: it runs once, what its gradient finds by name stays, and the rest of the net
// runs again to the same bits.
#include <gtest/gtest.h>

#include <algorithm>

#include "recurrent/form/layer_ops.h"
#include "recurrent/form/short_form.h"
#include "tests/core/recompute_testing.h"

namespace stepnet::testing::recompute_around_test {
namespace {

TrainingCase recurrent_case() {
  constexpr int64_t kT = 12, kB = 4, kI = 8, kH = 8;
  const Feeds feeds = {{"x", normal<float>({kT, kB, kI}, 1)},
                       {"W", normal<float>({kI, kI}, 2)},
                       {"b", normal<float>({kI}, 3)},
                       {"w_ih", normal<float>({4 * kH, kI}, 4)},
                       {"w_hh", normal<float>({4 * kH, kH}, 5)},
                       {"b_ih", normal<float>({4 * kH}, 6)},
                       {"b_hh", normal<float>({4 * kH}, 7)},
                       {"V", normal<float>({64, kH}, 8)},
                       {"c", normal<float>({64}, 9)}};
  NetDef net = net_of_lines({"u = FC(x, W, b) axis=2", "t = Tanh(u)", "d, m = Dropout(t)",
                             "Y = LSTM(d, -, -, w_ih, w_hh, b_ih, b_hh) hidden=8", "g = Gelu(Y)", "r, rm = Dropout(g)",
                             "v = FC(r, V, c) axis=2", "s = Swish(v)", "z = Mul(s, s)", "loss = AveragedLoss(z)"});
  expand_cell_operators(net);
  expand_recurrent(net);
  TrainingCase c = training_case("recurrent", net, feeds, {"W", "b", "w_ih", "w_hh", "b_ih", "b_hh", "V", "c"});
  // What only the operator knows is bounded from above.
  for (const OperatorDef& op : c.net.op())
    for (const std::string& name : op.output()) c.question.bytes[name] = 64 << 10;
  return c;
}

// The inputs of the first operator of that type.
std::vector<std::string> inputs_of(const NetDef& net, const std::string& type) {
  for (const OperatorDef& op : net.op())
    if (op.type() == type) return {op.input().begin(), op.input().end()};
  return {};
}

TEST(RecomputeAroundNetworks, TheyRunOnceAndBitsStay) {
  const TrainingCase c = recurrent_case();
  const RecomputePlanner planner(c.net, c.first_gradient_op, c.question);
  const TrainingRun whole = run_training(c, c.net);
  ASSERT_LT(planner.least_bytes(), planner.bytes_of_all_kept());
  for (const RecomputePlan& plan : planner.curve(6)) {
    EXPECT_EQ(
        std::ranges::count_if(plan.net.op(), [](const OperatorDef& op) { return op.type() == "RecurrentNetwork"; }), 1);
    const TrainingRun run = run_training(c, plan.net);
    EXPECT_EQ(first_difference(c, whole, run), "");
    EXPECT_LE(run.peak, plan.peak);
  }
  const RecomputePlan least = planner.plan(planner.least_bytes());
  EXPECT_LT(run_training(c, least.net).peak, whole.peak);
}

TEST(RecomputeAroundNetworks, TheirGradientsReadWhatTheyRead) {
  const TrainingCase c = recurrent_case();
  const MemoryValues values = value_net(c.net, c.first_gradient_op, c.question);
  std::vector<std::string> again;
  const NetDef net = with_segments_again(c.net, values, {{0, values.forward, true}}, &again);
  EXPECT_FALSE(again.empty());
  EXPECT_EQ(inputs_of(net, "RecurrentNetworkGradient"), inputs_of(c.net, "RecurrentNetworkGradient"));
}

}  // namespace
}  // namespace stepnet::testing::recompute_around_test
