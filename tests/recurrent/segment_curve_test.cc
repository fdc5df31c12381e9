// What less memory costs an LSTM of 1000 timesteps: the table of docs/memory.md.
#include <gtest/gtest.h>

#include "core/compute/threads.h"
#include "core/tensor/dry_device.h"
#include "tests/core/temp_folder.h"
#include "tests/recurrent/segment_testing.h"
#include "tools/source_path.h"

namespace stepnet::testing::segment_curve_test {
namespace {

constexpr int64_t kSteps = 1000, kBatch = 32, kWidth = 256;

struct Point {
  int64_t steps = 0, peak = 0;
  double flops = 0, runs = 0;
};

// One dry training step, the second.
Point measure(const NetDef& forward, const Feeds& feeds, const SegmentChoice& choice) {
  DryScope scope;
  Workspace workspace;
  NetDef net = in_segments(forward, choice.steps, choice.room);
  for (const auto& [name, value] : feeds) workspace.tensor(name) = Tensor::empty(value.dtype(), value.shape());
  add_gradient_operators(net, {.targets = {{"h_all", "dh_all"}}, .wanted = {"X", "Wx", "bx", "Wh", "bh"}, .stop = {}});
  Net bound(net, workspace);
  const int64_t before = scope.counters().live;
  double flops = 0;
  for (int i = 0; i < 2; ++i) {
    flops = scope.flops;
    RunContext run;
    bound.run(run);
  }
  Point p{0, scope.counters().peak - before, scope.flops - flops, 1};
  for (const std::string& name : workspace.names()) {
    if (!workspace.at(name).holds<RecurrentScratch>()) continue;
    const Segments& segments = workspace.at(name).get<RecurrentScratch>().segments;
    if (!segments.used) continue;
    p.steps = segments.steps;
    p.runs = static_cast<double>(segments.plan.runs) / static_cast<double>(segments.count());
  }
  return p;
}

// What a network keeps is the gates and c of every timestep; a share of that is the budget, the rest is as it is.
TEST(SegmentCurve, TheTableInTheDocs) {
  const SerialScope serial;
  const Feeds feeds = lstm_feeds(kSteps, kBatch, kWidth);
  const NetDef net = expanded_net(lstm(), feeds);
  const Point whole = measure(net, feeds, {});
  const int64_t kept = kSteps * kBatch * kWidth * 4 * 5, rest = whole.peak - kept;
  const std::string page = read_all(source_path("docs/memory.md"));
  std::string table;
  bool is_there = true;
  for (const double share : {100., 50., 25., 10., 5., 3., 2., 1.5}) {
    const int64_t budget = rest + static_cast<int64_t>(share / 100 * static_cast<double>(kept));
    const SegmentAnswer answer =
        best_segments({.budget = budget, .steps = kSteps, .batch = kBatch}, [&](const SegmentChoice& c) {
          const Point p = measure(net, feeds, c);
          return SegmentFigures{p.peak, p.flops};
        });
    ASSERT_TRUE(answer.fits) << share << " " << answer.least << " " << rest;
    const Point p = measure(net, feeds, answer.choice);
    EXPECT_LE(p.peak, budget);
    const std::string row =
        fmt::format("| {:g}% | {} | {:.2f} | {:.1f}% |", share, p.steps == 0 ? "in one" : fmt::format("{}", p.steps),
                    p.runs - 1, 100 * (p.flops / whole.flops - 1));
    is_there = is_there && page.find(row) != std::string::npos;
    table += row + "\n";
    // Published for a network of this length: 95% less memory for one third more time.
    EXPECT_LE(p.flops / whole.flops, share >= 5 ? 4.0 / 3 : 10) << share;
  }
  EXPECT_TRUE(is_there) << "docs/memory.md must have these rows:\n" << table;
}

}  // namespace
}  // namespace stepnet::testing::segment_curve_test
