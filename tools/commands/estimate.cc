// `stepnet estimate`: memory and arithmetic of a net without running it.
#include <CLI/CLI.hpp>
#include <memory>

#include "core/estimate/report.h"
#include "core/io/files.h"
#include "stepnet/profiler.h"
#include "tools/commands/cli/dry_net.h"
#include "tools/commands/cli/printing.h"
#include "tools/commands/cli/scaling_table.h"
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

void estimate(const EstimateOptions& options) {
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
  command->add_flag("--json", o->json, "Print one JSON object")->excludes("--bandwidth");
  command->add_option("--plot", o->plot, "Write the timeline of live bytes as a picture")->type_name("FILE.svg");
  command->callback([o] { estimate(*o); });
}

}  // namespace stepnet::tools
