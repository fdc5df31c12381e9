#include "tools/commands/cli/scaling_table.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <numeric>

#include "recurrent/distributed/reductions.h"
#include "tools/commands/cli/usage.h"

namespace stepnet::tools {
namespace {

constexpr double kFlopsPerByte = 10;  // of processors, CPUs and GPUs alike within a factor of three

double cost_of(const OpEstimate& op) { return std::max(op.flops, kFlopsPerByte * op.bytes_moved); }

std::vector<ReducedGradient> gradients_of(const NetSession& session) {
  std::vector<ReducedGradient> all;
  for (const auto& [name, gradient] : session.differentiated.gradients) {
    const auto kind = session.kinds.find(name);
    if (kind == session.kinds.end() || kind->second != MemoryKind::parameter) continue;
    const Tensor& parameter = session.parameters.fetch(name);
    all.push_back({gradient.is_sparse() ? gradient.values : gradient.dense, name,
                   TensorType::of(parameter.dtype(), parameter.shape())});
  }
  return all;
}

std::string algorithms_text(const ScalingRow& row) {
  if (row.by_ring > 0 && row.by_doubling > 0) return "both";
  return row.by_ring > 0 ? "ring" : row.by_doubling > 0 ? "doubling" : "none";
}

}  // namespace

ScalingStep scaling_step(const NetSession& session, const Estimate& estimate, double seconds) {
  const int passes = std::min(session.first_update, static_cast<int>(estimate.ops.size()));
  std::vector<double> ends(static_cast<size_t>(passes));  // of operators
  double cost = 0;
  for (int i = 0; i < passes; ++i) ends[static_cast<size_t>(i)] = cost += cost_of(estimate.ops[static_cast<size_t>(i)]);
  const double all = std::accumulate(estimate.ops.begin() + passes, estimate.ops.end(), cost,
                                     [](double sum, const OpEstimate& op) { return sum + cost_of(op); });
  const double scale = all > 0 ? seconds / all : 0;

  const std::vector<ReducedGradient> gradients = gradients_of(session);
  std::map<std::string, int64_t> bytes;
  for (const ReducedGradient& g : gradients)
    bytes[g.name] = static_cast<int64_t>(dtype_size(g.type.dtype)) * g.type.shape.size();
  NetDef net = session.net->def();
  net.mutable_op()->DeleteSubrange(passes, net.op_size() - passes);
  add_reductions(net, gradients, {.world = "world"});
  ScalingStep step{.passes = cost * scale, .update = (all - cost) * scale, .buckets = {}};
  double now = 0;
  size_t operators = 0;
  for (const OperatorDef& op : net.op()) {
    if (op.type() == "FinishAllreduce") break;
    if (op.type() != "StartAllreduce") {
      now = ends[operators++] * scale;
      continue;
    }
    step.buckets.push_back({now, 0});
    for (int i = 1; i < op.input_size(); ++i) step.buckets.back().bytes += bytes[op.input(i)];
  }
  return step;
}

std::string scaling_table(const ScalingStep& step, const ScalingOptions& options, int64_t most_ranks) {
  const ScalingNetwork network{.bandwidth = options.bandwidth * 1e9, .latency = options.latency * 1e-6};
  const bool is_timed = options.step_time > 0;
  int64_t bytes = 0;
  for (const ScalingBucket& bucket : step.buckets) bytes += bucket.bytes;
  std::string text =
      fmt::format("\nscaling plan: {:.2f} MB of gradients in {} block{}, {:g} GB/s, {:g} us", bytes / 1e6,
                  step.buckets.size(), step.buckets.size() == 1 ? "" : "s", options.bandwidth, options.latency);
  text += is_timed ? fmt::format("; a rank's step takes {:.2f} ms by itself, {:.2f} ms of it behind the sums\n",
                                 options.step_time, step.update * 1e3)
                   : "; --step-time would tell what of it is hidden\n";
  text += fmt::format("{:>7}  {:<9} {:>10}", "ranks", "allreduce", "sums ms");
  text += is_timed ? fmt::format(" {:>10} {:>8} {:>10} {:>9}\n", "step ms", "hidden", "efficiency", "speed-up") : "\n";
  for (const int64_t ranks : scaling_ranks(most_ranks)) {
    const ScalingRow row = plan_scaling(step, network, ranks);
    text += fmt::format("{:>7}  {:<9} {:>10.3f}", ranks, algorithms_text(row), row.reduction * 1e3);
    text += is_timed ? fmt::format(" {:>10.2f} {:>7.1f}% {:>9.1f}% {:>9.1f}\n", row.step * 1e3, row.hidden * 100,
                                   row.efficiency * 100, static_cast<double>(ranks) * row.efficiency)
                     : "\n";
  }
  return text;
}

void add_scaling_options(CLI::App& command, ScalingOptions& options) {
  CLI::Option* bandwidth =
      command
          .add_option("--bandwidth", options.bandwidth,
                      "With --ranks: what a process sends and receives per second, to plan the step on 1, 2, 4, ... "
                      "up to so many processes")
          ->check(number_above(0))
          ->type_name("GB/s")
          ->needs("--ranks")
          ->needs("--train")
          ->excludes("--shard-optimizer")
          ->excludes("--reduce")
          ->default_str("");
  CLI::Option* latency =
      command.add_option("--latency", options.latency, "With --bandwidth: what a message takes at least")
          ->check(number_at_least(0))
          ->type_name("us")
          ->needs(bandwidth)
          ->default_str("");
  bandwidth->needs(latency);
  command.add_option("--step-time", options.step_time, "With --bandwidth: how long a step of one process takes")
      ->check(number_above(0))
      ->type_name("ms")
      ->needs(bandwidth)
      ->default_str("");
}

}  // namespace stepnet::tools
