// A call per timestep: the net runs for T = 1 and hands its last state to the next call.
#include <fmt/format.h>

#include <algorithm>

#include "tools/bench/cell_case.h"
#include "tools/bench/measure.h"
#include "tools/bench/stepnet_net.h"
#include "tools/bench/timing.h"

namespace stepnet::bench {
namespace {

constexpr int kTurns = 10, kCallsPerTurn = 400;
constexpr int kCheckedCalls = 16;
constexpr double kTolerance = 1e-4;

class StepnetStream : public Contender {
 public:
  explicit StepnetStream(const CellData& data)
      : Contender("lstm_stream"), net_(data.cell->nets[0], data, Mode::forward) {}

  void run() override {
    net_.run();
    net_.keep_state("h0", "h_last");
    net_.keep_state("c0", "c_last");
  }
  Values results() const override { return net_.results(); }

 private:
  StepnetNet net_;
};

// The last step of a run over as many timesteps with the same input.
ExactValues exact_last_step(const CellData& step) {
  CellData steps = step;
  steps.size.steps = kCheckedCalls;
  steps.x.clear();
  for (int t = 0; t < kCheckedCalls; ++t) steps.x.insert(steps.x.end(), step.x.begin(), step.x.end());
  steps.dy.assign(step.dy.size() * kCheckedCalls, 0.0F);
  std::vector<double> all = exact_results(steps).at("h_all");
  return {{"h_all", {all.end() - static_cast<std::ptrdiff_t>(step.dy.size()), all.end()}}};
}

void measure(const CellData& data, int threads, const ExactValues& exact, Report& report) {
  use_threads(threads);
  StepnetStream stepnet(data);
  const auto onednn = make_onednn_stream(data);
  const std::string where = fmt::format("{}, {} threads, stream", data.size.str(), threads);
  for (Contender* contender : {static_cast<Contender*>(&stepnet), onednn.get()}) {
    for (int i = 0; i < kCheckedCalls; ++i) contender->run();
    check_agreement(contender->results(), exact, Mode::forward, kTolerance,
                    fmt::format("{} at {}", contender->name(), where));
  }
  const MachineLoad load;
  const auto times = call_times_in_turns({&stepnet, onednn.get()}, kTurns, kCallsPerTurn);
  load.warn(where);
  for (const int percent : {50, 99}) {
    const double ms = percentile(times[0], percent), peer_ms = percentile(times[1], percent);
    report.add({stepnet.name(),
                data.size,
                threads,
                fmt::format("stream p{}", percent),
                {ms, ms},
                onednn->name(),
                {peer_ms, peer_ms}});
  }
}

}  // namespace

void measure_stream(const Options& options, Report& report) {
  const Size size{1, 1, 512, 512, 1};
  if (!options.wants("stream") || !options.wants("lstm_stream", size)) return;
  const CellData data = random_data(cell("lstm"), size);
  const ExactValues exact = exact_last_step(data);
  for (const int threads : options.threads) measure(data, threads, exact, report);
}

}  // namespace stepnet::bench
