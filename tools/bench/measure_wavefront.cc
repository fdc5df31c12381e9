// A stack of layers in one step net: a wavefront, against layers one after the other for each block of timesteps, and
// against all layers in each timestep.
#include <fmt/format.h>

#include "tools/bench/cell_case.h"
#include "tools/bench/measure.h"
#include "tools/bench/timing.h"

namespace stepnet::bench {
namespace {

constexpr double kTolerance = 1e-4;
constexpr int kThreads = 2;

void measure(const CellData& data, const ExactValues& exact, Mode mode, int rounds, Report& report) {
  const std::string path = "tools/bench/nets/lstm_stack.pbtxt";
  const auto with = make_stepnet({"lstm_stack", path, true, {}}, data, mode);
  const auto without = make_stepnet({"no wavefront", path, true, {"wavefront"}}, data, mode);
  const auto together = make_stepnet({"one loop", path, true, {"wavefront", "split"}}, data, mode);
  const std::string where = fmt::format("{}, {} threads, {}", data.size.str(), kThreads, mode_name(mode));
  for (Contender* contender : {with.get(), without.get(), together.get()}) {
    contender->run();
    check_agreement(contender->results(), exact, mode, kTolerance, fmt::format("{} at {}", contender->name(), where));
  }
  const MachineLoad load;
  const std::vector<Times> times = time_in_turns({with.get(), without.get(), together.get()}, rounds);
  load.warn(where);
  const std::string in_mode(mode_name(mode));
  report.add({with->name(), data.size, kThreads, in_mode, times[0], without->name(), times[1]});
  report.add({with->name(), data.size, kThreads, in_mode, times[0], together->name(), times[2]});
}

}  // namespace

void measure_wavefront(const Options& options, Report& report) {
  for (const Size& size : {Size{100, 1, 512, 512, 2}, Size{1000, 1, 512, 512, 2}}) {
    if (!options.wants("wavefront") || !options.wants("lstm_stack", size)) continue;
    const CellData data = random_data(cell("lstm"), size);
    const ExactValues exact = exact_results(data);
    use_threads(kThreads);
    for (const Mode mode : {Mode::forward, Mode::training}) measure(data, exact, mode, options.rounds, report);
  }
}

}  // namespace stepnet::bench
