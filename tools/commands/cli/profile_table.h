// The table of --profile: time and bytes per operator, matrix products, memory.
//
// Threads: for the main thread, around one run.
#pragma once

#include <string>

#include "core/compute/matmul.h"
#include "core/compute/profiler.h"
#include "recurrent/step/counters.h"

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
