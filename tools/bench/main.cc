// `stepnet_bench`: times cells written as Stepnet nets against their peers. Exit codes: 0 done, 2 a mistake in the
// call, or a contender whose results are wrong.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>

#include "stepnet/error.h"
#include "tools/bench/bound.h"
#include "tools/bench/command.h"
#include "tools/bench/measure.h"
#include "tools/bench/timing.h"

namespace stepnet::bench {
namespace {

constexpr int kQuickRounds = 3;

// For the peers in processes of their own: what measure_cells would measure.
void print_list(const Options& options) {
  if (!options.wants("forward") && !options.wants("training")) return;
  for (const Cell& cell : cells())
    for (const Size& size : options.sizes())
      if (options.wants_any(cell, size)) fmt::print("{}\t{}\n", cell.name, size.str());
}

void run(const Options& options) {
  Report report(options.json);
  for (const int threads : options.threads) {
    use_threads(threads);
    fmt::print("{} threads: a large matrix product runs at {:.1f} GF/s\n", threads, measured_flops() / 1e9);
  }
  measure_cells(options, report);
  measure_stream(options, report);
  measure_overhead(options, report);
  measure_wavefront(options, report);
  require(!report.empty(), "no row of mode {} has \"{}\" in its \"net T,B,I,H,layers\"", options.mode, options.filter);
  report.print_summary();
  report.close();
}

void add_options(CLI::App& app, Options& options, bool& list) {
  app.add_option("--filter", options.filter, "only rows whose \"net T,B,I,H,layers\" has this text in it");
  app.add_option("--threads", options.threads, "numbers of threads")->check(CLI::Range(1, 1024))->capture_default_str();
  auto* rounds =
      app.add_option("--rounds", options.rounds, "how often each contender is timed; short ones five times as often")
          ->check(CLI::Range(1, 1'000'000))
          ->capture_default_str();
  app.add_option("--mode", options.mode, "what to measure")
      ->check(CLI::IsMember({"all", "forward", "training", "stream", "overhead", "wavefront"}))
      ->capture_default_str();
  app.add_option("--json", options.json, "also write the rows to this file, a JSON object a line");
  app.add_option("--peer-times", options.peer_times,
                 "times of peers in processes of their own, as tools/bench/run has");
  app.add_flag("--quick", options.quick, fmt::format("{} rounds and few sizes: rough figures", kQuickRounds))
      ->excludes(rounds);
  app.add_flag("--list", list, "print cells and sizes, and measure nothing");
}

int run_command(int argc, char** argv) {
  Options options;
  bool list = false;
  CLI::App app("Times cells written as Stepnet nets against their peers, in turns in one process; ms are minima.",
               "stepnet_bench");
  add_options(app, options, list);
  return run_app(app, argc, argv, [&] {
    if (options.quick) options.rounds = kQuickRounds;
    list ? print_list(options) : run(options);
    return 0;
  });
}

}  // namespace
}  // namespace stepnet::bench

int main(int argc, char** argv) { return stepnet::bench::run_command(argc, argv); }
