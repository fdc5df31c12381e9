// The loops over rounds.
#include "tools/bench/timing.h"

#include <algorithm>
#include <chrono>

namespace stepnet::bench {
namespace {

double run_ms(Contender& contender) {
  const auto start = std::chrono::steady_clock::now();
  contender.run();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

Times summary(std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  const size_t half = samples.size() / 2;
  const double median = samples.size() % 2 == 1 ? samples[half] : (samples[half - 1] + samples[half]) / 2;
  return {samples.front(), median};
}

}  // namespace

std::vector<Times> time_in_turns(const std::vector<Contender*>& contenders, int rounds) {
  std::vector<std::vector<double>> samples(contenders.size());
  for (Contender* contender : contenders) contender->run();
  for (int round = 0; round < rounds; ++round)
    for (size_t i = 0; i < contenders.size(); ++i) samples[i].push_back(run_ms(*contenders[i]));
  std::vector<Times> times;
  for (std::vector<double>& s : samples) times.push_back(summary(std::move(s)));
  return times;
}

std::vector<std::vector<double>> call_times_in_turns(const std::vector<Contender*>& contenders, int turns,
                                                     int calls_per_turn) {
  std::vector<std::vector<double>> samples(contenders.size());
  for (int turn = 0; turn < turns; ++turn)
    for (size_t i = 0; i < contenders.size(); ++i)
      for (int call = 0; call < calls_per_turn; ++call) samples[i].push_back(run_ms(*contenders[i]));
  for (std::vector<double>& s : samples) std::sort(s.begin(), s.end());
  return samples;
}

double percentile(const std::vector<double>& sorted, double percent) {
  return sorted.at(static_cast<size_t>(percent / 100 * static_cast<double>(sorted.size() - 1)));
}

}  // namespace stepnet::bench
