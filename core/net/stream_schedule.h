// Which of a net's operators run at the same time: a stream of the device for each, and who waits for whom.
//
// Operators that read what another has made go on with its chain, on its stream; where chains part, the other one gets
// a stream of its own. A chain of a single operator is not worth that and stays with what it follows. An operator waits
// for those on other streams that made what it reads, and before it writes a blob, for those that read or wrote it
// before. Blobs that may share bytes by the operators' rules count as one. Operators on blobs, and those of other
// devices, run alone: behind all before them, and before all behind.
// What is planned depends on the net alone. Threads: pure functions.
#pragma once

#include <map>
#include <span>
#include <vector>

#include "core/net/dataflow.h"

namespace stepnet {

struct StreamSchedule {
  static constexpr int kStart = -1;     // in `waits`: what was queued before the run
  int streams = 1;                      // 1: there is nothing to be had, and the rest is empty
  std::vector<int> stream;              // by operator; 0 is the caller's
  std::vector<std::vector<int>> waits;  // by operator: for these on other streams
  std::vector<bool> is_waited_for;      // by operator
  std::vector<int> at_end;              // the caller's stream goes on behind these, and so behind all
  std::map<const Blob*, int> shared;    // of all blobs: those with the same number may share bytes
  std::map<const Blob*, bool> is_written;
};

// `most`: streams, the caller's among them.
StreamSchedule schedule_streams(std::span<const NetStep> steps, const Dataflow& flow, Device device, int most);

}  // namespace stepnet
