// Whether other programs took part of the machine while something was timed. With as many threads as cores a busy
// machine makes threads wait for each other by whole time slices, which hits every contender differently.
//
// Threads: for the main thread.
#pragma once

#include <string>

namespace stepnet::bench {

class MachineLoad {
 public:
  MachineLoad();  // from now on
  // Cores that other programs kept busy on average since then; 0 where the system does not tell.
  double others() const;
  // Prints a warning if they kept the machine busy.
  void warn(const std::string& what) const;

 private:
  double start_, all_, own_;  // seconds: of the clock, of all cores' work, of this process's work
};

}  // namespace stepnet::bench
