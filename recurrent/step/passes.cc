// The table of contents of the compiler of step nets.
#include "recurrent/step/passes.h"

#include "core/operator/observer.h"
#include "recurrent/step/ir.h"
#include "recurrent/step/step_code.h"

namespace stepnet {
namespace {

bool is_backward(const StepIr& ir) { return ir.spec.backward; }
bool has_blocks(const StepIr& ir) { return ir.spec.steps > 1; }
bool has_stages(const StepIr& ir) { return has_blocks(ir) && ir.runs_pass("hoist"); }
bool sinks_alone(const StepIr& ir) { return has_stages(ir) && !ir.runs_pass("split"); }
bool may_defer(const StepIr& ir) { return has_blocks(ir) && is_backward(ir); }

constexpr StepPass kPasses[] = {
    {"overwrite", is_backward, overwrite_slabs, true,
     "a gradient takes the place of the forward value that it alone reads"},
    {"split", has_stages, plan_stages, true, "a stack runs a block of timesteps cell by cell"},
    {"sink", sinks_alone, plan_stages, true, "operators that feed no state follow their cell (together with split)"},
    {"hoist", has_blocks, hoist, true, "what depends on the sequence alone runs once per block, before it"},
    {"defer", may_defer, defer, true, "gradients that no timestep waits for run once per block, after it"},
    {"fold", nullptr, fold_sums, true, "a sum of products is accumulated in place"},
    {"widen", has_blocks, widen_rows, false, "what crosses blocks or stages gets a row for each timestep"},
    {"fuse", nullptr, fuse_chains, true, "elementwise operators become one loop"},
    {"scan", has_blocks, plan_scans, true, "each element goes through a block's timesteps by itself"},
    {"block size", has_blocks, plan_block_size, false, "how many timesteps are a block, now that stages are known"},
    {"layout", nullptr, nullptr, true, "values that are never alive together share bytes"},
    {"place", nullptr, lay_out, false, "slots get their bytes"},
    {"lanes", nullptr, nullptr, true, "each thread takes its samples through a block by itself"},
    {"wavefront", nullptr, nullptr, true, "stages run at the same time, each a block after the one before"},
    {"graph", nullptr, nullptr, true, "on a GPU, the loop is captured once and replayed"},
    {"persistent", nullptr, nullptr, true, "on a GPU, timesteps are one kernel that keeps the weights on the chip"},
};

}  // namespace

std::span<const StepPass> step_passes() { return kPasses; }

void run_passes(StepIr& ir) {
  const auto show = [&](std::string_view pass) {
    if (ir.spec.observer) ir.spec.observer->compiled(ir.net_name, pass, [&] { return to_text(ir); });
  };
  show("");
  for (const StepPass& pass : step_passes()) {
    if (!pass.run || (pass.applies && !pass.applies(ir))) continue;
    if (pass.may_be_disabled && !ir.runs_pass(std::string(pass.name))) continue;
    pass.run(ir);
    show(pass.name);
    // Places are checked where what runs for blocks has been bound to them.
    if (kChecksPasses && pass.run != lay_out) check_pass(ir, std::string(pass.name));
  }
  if (ir.spec.observer) ir.spec.observer->compiled(ir.net_name, kStepCode, [&] { return to_text(step_code(ir)); });
  ir.spec.observer = nullptr;
}

StepIr compile_step(StepSpec spec) {
  StepIr ir = build_step(std::move(spec));
  run_passes(ir);
  return ir;
}

}  // namespace stepnet
