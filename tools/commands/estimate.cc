// `stepnet estimate`: memory and arithmetic of a net without running it.
#include <CLI/CLI.hpp>
#include <memory>

#include "core/estimate/report.h"
#include "core/io/files.h"
#include "stepnet/profiler.h"
#include "tools/commands/cli/dry_net.h"
#include "tools/commands/cli/printing.h"
#include "tools/commands/cli/scaling_table.h"
#include "tools/commands/cli/usage.h"
#include "tools/commands/commands.h"

namespace stepnet::tools {
namespace {

struct EstimateOptions {
  DryNetOptions net;
  ScalingOptions scaling;
  std::string plot;
  bool why = false, json = false;
};

void print(const EstimateOptions& options, const NetSession& session, const Estimate& estimate, int64_t planned_peak) {
  std::vector<KeptValue> kept;
  if (options.why) kept = kept_values(session);
  if (options.json)
    print_text("{}", estimate_json(estimate, options.why ? &kept : nullptr));
  else
    print_text("{}{}", estimate_table(estimate), options.why ? kept_table(kept) : "");
  if (planned_peak > 0)
    print_text("as stepnet train runs it: peak {} ({} bytes)\n", bytes_text(planned_peak), planned_peak);
  if (!options.plot.empty()) write_file(options.plot, estimate_svg(estimate, session.net->name()));
}

// A row for each rank of a pipeline, and what a step takes of the time that one rank would take.
void print_pipeline(const EstimateOptions& options) {
  print_text("{:>5} {:>9} {:>12} {:>15} {:>16}  {}\n", "rank", "operators", "parameters", "FLOPs", "peak bytes",
             "peak");
  double speed_up = 1;
  for (int rank = 0; rank < options.net.ranks; ++rank) {
    DryNetOptions own = options.net;
    own.stage = rank;
    DryNet net(own);
    DryScope scope(net.device().kind);
    const std::unique_ptr<NetSession> session = net.session(scope);
    const Estimate estimate = estimate_session(*session, scope);
    const int64_t peak = net.planned_peak();
    const WavefrontPlan& plan = net.plan();
    const auto r = static_cast<size_t>(rank);
    const int end = r + 1 < plan.first.size() ? plan.first[r + 1] : plan.net.op_size();
    print_text("{:>5} {:>9} {:>12} {:>15.0f} {:>16}  {}\n", rank, fmt::format("{}-{}", plan.first[r], end - 1),
               estimate.totals[static_cast<size_t>(MemoryKind::parameter)], estimate.flops, peak, bytes_text(peak));
    speed_up = wavefront_speed_up(plan, options.net.pipeline);
  }
  const auto ranks = static_cast<double>(options.net.ranks), blocks = static_cast<double>(options.net.pipeline);
  print_text(
      "by arithmetic a step is {:.2f} times as fast as on one rank; of equal ranks with nothing beside the layers, "
      "{:.2f}\n",
      speed_up, blocks * ranks / (blocks + ranks - 1));
}

void estimate(const EstimateOptions& options) {
  if (options.net.pipeline > 0) return print_pipeline(options);
  const bool plans = options.scaling.bandwidth > 0;
  DryNetOptions of_one = options.net;
  if (plans) of_one.ranks = 1;  // whose step is known
  DryNet net(of_one);
  const double start = now_seconds();
  DryScope scope(net.device().kind);
  const std::unique_ptr<NetSession> session = net.session(scope);
  const Estimate estimate = estimate_session(*session, scope);
  const double seconds = now_seconds() - start;
  const int64_t planned_peak = options.net.train && !options.json ? net.planned_peak() : 0;
  print(options, *session, estimate, planned_peak);
  if (plans)
    print_text("{}\n", scaling_table(scaling_step(*session, estimate, options.scaling.step_time / 1e3), options.scaling,
                                     options.net.ranks));
  if (!options.json) print_text("estimated in {:.1f} ms\n", seconds * 1e3);
}

}  // namespace

void add_estimate_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("estimate", "Tell a net's memory and arithmetic without running it");
  auto o = std::make_shared<EstimateOptions>();  // shared with the callback, which runs after this returns
  add_dry_net_options(*command, o->net);
  command->add_flag("--why", o->why, "Name for each value that is kept who reads it");
  add_scaling_options(*command, o->scaling);
  command
      ->add_option("--pipeline", o->net.pipeline,
                   "With --ranks: each has some of a model's recurrent layers and runs them in so many blocks of "
                   "timesteps; a row for each rank")
      ->check(whole_number(1))
      ->type_name("BLOCKS")
      ->needs("--train")
      ->excludes("--bandwidth")
      ->excludes("--memory-budget")
      ->excludes("--shard-optimizer")
      ->excludes("--reduce")
      ->default_str("");
  command->add_flag("--json", o->json, "Print one JSON object")->excludes("--bandwidth")->excludes("--pipeline");
  command->add_option("--plot", o->plot, "Write the timeline of live bytes as a picture")->type_name("FILE.svg");
  command->callback([o] { estimate(*o); });
}

}  // namespace stepnet::tools
