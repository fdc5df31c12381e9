// Campaigns of faults over a training run (tests/training_faults). They print what they find, a line each, and return
// how much that is. Threads: one thread.
#pragma once

#include <functional>
#include <string>

#include "tests/faults/training_run.h"

namespace stepnet::testing {

// Which of the faults of a session's calls are tried: `nth` counts from 0 the session's calls of the same kind on the
// same file, `goes_on` is true for the session that goes on halfway, and `index` counts all faults.
struct TriedFault {
  const JournalEntry& call;
  Fault fault;
  bool goes_on;
  int nth, index;
};
using FaultChoice = std::function<bool(const TriedFault&)>;
inline bool all_faults(const TriedFault&) { return true; }

// The calls of a run, and of a run that goes on, with their faults.
int fail_calls(FaultyTraining& training, const FaultChoice& choice = all_faults);
// The same with faults that stay: a disk that is full, or gone.
int fail_disks(FaultyTraining& training, const FaultChoice& choice = all_faults);
// Runs that are killed at any time, until `count` kills have met one.
int kill_runs(FaultyTraining& training, int count, unsigned seed);
// Losses of power at `moments` moments, each with all that the disk may show then. Those with numbers that leave 1 when
// divided by 2 meet a run that goes on after one that was killed.
int lose_power(FaultyTraining& training, int moments, unsigned seed);
// Losses of power after each call that `choice` takes, of a run.
int lose_power_after(FaultyTraining& training, const std::function<bool(const JournalEntry&)>& choice, unsigned seed);

}  // namespace stepnet::testing
