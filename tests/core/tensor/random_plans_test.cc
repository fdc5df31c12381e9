// Random plans: a random net cut into several that share its blobs, in nested steps that run again and again, with a
// counter, parameters that are updated in place, and memory planned or released. Blobs are those of the reference,
// which runs the operators one by one.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "stepnet/plan.h"
#include "tests/core/random_nets_check.h"
#include "tests/core/random_nets_reference.h"

namespace stepnet::testing::random_plans_test {
namespace {

struct RandomPlan {
  PlanDef plan;
  std::vector<NetFeed> feeds;
  int64_t batch = 0;
};

// Pieces of the net, each with what it reads from outside of itself. One with an Alias stays whole, as a net knows no
// aliases but its own.
std::vector<NetDef> cut(const NetDef& net, NetDice& dice) {
  std::vector<NetDef> pieces;
  const bool whole = std::ranges::any_of(net.op(), [](const OperatorDef& op) { return op.type() == "Alias"; });
  for (const OperatorDef& op : net.op()) {
    if (pieces.empty() || (!whole && dice.chance(0.3))) {
      NetDef& piece = pieces.emplace_back();
      piece.set_name("net" + std::to_string(pieces.size()));
    }
    *pieces.back().add_op() = op;
  }
  return pieces;
}

void add_update(NetDef& net, const std::string& parameter) {
  *net.add_op() = make_op("Iter", {"counter"}, {"counter"});
  *net.add_op() = make_op("Cast", {"counter"}, {"count"}, {make_arg("to", "double")});
  *net.add_op() = make_op("Tanh", {parameter}, {parameter + "_step"});
  *net.add_op() = make_op("WeightedSum", {parameter, "one", parameter + "_step", "count"}, {parameter});
}

// Steps that follow each other, some of them around others.
void add_steps(const std::vector<NetDef>& nets, size_t begin, size_t end, NetDice& dice, ExecutionStep& around) {
  for (size_t i = begin; i < end;) {
    ExecutionStep& step = *around.add_substep();
    step.set_name("step" + std::to_string(i));
    step.set_num_iter(1 + dice.below(3));
    const size_t stop = i + 1 + static_cast<size_t>(dice.below(static_cast<int64_t>(end - i)));
    if (stop - i > 1 && dice.chance(0.4) && !(begin == i && stop == end)) {
      add_steps(nets, i, stop, dice, step);
    } else {
      for (size_t k = i; k < stop; ++k) step.add_network(nets[k].name());
    }
    i = stop;
  }
}

RandomPlan random_plan(uint64_t seed) {
  NetDice dice(seed + 99);
  RandomNet r = random_net(seed);
  RandomPlan p{.plan = {}, .feeds = r.feeds, .batch = r.batches[0]};
  std::vector<NetDef> nets = cut(r.net, dice);
  for (const NetFeed& feed : r.feeds)
    if (!feed.fixed.defined() && dice.chance(0.3)) {
      add_update(nets[static_cast<size_t>(dice.below(static_cast<int64_t>(nets.size())))], feed.name);
      break;
    }
  p.feeds.push_back({.name = "counter", .fixed = Tensor::of<int64_t>({1}, {0})});
  p.feeds.push_back({.name = "one", .fixed = Tensor::of<double>({1}, {1})});
  p.plan.set_name("plan");
  for (const NetDef& net : nets) *p.plan.add_network() = net;
  ExecutionStep& all = *p.plan.add_execution_step();
  all.set_name("all");
  all.set_num_iter(2 + dice.below(3));
  add_steps(nets, 0, nets.size(), dice, all);
  return p;
}

void run_reference(const PlanDef& plan, const ExecutionStep& step, ReferenceBlobs& blobs,
                   std::map<std::string, int64_t>& runs) {
  for (int64_t i = 0; i < step.num_iter(); ++i) {
    for (const ExecutionStep& substep : step.substep()) run_reference(plan, substep, blobs, runs);
    for (const std::string& name : step.network())
      for (const NetDef& net : plan.network())
        if (net.name() == name) blobs.run(net, runs[name]++);
  }
}

// What outlives the plan whatever its nets drop: what is fed.
std::string check_plan_runs(const RandomPlan& p, const NetOptions& options, bool all) {
  ReferenceBlobs reference;
  Workspace workspace;
  for (const NetFeed& feed : p.feeds) {
    reference.feed(feed.name, feed_value(feed, p.batch, 1));
    workspace.tensor(feed.name) = feed_value(feed, p.batch, 1);
  }
  std::map<std::string, int64_t> counts;
  std::string refusal, error;
  try {
    run_reference(p.plan, p.plan.execution_step(0), reference, counts);
  } catch (const Error& e) {
    refusal = e.what();
  }
  try {
    RunContext run;
    PlanOptions plan_options;
    plan_options.net = options;
    run_plan(p.plan, workspace, run, plan_options);
  } catch (const Error& e) {
    error = e.what();
  }
  if (!refusal.empty() || !error.empty())
    return refusal.empty() != error.empty() ? "only one fails: " + refusal + error : "";
  for (const std::string& name : reference.names()) {
    const Blob* blob = workspace.find(name);
    if (!all && std::ranges::none_of(p.feeds, [&](const NetFeed& feed) { return feed.name == name; })) continue;
    const Tensor right = reference.at(name);
    const Tensor& value = std::as_const(*blob).tensor();
    const bool same = value.dtype() == right.dtype() && value.shape() == right.shape() &&
                      (value.bytes() == 0 || std::memcmp(value.raw(), right.raw(), value.bytes()) == 0);
    if (!same) return fmt::format("{} is {} and not {}", name, value.str(), right.str());
  }
  return "";
}

// How many of the plans are wrong.
uint64_t count_wrong(uint64_t count, uint64_t first) {
  uint64_t wrong = 0;
  for (uint64_t seed = first; seed < first + count; ++seed) {
    const RandomPlan p = random_plan(seed);
    const NetOptions ways[] = {{}, {.release_intermediates = true}, {.plan_memory = true}};
    for (const NetOptions& way : ways) {
      const std::string found = check_plan_runs(p, way, !way.release_intermediates && !way.plan_memory);
      EXPECT_EQ(found, "") << "seed " << seed << "\n" << p.plan.DebugString();
      wrong += found.empty() ? 0 : 1;
    }
  }
  return wrong;
}

TEST(RandomPlans, AreThoseOfTheReference) { EXPECT_EQ(count_wrong(300, 1), 0u); }

TEST(RandomPlans, Campaign) {
  const auto [count, first] = campaign_seeds();
  if (count == 0) GTEST_SKIP() << "for tests/random_nets";
  fmt::print("{} plans, {} wrong\n", count, count_wrong(count, first));
}

}  // namespace
}  // namespace stepnet::testing::random_plans_test
