// Random step nets against the same nets unrolled, in many settings. See tests/recurrent/random_step_nets.h.
//
// The command tests/random_step_nets runs as many as one likes: it gives the seeds in the environment.
#include "tests/recurrent/random_step_nets.h"
#include "tests/core/heap_counter.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>

#include "stepnet/text.h"

namespace stepnet::testing::random_step_nets_test {
namespace {

constexpr int kShrunkOfACause = 3;  // by one process of a campaign; others are counted

struct Counts {
  int64_t nets = 0, trials = 0, invalid = 0, documented = 0, wrong = 0, refused = 0;
};

bool is_documented(const Finding& finding) {
  return finding.kind == Finding::Kind::refused && finding.text.find("depends on data") != std::string::npos;
}

// The first finding of the seed, if there is one.
std::optional<Shrunk> check_seed(uint64_t seed, Counts& counts) {
  const StepNet net = random_step_net(seed);
  References known;
  ++counts.nets;
  const std::vector<Trial> trials = random_trials(net, seed);
  const NetShape& shape = trials[0].shapes[0];
  if (!reference_of(net, shape, seed, known).refusal.empty()) ++counts.invalid;
  // A net that writes over its input is refused; what it makes of padding that it reads reaches the states' rows.
  if (seed % 4 == 0 && !net.has_kinks && !net.overwrites_input && shape.steps < 20) {
    EXPECT_EQ(check_reference(net, shape, seed, known).text, "") << "unrolled, seed " << seed;
  }
  for (const Trial& trial : trials) {
    ++counts.trials;
    const Finding finding = check_trial(net, trial, known);
    if (finding.kind == Finding::Kind::none) continue;
    if (is_documented(finding)) {
      ++counts.documented;
      continue;
    }
    ++(finding.kind == Finding::Kind::wrong ? counts.wrong : counts.refused);
    return Shrunk{net, trial, finding};
  }
  return std::nullopt;
}

// Nothing of a net that is not compared; none of one that is refused with a documented reason.
std::optional<Finding> second_order_finding(uint64_t seed) {
  const StepNet net = random_step_net(seed);
  if (net.overwrites_input || net.grows) return std::nullopt;
  const NetShape shape{.steps = 1 + static_cast<int64_t>(seed % 4), .batch = 1 + static_cast<int64_t>(seed % 3)};
  const Finding finding = check_second_order(net, shape, seed);
  return is_documented(finding) ? Finding{} : finding;
}

TEST(RandomStepNets, HaveTheSecondDerivativesOfTheUnrolledNets) {
  const uint64_t count = counts_heap() ? 100 : 20;
  for (uint64_t seed = 1; seed <= count; ++seed) {
    const Finding finding = second_order_finding(seed).value_or(Finding{});
    EXPECT_EQ(finding.kind, Finding::Kind::none) << "seed " << seed << ": " << finding.text;
  }
}

// STEPNET_SECOND_ORDER is "FIRST COUNT".
TEST(RandomStepNets, SecondOrderCampaign) {
  const char* text = std::getenv("STEPNET_SECOND_ORDER");
  if (!text) GTEST_SKIP() << "STEPNET_SECOND_ORDER asks for it";
  std::istringstream words(text);
  uint64_t first = 0, count = 0;
  words >> first >> count;
  int64_t checked = 0, wrong = 0, refused = 0;
  for (uint64_t seed = first; seed < first + count; ++seed) {
    const std::optional<Finding> finding = second_order_finding(seed);
    checked += finding ? 1 : 0;
    if (!finding || finding->kind == Finding::Kind::none) continue;
    ++(finding->kind == Finding::Kind::wrong ? wrong : refused);
    std::cout << "seed " << seed << " " << finding->text << std::endl;
  }
  std::cout << fmt::format("nets {} wrong {} refused {}", checked, wrong, refused) << std::endl;
}

TEST(RandomStepNets, EqualTheUnrolledNets) {
  Counts counts;
  const uint64_t count = counts_heap() ? 250 : 60;  // a sanitizer takes some ten times as long
  for (uint64_t seed = 1; seed <= count; ++seed) {
    const std::optional<Shrunk> found = check_seed(seed, counts);
    if (found) ADD_FAILURE() << "seed " << seed << "\n" << text_of(shrink(found->net, found->trial));
  }
  EXPECT_LT(counts.invalid, counts.nets / 10);
}

// STEPNET_STEP_NETS is "FIRST COUNT FOLDER"; what is found is written into the folder.
TEST(RandomStepNets, Campaign) {
  const char* text = std::getenv("STEPNET_STEP_NETS");
  if (!text) GTEST_SKIP() << "tests/random_step_nets runs it";
  std::istringstream words(text);
  uint64_t first = 0, count = 0;
  std::string folder;
  words >> first >> count >> folder;
  std::map<std::string, int> causes;
  Counts counts;
  for (uint64_t seed = first; seed < first + count; ++seed) {
    std::cout << "seed " << seed << std::endl;
    const std::optional<Shrunk> found = check_seed(seed, counts);
    if (!found) continue;
    const std::string cause = cures_of(*found);
    if (++causes[cause] > kShrunkOfACause) {
      std::cout << "found " << seed << " " << cause << std::endl;
      continue;
    }
    const Shrunk shrunk = shrink(found->net, found->trial);
    std::ofstream(std::filesystem::path(folder) / fmt::format("seed_{}.pbtxt", seed)) << text_of(shrunk);
    std::cout << "found " << seed << " " << cause_of(shrunk) << std::endl;
  }
  std::cout << fmt::format("nets {} trials {} invalid {} documented {} wrong {} refused {}", counts.nets, counts.trials,
                           counts.invalid, counts.documented, counts.wrong, counts.refused)
            << std::endl;
}

}  // namespace
}  // namespace stepnet::testing::random_step_nets_test
