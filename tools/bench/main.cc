// `stepnet_bench`: times LSTMs written as Stepnet nets against oneDNN. Exit codes: 0 done, 2 a mistake in the call, or
// contenders that do not agree.
#include <omp.h>

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>

#include "core/error.h"
#include "core/parallel.h"
#include "tools/bench/bound.h"
#include "tools/bench/machine_load.h"
#include "tools/bench/report.h"

namespace stepnet::bench {
namespace {

constexpr int kMistake = 2;
constexpr int kRounds = 20, kQuickRounds = 5;
constexpr double kTolerance = 1e-4;
constexpr double kBusy = 0.1;  // cores

struct Options {
  std::string filter, json, mode = "both";
  std::vector<int> threads = {1, 2};
  int rounds = kRounds;
  bool wants(Mode m) const { return mode == "both" || mode == mode_name(m); }
};

// All nets and peers of one size, number of threads and mode.
struct Match {
  std::vector<std::unique_ptr<Contender>> nets, peers;  // the first peer is an LSTM that the nets are checked against

  Match(const std::vector<std::string>& names, const LstmData& data, Mode mode) {
    for (const std::string& name : names) nets.push_back(make_stepnet(name, data, mode));
    peers.push_back(make_onednn(data, mode));
    peers.push_back(make_products(data, mode));
  }

  void check(const std::string& where) {
    peers[0]->run();
    const Values expected = peers[0]->results();
    for (auto& net : nets) {
      net->run();
      check_agreement(net->results(), expected, kTolerance,
                      fmt::format("{} and {} at {}", net->name(), peers[0]->name(), where));
    }
  }

  std::vector<Contender*> all() const {
    std::vector<Contender*> contenders;
    for (const auto& c : nets) contenders.push_back(c.get());
    for (const auto& c : peers) contenders.push_back(c.get());
    return contenders;
  }
};

void measure(const Options& options, const std::vector<std::string>& nets, const LstmData& data, int threads, Mode mode,
             double& flops, Report& report) {
  Match match(nets, data, mode);
  const std::string where = fmt::format("{}, {} threads, {}", data.size.str(), threads, mode_name(mode));
  match.check(where);
  const MachineLoad load;
  const std::vector<Times> times = time_in_turns(match.all(), options.rounds);
  if (const double busy = load.others(); busy > kBusy)
    fmt::print(stderr, "warning: other programs kept {:.2f} cores busy: do not trust {}\n", busy, where);
  flops = std::max(flops, measured_flops());  // the first may have met a busy machine
  const double bound =
      lower_bound_ms(data.size, mode, flops, measured_read_rate(16 * data.size.hidden * data.size.hidden));
  for (size_t n = 0; n < match.nets.size(); ++n)
    for (size_t p = 0; p < match.peers.size(); ++p)
      report.add({match.nets[n]->name(), data.size, threads, mode, times[n], match.peers[p]->name(),
                  times[match.nets.size() + p], bound});
}

void run(const Options& options) {
  Report report(options.json);
  bool any = false;
  for (const int threads : options.threads) {
    set_threads(threads);
    omp_set_num_threads(threads);  // of the peers
    double flops = measured_flops();
    fmt::print("{} threads: a large matrix product runs at {:.1f} GF/s\n", threads, flops / 1e9);
    for (const Size& size : grid()) {
      std::vector<std::string> nets;
      for (const std::string& net : net_names())
        if ((net + " " + size.str()).find(options.filter) != std::string::npos) nets.push_back(net);
      if (nets.empty()) continue;
      any = true;
      const LstmData data = random_data(size);
      for (const Mode mode : {Mode::forward, Mode::training})
        if (options.wants(mode)) measure(options, nets, data, threads, mode, flops, report);
    }
  }
  require(any, "no row has \"{}\" in its \"net T,B,I,H,layers\"", options.filter);
  report.close();
}

int run_command(int argc, char** argv) {
  Options options;
  bool quick = false;
  CLI::App app("Times LSTMs written as Stepnet nets against oneDNN, in turns in one process; ms are minima.",
               "stepnet_bench");
  app.add_option("--filter", options.filter, "only rows whose \"net T,B,I,H,layers\" has this text in it");
  app.add_option("--threads", options.threads, "numbers of threads")->check(CLI::Range(1, 1024))->capture_default_str();
  auto* rounds = app.add_option("--rounds", options.rounds, "how often each contender is timed")
                     ->check(CLI::Range(1, 1'000'000))
                     ->capture_default_str();
  app.add_option("--mode", options.mode)->check(CLI::IsMember({"forward", "training", "both"}))->capture_default_str();
  app.add_option("--json", options.json, "also write the rows to this file, a JSON object a line");
  app.add_flag("--quick", quick, fmt::format("{} rounds: rough figures", kQuickRounds))->excludes(rounds);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : kMistake;
  }
  if (quick) options.rounds = kQuickRounds;
  run(options);
  return 0;
}

}  // namespace
}  // namespace stepnet::bench

int main(int argc, char** argv) {
  try {
    return stepnet::bench::run_command(argc, argv);
  } catch (const std::exception& e) {
    fmt::print(stderr, "error: {}\n", e.what());
    return stepnet::bench::kMistake;
  }
}
