// Training under faults of its file calls, kills and losses of power: a share of what tests/training_faults tries.
#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/faults/campaigns.h"

namespace stepnet::testing::training_faults_test {
namespace {

class TrainingFaults : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = no_shim(); !why.empty()) GTEST_SKIP() << why;
  }
};
// What files hold after an end in the middle is the same with sanitizers, and takes several times as long.
class TrainingEnds : public TrainingFaults {
 protected:
  void SetUp() override {
    TrainingFaults::SetUp();
    if (is_sanitized()) GTEST_SKIP() << "only calls that fail are for sanitizers";
  }
};

// Of those that once lost something all, of the others some.
bool some_faults(const TriedFault& t) {
  const bool eio = t.fault == Fault::eio;
  if (t.index % 300 == 150) return true;
  if (t.goes_on && t.call.call.kind == CallKind::list && t.call.path.ends_with("/run")) return eio && t.nth == 1;
  if (!t.call.path.ends_with("/metrics.jsonl")) return false;
  if (t.goes_on) return t.call.call.kind == CallKind::look && eio;
  if (t.call.call.kind == CallKind::write) return t.fault == Fault::enospc && t.nth < 3;
  return t.call.call.kind == CallKind::sync && eio;
}

TEST_F(TrainingFaults, SomeCallsFail) {
  FaultyTraining training;
  EXPECT_EQ(fail_calls(training, some_faults), 0);
}

TEST_F(TrainingFaults, SomeDisksFail) {
  FaultyTraining training;
  EXPECT_EQ(fail_disks(training, [](const TriedFault& t) { return t.index % 250 == 125; }), 0);
}

TEST_F(TrainingEnds, SomeKills) {
  FaultyTraining training;
  EXPECT_EQ(kill_runs(training, 12, 1), 0);
}

TEST_F(TrainingEnds, SomeLossesOfPower) {
  FaultyTraining training;
  EXPECT_EQ(lose_power(training, 3, 1), 0);
}

// Where a checkpoint is seen that was not synced, and the names before it were not either.
TEST_F(TrainingEnds, LossesOfPowerAtTheFirstCheckpointAndAtTheEnd) {
  for (const bool validates : {false, true}) {
    FaultyTraining training(validates);
    const auto chosen = [](const JournalEntry& entry) {
      return entry.other.ends_with("/iteration-2.ckpt") || entry.other.ends_with("/parameters.minidb");
    };
    EXPECT_EQ(lose_power_after(training, chosen, 1), 0);
  }
}

// STEPNET_TRAINING_FAULTS: what tests/training_faults is asked for.
TEST_F(TrainingFaults, Campaign) {
  const char* wanted = std::getenv("STEPNET_TRAINING_FAULTS");
  if (!wanted) GTEST_SKIP() << "STEPNET_TRAINING_FAULTS is not set (tests/training_faults)";
  const std::vector<std::string> what = words(wanted);
  ASSERT_FALSE(what.empty());
  FaultyTraining training;
  const int count = what.size() > 1 ? std::atoi(what[1].c_str()) : 1;
  const unsigned seed = what.size() > 2 ? static_cast<unsigned>(std::atoi(what[2].c_str())) : 1;
  int found = -1;
  if (what[0] == "calls") found = fail_calls(training);
  if (what[0] == "disk") found = fail_disks(training);
  if (what[0] == "kills") found = kill_runs(training, count, seed);
  if (what[0] == "power") found = lose_power(training, count, seed);
  EXPECT_EQ(found, 0);
}

}  // namespace
}  // namespace stepnet::testing::training_faults_test
