// The loops over rounds.
#include "tools/bench/timing.h"

#include <fmt/format.h>
#include <omp.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <thread>

#include "core/compute/threads.h"

namespace stepnet::bench {
namespace {

constexpr double kShort = 20;    // milliseconds
constexpr int kShortFactor = 5;  // what else the machine does weighs more in a short run's time

double run_ms(Contender& contender) {
  const auto start = std::chrono::steady_clock::now();
  contender.run();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

// The threads of the contender before, which wait actively for more work, have gone to sleep when it returns, and this
// one's are awake, on cores of their own, with what they need in their caches. (OpenMP's wait some 8 ms; Stepnet's some
// 2 ms.)
void change_over(Contender& contender, double last_ms) {
  constexpr double kWarmUp = 5;  // milliseconds
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  if (last_ms > kShort) return;  // of its time, waking up is nothing
  for (double warm = 0; warm < kWarmUp;) warm += run_ms(contender);
}

Times summary(std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  const size_t half = samples.size() / 2;
  const double median = samples.size() % 2 == 1 ? samples[half] : (samples[half - 1] + samples[half]) / 2;
  return {samples.front(), median};
}

}  // namespace

void use_threads(int threads) {
  set_threads(threads);
  omp_set_num_threads(threads);
}

std::vector<Times> time_in_turns(const std::vector<Contender*>& contenders, int rounds) {
  std::vector<std::vector<double>> samples(contenders.size());
  std::vector<double> last;
  for (Contender* contender : contenders) last.push_back(run_ms(*contender));
  if (*std::max_element(last.begin(), last.end()) < kShort) rounds *= kShortFactor;
  for (int round = 0; round < rounds; ++round)
    for (size_t i = 0; i < contenders.size(); ++i) {
      change_over(*contenders[i], last[i]);
      samples[i].push_back(last[i] = run_ms(*contenders[i]));
    }
  std::vector<Times> times;
  for (std::vector<double>& s : samples) times.push_back(summary(std::move(s)));
  return times;
}

std::vector<std::vector<double>> call_times_in_turns(const std::vector<Contender*>& contenders, int turns,
                                                     int calls_per_turn) {
  std::vector<std::vector<double>> samples(contenders.size());
  for (int turn = 0; turn < turns; ++turn)
    for (size_t i = 0; i < contenders.size(); ++i) {
      change_over(*contenders[i], 0);
      for (int call = 0; call < calls_per_turn; ++call) samples[i].push_back(run_ms(*contenders[i]));
    }
  for (std::vector<double>& s : samples) std::sort(s.begin(), s.end());
  return samples;
}

double percentile(const std::vector<double>& sorted, double percent) {
  return sorted.at(static_cast<size_t>(percent / 100 * static_cast<double>(sorted.size() - 1)));
}

// Reads Linux's /proc/stat.
namespace {

double clock_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// The first line's numbers are user, nice, system, idle, iowait, irq, softirq, steal, ... in ticks.
double busy_seconds() {
  constexpr int kIdle = 3, kWait = 4, kSteal = 7;
  std::ifstream in("/proc/stat");
  std::string word;
  in >> word;
  double ticks = 0, value = 0;
  for (int i = 0; i <= kSteal && in >> value; ++i)
    if (i != kIdle && i != kWait) ticks += value;
  return ticks / static_cast<double>(sysconf(_SC_CLK_TCK));
}

double own_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

}  // namespace

MachineLoad::MachineLoad() : start_(clock_seconds()), all_(busy_seconds()), own_(own_seconds()) {}

double MachineLoad::others() const {
  constexpr double kGrain = 0.04;  // all cores' work is counted in ticks
  const double others = (busy_seconds() - all_) - (own_seconds() - own_) - kGrain;
  return std::max(0.0, others / std::max(clock_seconds() - start_, 1e-9));
}

void MachineLoad::warn(const std::string& what) const {
  constexpr double kBusy = 0.1;  // cores
  if (const double busy = others(); busy > kBusy)
    fmt::print(stderr, "warning: other programs kept {:.2f} cores busy: do not trust {}\n", busy, what);
}

}  // namespace stepnet::bench
