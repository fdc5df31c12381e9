// Planned memory on whole nets: results have the same bits as without it, the block is near the lower bound, runs that
// were prepared allocate nothing for intermediates, and no run takes more memory than one that lets go of
// intermediates.
#include <gtest/gtest.h>

#include <cstring>

#include "core/random.h"
#include "recurrent/builder.h"
#include "tests/core/planned_runs.h"
#include "tests/recurrent/cell_files.h"

namespace stepnet::testing {
namespace {

const std::vector<std::string> kNets = {"nets/mlp", "nets/residual_blocks", "nets/self_attention",
                                        "nets/layer_norm_gelu"};

Sizes sizes_of(uint64_t seed) {
  Sizes sizes;
  for (const char c : std::string("BIHFTSPDA")) sizes[c] = random_int(seed, static_cast<uint64_t>(c), 1, 40);
  sizes['C'] = sizes['T'] + 1;
  return sizes;
}

std::vector<std::string> parameters_of(const Feeds& feeds) {
  std::vector<std::string> names;
  for (const auto& [name, value] : feeds)
    if (name.size() > 2 && name[1] == '_') names.push_back(name);
  return names;
}

struct Runs {
  std::vector<std::map<std::string, Tensor>> outputs;  // by run
  std::vector<int64_t> peaks, allocations;
  NetMemory memory;
};

// Peaks are beyond what is live before.
Runs run_all(const NetDef& net, const Feeds& feeds, const NetOptions& options) {
  Runs result;
  const int64_t before = allocator({}).counters().live;
  NetRuns runs(net, feeds, options);
  constexpr int kRuns = 5;
  int64_t copies = 0;
  for (int i = 0; i < kRuns; ++i) {
    runs.run();
    result.peaks.push_back(runs.peak() - before - copies);
    result.allocations.push_back(runs.allocations());
    const int64_t live = allocator({}).counters().live;
    auto& outputs = result.outputs.emplace_back();
    for (const std::string& name : outputs_of(net)) outputs[name] = runs.workspace().fetch(name).clone();
    copies += allocator({}).counters().live - live;
  }
  result.memory = runs.net().memory();
  return result;
}

// Same bits, and not more memory at a time than a net that lets go of intermediates.
Runs check(const NetDef& net, const Feeds& feeds) {
  const Runs plain = run_all(net, feeds, {});
  const Runs released = run_all(net, feeds, {.release_intermediates = true});
  Runs planned = run_all(net, feeds, {.plan_memory = true});
  for (size_t i = 0; i < planned.outputs.size(); ++i) {
    EXPECT_LE(planned.peaks[i], released.peaks[i]) << "run " << i;
    for (const auto& [name, value] : plain.outputs[i]) {
      const Tensor& other = planned.outputs[i].at(name);
      EXPECT_EQ(value.str(), other.str());
      EXPECT_EQ(std::memcmp(value.raw(), other.raw(), value.bytes()), 0) << name << " in run " << i;
    }
  }
  return planned;
}

TEST(PlannedNets, ExamplesForwardAndTrainingAreNearTheLowerBound) {
  for (const std::string& name : kNets) {
    for (uint64_t seed = 1; seed <= 5; ++seed) {
      for (const bool trains : {false, true}) {
        SCOPED_TRACE(fmt::format("{}, sizes {}, {}", name, seed, trains ? "training" : "forward"));
        const Feeds feeds = cell_feeds(name, seed % 2 ? DType::float32 : DType::float64, sizes_of(seed));
        NetDef net = cell_net(name);
        if (trains) net = descent_net(net, "loss", parameters_of(feeds));
        const Runs runs = check(net, feeds);
        const NetMemory& memory = runs.memory;
        fmt::print("{} {} {}: {} values, {} over, apart {}, block {}, bound {} ({:.3f}), {} allocations\n", name, seed,
                   trains, memory.values, memory.written_over, memory.apart, memory.block, memory.most_alive,
                   static_cast<double>(memory.block) / memory.most_alive, runs.allocations.back());
        EXPECT_TRUE(memory.planned);
        EXPECT_GT(memory.values, 0);
        EXPECT_LE(static_cast<double>(memory.block), 1.05 * static_cast<double>(memory.most_alive));
        EXPECT_EQ(runs.allocations.back(), 0);
      }
    }
  }
}

}  // namespace
}  // namespace stepnet::testing
