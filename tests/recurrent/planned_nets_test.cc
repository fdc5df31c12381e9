// Planned memory on whole nets: results have the same bits as without it, the block is near the lower bound, runs that
// were prepared allocate nothing for intermediates, and no run takes more memory than one that lets go of
// intermediates.
#include <gtest/gtest.h>

#include <cstring>

#include "recurrent/form/short_form.h"
#include "recurrent/train/stepper.h"
#include "stepnet/gradients.h"
#include "stepnet/random.h"
#include "stepnet/text.h"
#include "tests/core/heap_counter.h"
#include "tests/core/planned_runs.h"
#include "tests/core/temp_folder.h"
#include "tests/recurrent/cell_files.h"
#include "tests/recurrent/tiny_model.h"
#include "tools/source_path.h"

namespace stepnet::testing::planned_nets_test {
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
        const NetDef net = trains ? descent_net(cell_net(name), "loss", parameters_of(feeds)) : cell_net(name);
        const Runs runs = check(net, feeds);
        EXPECT_TRUE(runs.memory.planned);
        EXPECT_GT(runs.memory.values, 0);
        EXPECT_LE(static_cast<double>(runs.memory.block), 1.05 * static_cast<double>(runs.memory.most_alive));
        EXPECT_EQ(runs.allocations.back(), 0);
      }
    }
  }
}

// The cell and, in training, a step along the gradient of each of its weights, where outputs have given gradients.
NetDef cell_descent(const std::string& name, Feeds& feeds) {
  NetDef net = cell_net(name);
  expand_recurrent(net);
  const auto blobs = run_forward(net, feeds);
  GradientRequest request;
  for (const std::string& parameter : parameters_of(feeds)) request.wanted.insert(parameter);
  for (const std::string& output : outputs_of(net)) {
    const Tensor& value = blobs.at(output);
    request.targets.emplace_back(output, output + "_given");
    feeds.emplace_back(output + "_given", value.dtype() == DType::float64 ? normal<double>(value.shape(), 5)
                                                                          : normal<float>(value.shape(), 5));
    net.add_external_input(output + "_given");
  }
  const GradientResult result = add_gradient_operators(net, request);
  for (const std::string& parameter : request.wanted) {
    const std::string gradient = result.gradients.at(parameter).dense, step = parameter + "_step";
    *net.add_op() = make_op("Scale", {gradient}, {step}, {make_arg("scale", 0.01F)});
    *net.add_op() = make_op("Sub", {parameter, step}, {parameter});
    net.add_external_output(parameter);
  }
  return net;
}

TEST(PlannedNets, EveryCellForwardAndTraining) {
  const uint64_t count = counts_heap() ? 3 : 1;  // a sanitizer takes some ten times as long
  for (const CellFile& cell : cell_files()) {
    for (uint64_t seed = 1; seed <= count; ++seed) {
      SCOPED_TRACE(fmt::format("{}, sizes {}", cell.name, seed));
      Sizes sizes = sizes_of(seed);
      sizes['H'] = sizes['D'];  // of dot products
      Feeds feeds = cell_feeds(cell.name, seed % 2 ? DType::float32 : DType::float64, sizes);
      NetDef forward = cell_net(cell.name);
      expand_recurrent(forward);
      check(forward, feeds);
      const NetDef training = cell_descent(cell.name, feeds);
      check(training, feeds);
    }
  }
}

struct Trained {
  std::vector<double> losses;
  std::map<std::string, Tensor> saved;
  std::vector<int64_t> peaks, allocations;
  NetMemory memory;
};

Trained train(const NetDef& net, bool plan_memory, int steps) {
  const int64_t before = allocator({}).counters().live;
  Trained result;
  const Model model = read_model(net);
  std::string text = tiny_text(20000);
  for (char& c : text) c = static_cast<char>(c % 32);
  TrainingSession session(model, {}, TextStreams(text, model.batch, model.timesteps), 3, steps, plan_memory);
  for (int i = 0; i < steps; ++i) {
    allocator({}).reset_peak();
    const int64_t allocations = allocator({}).counters().allocations;
    result.losses.push_back(session.step());
    result.peaks.push_back(allocator({}).counters().peak - before);
    result.allocations.push_back(allocator({}).counters().allocations - allocations);
  }
  for (const auto& [name, value] : session.save()) result.saved[name] = value.clone();
  result.memory = session.memory();
  return result;
}

TEST(PlannedNets, TrainingOfALanguageModelHasTheSameBits) {
  train(tiny_net(), false, 1);  // what the process keeps for itself is there
  const Trained planned = train(tiny_net(), true, 12), kept = train(tiny_net(), false, 12);
  EXPECT_TRUE(planned.memory.planned);
  EXPECT_EQ(kept.memory.values, 0);
  EXPECT_EQ(planned.losses, kept.losses);
  for (const auto& [name, value] : kept.saved) {
    const Tensor& other = planned.saved.at(name);
    ASSERT_EQ(value.str(), other.str()) << name;
    EXPECT_EQ(std::memcmp(value.raw(), other.raw(), value.bytes()), 0) << name;
  }
  for (size_t i = 0; i < planned.peaks.size(); ++i) EXPECT_LE(planned.peaks[i], kept.peaks[i]) << "step " << i;
  EXPECT_LT(planned.peaks.back(), kept.peaks.back());
  EXPECT_EQ(planned.allocations.back(), 0);
}

std::string row(const std::string& what, const NetMemory& m) {
  const auto kib = [](int64_t bytes) { return fmt::format("{:.1f}", static_cast<double>(bytes) / 1024); };
  return fmt::format("| {} | {} | {} | {} | {} |\n", what, m.values, kib(m.apart), kib(m.block), kib(m.most_alive));
}

// The table of docs/memory.md, which is printed anew where it differs.
TEST(PlannedNets, TheTableInTheDocs) {
  const Sizes sizes = {{'B', 32}, {'I', 64}, {'H', 128}, {'F', 512}, {'T', 16},
                       {'C', 17}, {'S', 20}, {'D', 128}, {'P', 64},  {'A', 64}};
  std::string table;
  for (const std::string& name : kNets) {
    const Feeds feeds = cell_feeds(name, DType::float32, sizes);
    const NetDef net = cell_net(name);
    table += row("`" + name.substr(5) + "`", run_all(net, feeds, {.plan_memory = true}).memory);
    const NetDef training = descent_net(net, "loss", parameters_of(feeds));
    table += row("`" + name.substr(5) + "`, training", run_all(training, feeds, {.plan_memory = true}).memory);
  }
  Feeds feeds = cell_feeds("attention_additive", DType::float32, sizes);
  const NetDef decoder = cell_descent("attention_additive", feeds);
  table += row("`attention_additive`, training", run_all(decoder, feeds, {.plan_memory = true}).memory);
  const NetDef model = load_net(source_path("tools/examples/char_lstm.pbtxt"));
  table += row("`char_lstm`, training", train(model, true, 4).memory);
  const std::string page = read_all(source_path("docs/memory.md"));
  EXPECT_NE(page.find(table), std::string::npos) << "docs/memory.md does not have\n" << table;
}

}  // namespace
}  // namespace stepnet::testing::planned_nets_test
