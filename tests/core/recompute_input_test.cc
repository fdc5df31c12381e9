// What recomputation refuses, and what it must not run again.
#include <gtest/gtest.h>

#include "tests/core/errors.h"
#include "tests/core/recompute_testing.h"

namespace stepnet::testing::recompute_input_test {
namespace {

TrainingCase chain(const Shape& x = {64, 16}) {
  const Feeds feeds = {{"x", normal<float>(x, 1)}, {"W", normal<float>({16, 16}, 2)}, {"b", normal<float>({16}, 3)}};
  return training_case("chain",
                       {"u = FC(x, W, b)", "t = Tanh(u)", "d, m = Dropout(t)", "v = FC(d, W, b)", "s = Gelu(v)",
                        "g = Swish(s)", "z = Mul(g, g)", "loss = AveragedLoss(z)"},
                       feeds, {"W", "b"});
}

RecomputePlan plan_for(const TrainingCase& c, int64_t bytes) {
  return plan_recompute(c.net, c.first_gradient_op, c.question, bytes);
}

// All plans of the net give the same bits as the net itself. Returns the tightest.
RecomputePlan check_plans(const TrainingCase& c) {
  const std::vector<RecomputePlan> plans = RecomputePlanner(c.net, c.first_gradient_op, c.question).curve(10);
  const TrainingRun whole = run_training(c, c.net);
  for (const RecomputePlan& plan : plans) {
    const TrainingRun run = run_training(c, plan.net);
    EXPECT_EQ(run.peak, plan.peak);
    EXPECT_EQ(first_difference(c, whole, run), "");
  }
  return plans.front();
}

int times_run(const NetDef& net, const std::string& type) {
  return static_cast<int>(std::ranges::count_if(net.op(), [&](const OperatorDef& op) { return op.type() == type; }));
}

TEST(RecomputeInput, BudgetsMustBePositive) {
  for (const int64_t bytes : {int64_t{0}, int64_t{-1}, INT64_MIN})
    expect_contains(error_text([&] { plan_for(chain(), bytes); }),
                    fmt::format("a memory budget must be positive, but is {} bytes", bytes));
}

TEST(RecomputeInput, ABudgetThatIsTooSmallIsAnErrorWithTheSmallestThatIsNot) {
  const TrainingCase c = chain();
  const int64_t least = RecomputePlanner(c.net, c.first_gradient_op, c.question).least_bytes();
  EXPECT_LE(plan_for(c, least).peak, least);
  const std::string text = error_text([&] { plan_for(c, least - 1); });
  expect_contains(text, fmt::format("does not fit a memory budget of {} bytes: it takes at least {}, and {} with",
                                    least - 1, least, plan_for(c, INT64_MAX).peak));
  expect_contains(text, fmt::format("set the budget to {} or more", least));
}

TEST(RecomputeInput, WhatFitsIsLeftAsItIs) {
  const TrainingCase c = chain();
  const RecomputePlan plan = plan_for(c, dry_run_bytes(c.net, c.question).peak);
  EXPECT_EQ(plan.net.SerializeAsString(), c.net.SerializeAsString());
  EXPECT_EQ(plan.extra_flops, 0);
  EXPECT_GT(plan.flops, 0);
}

TEST(RecomputeInput, UnknownShapesAreNamed) {
  TrainingCase c = chain();
  c.question.feeds.erase("x");
  const std::string text = error_text([&] { plan_for(c, 1 << 20); });
  for (const char* name : {"\"x\"", "\"u\"", "\"t\"", "\"loss\""}) expect_contains(text, name);
}

TEST(RecomputeInput, ShapesThatDependOnDataNeedABound) {
  const Feeds feeds = {{"x", normal<float>({32, 16}, 1)},
                       {"w", normal<float>({32, 16}, 2)},
                       {"shape", Tensor::of<int64_t>({2}, {16, 32})}};
  TrainingCase c = training_case(
      "reshaped",
      {"t = Tanh(w)", "r, old = Reshape(t, shape)", "s = Swish(r)", "z = Mul(s, s)", "loss = AveragedLoss(z)"}, feeds,
      {"w"});
  expect_contains(error_text([&] { plan_for(c, 1 << 20); }), "\"r\"");
  for (const OperatorDef& op : c.net.op())
    if (op.type() == "Reshape")
      c.question.bounds[op.output(0)] =
          TensorType::of(DType::float32, op.is_gradient_op() ? Shape{32, 16} : Shape{16, 32});
  const RecomputePlan plan = plan_for(c, RecomputePlanner(c.net, c.first_gradient_op, c.question).least_bytes());
  const TrainingRun run = run_training(c, plan.net);
  EXPECT_LE(run.peak, plan.peak);
  EXPECT_EQ(first_difference(c, run_training(c, c.net), run), "");
}

TEST(RecomputeInput, ThePartsOfTheNetAreChecked) {
  const TrainingCase c = chain();
  for (const int first : {-1, c.net.op_size() + 1})
    expect_contains(error_text([&] { plan_recompute(c.net, first, c.question, 1 << 20); }),
                    fmt::format("the first gradient operator of net \"lines\" cannot be {}", first));
  EXPECT_EQ(plan_recompute(c.net, 0, c.question, 1 << 30).extra_flops, 0);
  EXPECT_EQ(plan_recompute(c.net, c.net.op_size(), c.question, 1 << 30).extra_flops, 0);
  EXPECT_EQ(plan_recompute(NetDef(), 0, {}, 1).peak, 0);
}

TEST(RecomputeInput, SizesThatOverflowAreRefused) {
  TrainingCase c = chain();
  c.question.feeds["x"].shape = {INT64_MAX / 16, 16};
  EXPECT_NE(error_text([&] { plan_for(c, 1 << 20); }), "");
}

TEST(RecomputeInput, EmptyAndSingleRowsWork) {
  for (const int64_t rows : {0, 1}) {
    const TrainingCase c = chain({rows, 16});
    const RecomputePlanner planner(c.net, c.first_gradient_op, c.question);
    const RecomputePlan plan = planner.plan(planner.least_bytes());
    const TrainingRun run = run_training(c, plan.net);
    EXPECT_EQ(run.peak, plan.peak);
  }
}

TEST(RecomputeInput, RandomOperatorsDrawTheSameUnderAnotherName) {
  const RecomputePlan plan = check_plans(chain());
  EXPECT_EQ(times_run(plan.net, "Dropout"), 2);
  for (const OperatorDef& op : plan.net.op()) {
    const bool again = op.type() == "Dropout" && op.output(0) != "d";
    EXPECT_EQ(op.GetExtension(draws_as), again ? "d" : "");
  }
}

// The sum cannot be made again, because a feed is not what it was; it stays, and what follows runs again from there.
TEST(RecomputeInput, WhatReadsOverwrittenFeedsRunsOnce) {
  const Feeds feeds = {{"x", normal<float>({64, 16}, 1)}, {"w", normal<float>({64, 16}, 2)}};
  const TrainingCase c = training_case("overwritten",
                                       {"n = Add(x, w)", "x = Sigmoid(x)", "u = Tanh(n)", "v = Gelu(u)", "s = Swish(v)",
                                        "z = Mul(s, s)", "loss = AveragedLoss(z)"},
                                       feeds, {"w"});
  check_plans(c);
  const MemoryValues values = value_net(c.net, c.first_gradient_op, c.question);
  const NetDef again = with_segments_again(c.net, values, {{0, values.forward, true}});
  EXPECT_EQ(times_run(again, "Add"), 1);
  EXPECT_EQ(times_run(again, "Tanh"), 2);
  EXPECT_EQ(first_difference(c, run_training(c, c.net), run_training(c, again)), "");
}

// What "a" was is gone where it has become another name of "x", so nothing that reads it can run again from there.
TEST(RecomputeInput, AnAliasTakesTheNameOfWhatWouldBeReadAgain) {
  const Feeds feeds = {{"x", normal<float>({64, 16}, 1)}, {"w", normal<float>({64, 16}, 2)}};
  const TrainingCase c = training_case("renamed",
                                       {"a = Negative(w)", "b = Tanh(a)", "a = Alias(x)", "s = Mul(a, b)",
                                        "g = Swish(s)", "z = Mul(g, g)", "loss = AveragedLoss(z)"},
                                       feeds, {"w"});
  check_plans(c);
  const MemoryValues values = value_net(c.net, c.first_gradient_op, c.question);
  const NetDef again = with_segments_again(c.net, values, {{1, 2, true}});
  EXPECT_EQ(times_run(again, "Tanh"), 1);
  EXPECT_EQ(first_difference(c, run_training(c, c.net), run_training(c, again)), "");
}

TEST(RecomputeInput, OperatorsWithSideEffectsRunOnce) {
  const Feeds feeds = {{"x", normal<float>({64, 16}, 1)},    {"w", normal<float>({64, 16}, 2)},
                       {"s", normal<float>({16}, 3)},        {"b", normal<float>({16}, 4)},
                       {"mean", uniform<float>({16}, 0, 1)}, {"var", uniform<float>({16}, 1, 2)}};
  const TrainingCase c =
      training_case("norm",
                    {"t = Mul(x, w)", "u = Tanh(t)", "y, mean, var, m, i = BatchNorm(u, s, b, mean, var)",
                     "v = Swish(y)", "g = Gelu(v)", "z = Mul(g, g)", "loss = AveragedLoss(z)"},
                    feeds, {"w", "s", "b"});
  const RecomputePlan plan = check_plans(c);
  EXPECT_GT(plan.extra_flops, 0);
  EXPECT_EQ(times_run(plan.net, "BatchNorm"), 1);
}

// The net in the argument reads "u" when nothing else in the forward part does any more.
TEST(RecomputeInput, WhatNetsInArgumentsReadStays) {
  const Feeds feeds = {
      {"x", normal<float>({64, 16}, 1)}, {"w", normal<float>({64, 16}, 2)}, {"true", Tensor::of<bool>({1}, {true})}};
  NetDef net = net_of_lines({"t = Mul(x, w)", "u = Tanh(t)", "v = Gelu(u)", "y = If(true)", "s = Swish(v)",
                             "g = Gelu(s)", "z = Mul(g, g)", "loss = AveragedLoss(z)"});
  Argument& branch = *net.mutable_op(3)->add_arg();
  branch.set_name("then_net");
  *branch.mutable_n() = net_of_lines({"y = Sigmoid(u)"});
  TrainingCase c = training_case("branch", net, feeds, {"w"});
  c.question.keep.insert("y");
  c.question.bounds["y"] = TensorType::of(DType::float32, {64, 16});
  EXPECT_GT(check_plans(c).extra_flops, 0);
  const MemoryValues values = value_net(c.net, c.first_gradient_op, c.question);
  const NetDef again = with_segments_again(c.net, values, {{0, values.forward, true}});
  EXPECT_EQ(first_difference(c, run_training(c, c.net), run_training(c, again)), "");
}

TEST(RecomputeInput, FreshNamesAreFresh) {
  TrainingCase c = chain();
  const std::vector<std::string> taken = {"t_again", "d_again", "m_again", "u_again", "s_again", "g_again", "v_again"};
  for (const std::string& name : taken) *c.net.add_op() = make_op("Copy", {"x"}, {name});
  const RecomputePlan plan = check_plans(c);
  EXPECT_FALSE(plan.again.empty());
  for (const std::string& name : plan.again) EXPECT_EQ(std::ranges::count(taken, name), 0) << name;
}

}  // namespace
}  // namespace stepnet::testing::recompute_input_test
