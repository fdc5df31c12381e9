// The table of --profile: time and bytes per operator, matrix products, memory.
//
// Threads: for the main thread, around one run.
#pragma once

#include <string>

#include "recurrent/step/counters.h"
#include "stepnet/matmul.h"
#include "stepnet/profiler.h"

namespace stepnet::tools {

class ProfileTable {
 public:
  ProfileTable();  // starts to count
  Profiler& profiler() { return profiler_; }
  // What was counted since the construction.
  std::string text() const;

 private:
  Profiler profiler_;
  MatmulCounters matmuls_before_;
  RecurrentCounters recurrent_before_;
  double start_;
};

}  // namespace stepnet::tools
