// Cuts against all divisions of small nets: none that fits is cheaper than the one that is chosen.
#include "core/passes/recompute_cuts.h"

#include <gtest/gtest.h>

#include "tests/core/recompute_testing.h"

namespace stepnet::testing::recompute_cuts_test {
namespace {

struct Tried {
  int64_t peak = 0, cost_peak = 0;
  double flops = 0;
};

// Every division of the net from position `begin` on, each counted over the operators of the net that it makes.
class AllDivisions {
 public:
  explicit AllDivisions(const TrainingCase& c)
      : c_(c), values_(value_net(c.net, c.first_gradient_op, c.question)), costs_(values_) {
    extend(0, values_.lasting, 0);
  }
  const std::vector<Tried>& all() const { return all_; }
  const MemoryValues& values() const { return values_; }

  double cheapest(int64_t bytes, int64_t Tried::*peak) const {
    double least = -1;
    for (const Tried& t : all_)
      if (t.*peak <= bytes && (least < 0 || t.flops < least)) least = t.flops;
    return least;
  }

 private:
  void extend(int begin, int64_t kept, int64_t peak) {
    if (begin == values_.forward) {
      Tried t;
      t.peak = dry_run_bytes(with_segments_again(c_.net, values_, segments_), c_.question).peak;
      t.cost_peak = std::max(peak, values_.lasting + costs_.peak_afterwards());
      for (const Segment& s : segments_) t.flops += costs_.cost(s).flops;
      all_.push_back(t);
      return;
    }
    for (int end = begin + 1; end <= values_.forward; ++end) {
      for (const bool again : {false, true}) {
        if (!again && end > begin + 1) continue;  // several kept ones are the same as one
        const RerunCost cost = costs_.cost({begin, end, again});
        if (!cost.possible) continue;
        segments_.push_back({begin, end, again});
        extend(end, kept + cost.kept, std::max(peak, kept + cost.peak));
        segments_.pop_back();
      }
    }
  }

  const TrainingCase& c_;
  MemoryValues values_;
  RerunCosts costs_;
  std::vector<Segment> segments_;
  std::vector<Tried> all_;
};

TrainingCase small_chain() {
  const Feeds feeds = {{"x", normal<float>({8, 4}, 1)},
                       {"V", normal<float>({40, 4}, 2)},
                       {"W", normal<float>({6, 40}, 3)},
                       {"b", normal<float>({40}, 4)},
                       {"c", normal<float>({6}, 5)}};
  return training_case("small chain",
                       {"u = FC(x, V, b)", "t = Tanh(u)", "d, m = Dropout(t)", "v = FC(d, W, c)", "s = Swish(v)",
                        "z = Mul(s, s)", "loss = AveragedLoss(z)"},
                       feeds, {"V", "W", "b", "c"});
}

TrainingCase small_residual() {
  const Feeds feeds = {
      {"x", normal<float>({8, 12}, 1)}, {"W", normal<float>({12, 12}, 2)}, {"b", normal<float>({12}, 3)}};
  return training_case("small residual",
                       {"n, mean, std = LayerNorm(x)", "u = FC(n, W, b)", "g = Gelu(u)", "y = Add(g, x)",
                        "s = Swish(y)", "z = Mul(s, y)", "loss = AveragedLoss(z)"},
                       feeds, {"W", "b"});
}

// Behind the gradients, two names of the forward part are used for something else.
TrainingCase reused_names() {
  TrainingCase c = small_chain();
  c.name = "reused names";
  for (const char* name : {"t", "s"}) {
    *c.net.add_op() = make_op("Sqr", {"x"}, {name});
    *c.net.add_op() = make_op("Sqr", {name}, {name});
  }
  return c;
}

// The costs of segments add up to what the net takes, or to more.
TEST(RecomputeCuts, CostsAddUpToThePeak) {
  for (const TrainingCase& c : {small_chain(), small_residual()}) {
    const AllDivisions divisions(c);
    EXPECT_GT(divisions.all().size(), 30U);
    for (const Tried& t : divisions.all()) EXPECT_EQ(t.cost_peak, t.peak) << c.name;
  }
}

TEST(RecomputeCuts, NoDivisionThatFitsIsCheaper) {
  std::vector<TrainingCase> cases = {small_chain(), small_residual(), reused_names()};
  for (uint64_t seed = 0; seed < 12; ++seed) cases.push_back(random_case(seed, 8));
  for (const TrainingCase& c : cases) {
    const AllDivisions divisions(c);
    const CutPlanner cuts(divisions.values());
    int64_t least = -1;
    for (const Tried& t : divisions.all()) {
      least = least < 0 ? t.cost_peak : std::min(least, t.cost_peak);
      EXPECT_LE(t.peak, t.cost_peak) << c.name;
      const auto chosen = cuts.cheapest(t.cost_peak);
      ASSERT_TRUE(chosen.has_value()) << c.name;
      EXPECT_DOUBLE_EQ(chosen->flops, divisions.cheapest(t.cost_peak, &Tried::cost_peak)) << c.name;
    }
    EXPECT_EQ(cuts.least_bytes(), least) << c.name;
    EXPECT_FALSE(cuts.cheapest(least - 1).has_value()) << c.name;
  }
}

// The same against what the nets really take: how often the costs' upper bound makes a plan dearer.
TEST(RecomputeCuts, CostsAreCloseToWhatNetsReallyTake) {
  int asked = 0, dearer = 0;
  for (uint64_t seed = 500; seed < 512; ++seed) {
    const TrainingCase c = random_case(seed, 8);
    const AllDivisions divisions(c);
    const RecomputePlanner planner(c.net, c.first_gradient_op, c.question);
    for (const Tried& t : divisions.all()) {
      if (t.peak < planner.least_bytes()) continue;
      ++asked;
      const double best = divisions.cheapest(t.peak, &Tried::peak), got = planner.plan(t.peak).extra_flops;
      EXPECT_GE(got, best) << c.name;
      dearer += got > best;
    }
  }
  EXPECT_GT(asked, 1000);
  EXPECT_LE(dearer, asked / 20);
}

}  // namespace
}  // namespace stepnet::testing::recompute_cuts_test
