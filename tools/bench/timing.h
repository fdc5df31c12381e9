// Times of contenders that take turns, so that a change of the machine's speed meets them all, and whether other
// programs kept the machine busy meanwhile.
//
// Threads: for the main thread.
#pragma once

#include <string>
#include <vector>

#include "tools/bench/cell_case.h"

namespace stepnet::bench {

// Of Stepnet and of the peers, which take OpenMP's.
void use_threads(int threads);

struct Times {
  double minimum = 0, median = 0;  // milliseconds
};

// One run of each that does not count, then `rounds` rounds in which each runs once, and five times as many where all
// take under 20 ms; in the order of the contenders.
std::vector<Times> time_in_turns(const std::vector<Contender*>& contenders, int rounds);

// Every call's time, sorted. A turn is many calls, as whoever calls once per timestep has nothing else in the caches.
std::vector<std::vector<double>> call_times_in_turns(const std::vector<Contender*>& contenders, int turns,
                                                     int calls_per_turn);
double percentile(const std::vector<double>& sorted, double percent);

// Whether other programs took part of the machine while something was timed. With as many threads as cores a busy
// machine makes threads wait for each other by whole time slices, which hits every contender differently.
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
