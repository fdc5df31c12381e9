// A stack of layers in one step net, of which a wavefront runs two timesteps' layers at the same time.
#include <fmt/format.h>

#include <cstdio>

#include "core/error.h"
#include "core/parallel.h"
#include "tools/bench/exact_cells.h"
#include "tools/bench/machine_load.h"
#include "tools/bench/measure.h"

namespace stepnet::bench {
namespace {

constexpr double kTolerance = 1e-4;
constexpr int kThreads = 2;

void measure(const CellData& data, const ExactValues& exact, Mode mode, int rounds, Report& report) {
  const std::string path = "tools/bench/nets/lstm_stack.pbtxt";
  const auto with = make_stepnet({"lstm_stack", path, true, {}}, data, mode);
  const auto without = make_stepnet({"no wavefront", path, true, {"wavefront"}}, data, mode);
  const std::string where = fmt::format("{}, {} threads, {}", data.size.str(), kThreads, mode_name(mode));
  for (Contender* contender : {with.get(), without.get()}) {
    contender->run();
    check_agreement(contender->results(), exact, mode, kTolerance, fmt::format("{} at {}", contender->name(), where));
  }
  const MachineLoad load;
  const std::vector<Times> times = time_in_turns({with.get(), without.get()}, rounds);
  load.warn(where);
  report.add({with->name(), data.size, kThreads, std::string(mode_name(mode)), times[0], without->name(), times[1]});
}

}  // namespace

void measure_wavefront(const Options& options, Report& report) {
  const Size size{100, 1, 512, 512, 2};
  if (!options.wants("wavefront") || !options.wants("lstm_stack", size)) return;
  const CellData data = random_data(cell("lstm"), size);
  const ExactValues exact = exact_results(data);
  set_threads(kThreads);
  for (const Mode mode : {Mode::forward, Mode::training}) {
    try {
      measure(data, exact, mode, options.rounds, report);
    } catch (const Error& e) {
      if (std::string_view(e.what()).find("disabled_passes") == std::string_view::npos) throw;
      fmt::print(stderr, "skipped: lstm_stack, as there is no pass \"wavefront\" to switch off\n");
      return;
    }
  }
}

}  // namespace stepnet::bench
