#include "core/passes/recompute.h"

#include <algorithm>

#include "core/tensor/dry_device.h"
#include "stepnet/net.h"

namespace stepnet {
namespace {

MemoryValues checked_values(const NetDef& training, int first_gradient_op, const MemoryQuestion& question) {
  require(first_gradient_op >= 0 && first_gradient_op <= training.op_size(),
          "the first gradient operator of net \"{}\" cannot be {}: it has {} operators", training.name(),
          first_gradient_op, training.op_size());
  return value_net(training, first_gradient_op, question);
}

// Of the scope's blocks that are not what kernels work on: the most at a time since an event, and those of now.
NetBytes bytes_since(const DryScope& scope, int64_t start) {
  std::vector<int64_t> changes(static_cast<size_t>(scope.events()));
  for (const DryBlock& block : scope.blocks()) {
    if (block.category == MemoryCategory::workspace) continue;
    changes[static_cast<size_t>(block.made)] += block.bytes;
    if (block.gone >= 0) changes[static_cast<size_t>(block.gone)] -= block.bytes;
  }
  NetBytes bytes;
  for (size_t event = 0; event <= changes.size(); ++event) {
    if (static_cast<int64_t>(event) >= start) bytes.peak = std::max(bytes.peak, bytes.lasting);
    if (event < changes.size()) bytes.lasting += changes[event];
  }
  return bytes;
}

}  // namespace

NetBytes dry_run_bytes(const NetDef& net, const MemoryQuestion& question) {
  DryScope scope;
  for (const auto& [name, type] : question.bounds) scope.bounds[name] = {type.dtype, type.shape};
  Workspace workspace;
  // What the net leaves in another shape is fed again before the second run, as data are.
  const auto feed = [&] {
    for (const auto& [name, type] : question.feeds) {
      require(type.known, "the type of \"{}\" is not known", name);
      if (Tensor& fed = workspace.tensor(name);
          fed.dtype() != type.dtype || fed.shape() != type.shape || !fed.defined())
        fed = Tensor::empty(type.dtype, type.shape);
    }
  };
  feed();
  Net bound(net, workspace, {.release_intermediates = true, .keep = question.keep, .force_cpu = true});
  int64_t start = 0;
  for (int i = 0; i < 2; ++i) {
    feed();
    start = scope.events();
    RunContext run;
    bound.run(run);
  }
  return bytes_since(scope, start);
}

RecomputePlanner::RecomputePlanner(const NetDef& training, int first_gradient_op, const MemoryQuestion& question,
                                   std::function<int64_t(const NetDef&)> peak_of)
    : training_(training),
      peak_of_(std::move(peak_of)),
      values_(checked_values(training, first_gradient_op, question)),
      cuts_(values_) {
  if (!peak_of_) peak_of_ = [question](const NetDef& net) { return dry_run_bytes(net, question).peak; };
  whole_ = plan_of({});
  least_ = plan_of(*cuts_.cheapest(cuts_.least_bytes()));
  if (whole_.peak <= least_.peak) least_ = whole_;
}

RecomputePlan RecomputePlanner::plan_of(const Division& division) const {
  RecomputePlan plan;
  plan.net = with_segments_again(training_, values_, division.segments, &plan.again);
  plan.peak = peak_of_(plan.net);
  plan.extra_flops = division.flops;
  for (const MemoryValues::Op& op : values_.ops) plan.flops += op.flops;
  for (const Segment& segment : division.segments)
    if (segment.again) plan.segments.push_back(segment);
  return plan;
}

RecomputePlan RecomputePlanner::plan(int64_t bytes) const {
  require(bytes > 0, "a memory budget must be positive, but is {} bytes", bytes);
  if (whole_.peak <= bytes) return whole_;
  if (least_.peak > bytes)
    throw Error(fmt::format("net \"{}\" does not fit a memory budget of {} bytes: it takes at least {}, and {} with "
                            "everything kept",
                            training_.name(), bytes, least_.peak, whole_.peak),
                fmt::format("set the budget to {} or more, or take smaller batches", least_.peak));
  // The costs of segments may add up to less than the net takes, if that is not built as RerunCosts says or is
  // counted in another way. Then less is asked for until the count agrees.
  for (int64_t bound = bytes; bound > 0;) {
    const std::optional<Division> division = cuts_.cheapest(bound);
    if (!division) break;
    RecomputePlan plan = plan_of(*division);
    if (plan.peak <= bytes) return plan.extra_flops < least_.extra_flops ? plan : least_;
    bound -= plan.peak - bytes;
  }
  return least_;
}

std::vector<RecomputePlan> RecomputePlanner::curve(int points) const {
  std::vector<RecomputePlan> plans;
  for (int i = 0; i < points; ++i) {
    const double part = points > 1 ? static_cast<double>(i) / (points - 1) : 1;
    const int64_t bytes = least_.peak + static_cast<int64_t>(part * static_cast<double>(whole_.peak - least_.peak));
    RecomputePlan next = plan(std::max<int64_t>(bytes, 1));  // a net of empty blobs takes none
    if (plans.empty() || next.extra_flops < plans.back().extra_flops) plans.push_back(std::move(next));
  }
  return plans;
}

RecomputePlan plan_recompute(const NetDef& training, int first_gradient_op, const MemoryQuestion& question,
                             int64_t bytes) {
  return RecomputePlanner(training, first_gradient_op, question).plan(bytes);
}

}  // namespace stepnet
