// The loop of a StepProgram on a GPU as one graph: captured once, replayed in every later run, so that the host queues
// one thing instead of some for each operator and timestep.
//
// A graph has all addresses in it. It is captured when a run has those of the run before, which made everything that
// kernels make when they first run, and is used as long as they stay.
#include <algorithm>

#include "core/compute/device_work.h"
#include "core/tensor/dry_device.h"
#include "recurrent/step/program.h"

namespace stepnet {

// Random operators are given a new key in every run, and kernels that are not chosen yet look at values.
bool StepProgram::may_capture(const RunContext& run) const {
  if (spec_.device.kind == DeviceKind::cpu || !runs_pass("graph") || graph_refused_) return false;
  if (run.profiler || DryScope::now()) return false;
  return std::ranges::all_of(ops_, [](const auto& op) {
    const OpSpec& spec = *op->op.spec;
    return (op->kernel || op->plain_copy) && !op->nested && !spec.random && !spec.side_effect;
  });
}

// Whatever a run's kernels are given.
std::vector<const void*> StepProgram::addresses() const {
  std::vector<const void*> all = {reinterpret_cast<const void*>(range_.first),
                                  reinterpret_cast<const void*>(range_.count)};
  for (const auto& slot : slots_)
    for (const Tensor* t : {&std::as_const(slot->tensor), &std::as_const(slot->whole)}) {
      all.push_back(t->storage() ? t->storage()->data() : nullptr);
      all.push_back(reinterpret_cast<const void*>(t == &slot->tensor && slot->stride > 0 ? slot->base : t->offset()));
    }
  for (const Total& total : totals_) all.push_back(std::as_const(total.tensor).raw());
  for (const std::vector<RowSum>& sums : row_sums_)
    for (const RowSum& sum : sums) {
      all.push_back(std::as_const(sum.from).raw());
      all.push_back(std::as_const(sum.to).raw());
    }
  return all;
}

void StepProgram::run_captured(RunContext& run) {
  std::vector<const void*> now = addresses();
  if (graph_ && now == graph_addresses_) return graph_->replay();
  if (now != last_addresses_) {
    last_addresses_ = std::move(now);
    return run_blocks(run);
  }
  graph_.reset();
  try {
    graph_ = device_work(spec_.device.kind).capture(spec_.device, [&] { run_blocks(run); });
  } catch (const Error&) {
    graph_refused_ = true;  // some kernel waits for the device: it says what is wrong, if anything is, as it runs
    return run_blocks(run);
  }
  graph_addresses_ = std::move(now);
  graph_->replay();
}

}  // namespace stepnet
