// Budgets of recurrent networks: kept to the byte, at the least work, with the bits of a run without one.
#include "recurrent/network/segment_budget.h"

#include "core/compute/threads.h"
#include "tests/core/errors.h"
#include "tests/recurrent/segment_testing.h"

namespace stepnet::testing::segment_budget_test {
namespace {

NetDef with_budget(const NetDef& net, int64_t bytes) {
  NetDef copy = net;
  for (OperatorDef& op : *copy.mutable_op())
    if (op.type() == "RecurrentNetwork") *op.add_arg() = make_arg("memory_budget_bytes", bytes);
  return copy;
}

const std::vector<const char*> kResults = {"h_all",   "h_last",  "c_last",  "X_grad",
                                           "Wx_grad", "Wh_grad", "bx_grad", "bh_grad"};

class SegmentBudget : public ::testing::Test {
 protected:
  // The smallest budget, as the error says it.
  int64_t least() {
    const std::string text = error_text([&] { Training(with_budget(net_, 1), feeds_).run(); });
    const std::string before = "takes at least ";
    EXPECT_NE(text.find(before), std::string::npos) << text;
    return std::stoll(text.substr(text.find(before) + before.size()));
  }

  SerialScope serial_;
  Feeds feeds_ = lstm_feeds(1000, 32, 16);
  NetDef net_ = expanded_net(lstm(), feeds_);
};

TEST_F(SegmentBudget, IsKeptFromTheLeastToEverything) {
  Training whole(net_, feeds_);
  const int64_t all = whole.run(), smallest = least();
  EXPECT_LT(smallest, all * 6 / 10);
  double runs = 1e9;
  for (int i = 0; i <= 20; ++i) {
    const int64_t budget = smallest + (all + 100000 - smallest) * i / 20;
    Training some(with_budget(net_, budget), feeds_);
    EXPECT_LE(some.run(), budget) << i;
    EXPECT_LE(some.run(), budget) << i;
    for (const char* name : kResults) EXPECT_TRUE(same_bits(some[name], whole[name])) << name << " " << i;
    const Segments& segments = some.segments();
    const double work = segments.used ? static_cast<double>(segments.plan.runs * segments.steps) : 1000.0;
    EXPECT_LE(work, runs * 1.01) << i;  // the last segment may be shorter
    runs = work;
    EXPECT_EQ(segments.used, i < 20) << i;
  }
}

TEST_F(SegmentBudget, OneByteLessThanTheLeastIsRefusedWithTheNumber) {
  const int64_t smallest = least();
  EXPECT_LE(Training(with_budget(net_, smallest), feeds_).run(), smallest);
  expect_contains(error_text([&] { Training(with_budget(net_, smallest - 1), feeds_).run(); }),
                  fmt::format("\"memory_budget_bytes\" is {}, but a forward and backward pass over [1000, 32] takes at "
                              "least {} bytes",
                              smallest - 1, smallest));
}

TEST_F(SegmentBudget, FollowsShapes) {
  Training some(with_budget(net_, least()), feeds_), whole(net_, feeds_);
  for (const int64_t steps : {1000, 100, 1000, 400})
    for (Training* t : {&some, &whole}) {
      t->workspace().tensor("X") = normal<float>({steps, 32, 16}, 11);
      t->workspace().tensor("dh_all") = normal<float>({steps, 32, 16}, 12);
      t->run();
      if (t == &some) continue;
      EXPECT_TRUE(same_bits(some["Wh_grad"], whole["Wh_grad"])) << steps;
    }
}

TEST_F(SegmentBudget, IsForTraining) {
  NetDef forward = with_budget(net_, 1);
  for (OperatorDef& op : *forward.mutable_op())
    for (int i = op.arg_size(); i-- > 0;)
      if (op.arg(i).name().find("backward") != std::string::npos) op.mutable_arg()->DeleteSubrange(i, 1);
  Workspace workspace;
  for (const auto& [name, value] : feeds_) workspace.tensor(name) = value.clone();
  RunContext run;
  run_net_once(forward, workspace, run);
  EXPECT_EQ(workspace.fetch("h_all").dim(0), 1000);
}

TEST_F(SegmentBudget, MeansNothingBelowOne) {
  for (const int64_t bytes : {0, -5})
    expect_contains(error_text([&] { Training(with_budget(net_, bytes), feeds_).run(); }),
                    fmt::format("\"memory_budget_bytes\" is {}; it must be more than 0", bytes));
  NetDef both = with_budget(net_, 1 << 30);
  *both.mutable_op(0)->add_arg() = make_arg("segment_steps", 8);
  expect_contains(error_text([&] { Training(both, feeds_).run(); }), "cannot be given, too");
}

// So many timesteps that their shapes, which the backward step net reads, are more numbers than a dry run holds.
TEST(SegmentBudgetOfManySteps, KeepsShapesOfEachTimestep) {
  const SerialScope serial;
  const Cell cell{{"a = FC(x, Wx, bx) axis=2", "rows, old = Reshape(h_prev) shape=-1/2", "r = FC(rows, Wh, bh)",
                   "b, flat = Reshape(r) shape=1/-1/2", "joined, sizes = Concat(a, b) axis=2",
                   "c, d = Split(joined) axis=2", "s = Sum(c, d)", "h = Tanh(s)"},
                  {kLstmH}};
  const int64_t t = 60000;
  const Feeds feeds = {{"X", normal<float>({t, 1, 2}, 1)},     {"h0", normal<float>({1, 1, 2}, 2)},
                       {"Wx", normal<float>({2, 2}, 4)},       {"bx", normal<float>({2}, 5)},
                       {"Wh", normal<float>({2, 2}, 6)},       {"bh", normal<float>({2}, 7)},
                       {"dh_all", normal<float>({t, 1, 2}, 8)}};
  const NetDef net = expanded_net(cell, feeds);
  Training whole(net, feeds);
  const int64_t all = whole.run(), budget = all * 4 / 10;
  Training some(with_budget(net, budget), feeds);
  EXPECT_LE(some.run(), budget);
  EXPECT_LE(some.run(), budget);
  EXPECT_TRUE(some.segments().used);
  EXPECT_GT(some.segments().count(), 128);
  for (const char* name : {"h_all", "h_last", "X_grad", "Wx_grad", "Wh_grad", "bx_grad", "bh_grad"})
    EXPECT_TRUE(same_bits(some[name], whole[name])) << name;
}

// A fixed part, what segments of some size need, and two operations more for each byte that there is not.
SegmentFigures made_up(const SegmentChoice& c) {
  if (c.steps == 0) return {10000, 100};
  const int64_t least = 1000 + 10 * c.steps;
  return {least + c.room, 200 - static_cast<double>(c.room) / 100};
}

TEST(BestSegments, TakesTheFewestOperationsThatFit) {
  const SegmentQuestion question{.budget = 6000, .steps = 1000, .batch = 32};
  const SegmentAnswer answer = best_segments(question, made_up);
  EXPECT_TRUE(answer.fits);
  EXPECT_EQ(answer.choice.steps, 8);
  EXPECT_EQ(answer.figures.peak, 6000);
  EXPECT_EQ(answer.least, 1080);
}

TEST(BestSegments, SaysTheLeastIfNothingFits) {
  const SegmentAnswer answer = best_segments({.budget = 1079, .steps = 1000, .batch = 32}, made_up);
  EXPECT_FALSE(answer.fits);
  EXPECT_EQ(answer.least, 1080);
  EXPECT_EQ(answer.choice, (SegmentChoice{8, 0}));
}

TEST(BestSegments, StaysInOnePieceIfThatFits) {
  EXPECT_EQ(best_segments({.budget = 10000, .steps = 1000, .batch = 32}, made_up).choice, SegmentChoice{});
}

}  // namespace
}  // namespace stepnet::testing::segment_budget_test
