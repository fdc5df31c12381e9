// The compiler of step nets: builds a StepIr from a step net, and the passes that make it fast.
//
// The table is the one list of passes: the order in which they run, the names that `disabled_passes` takes, and what
// the documentation says of each. A new pass is a function in a file of its own and a row. Threads: pure functions.
// Errors: Error with the operator and the step net.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "recurrent/step/ir.h"

namespace stepnet {

struct StepPass {
  std::string_view name;              // in `disabled_passes`
  bool (*applies)(const StepIr& ir);  // null: always
  void (*run)(StepIr& ir);            // null: what runs the step net asks runs_pass() by itself
  bool may_be_disabled = true;
  std::string_view does = {};  // in one sentence
};
std::span<const StepPass> step_passes();

// Slots and operators as the step net has them, with the sums over time that kernels add to by themselves.
StepIr build_step(StepSpec spec);
// Runs the passes in their order; in builds with assertions each is checked (recurrent/step/step_check.h).
void run_passes(StepIr& ir);
// Both.
StepIr compile_step(StepSpec spec);

// Compares what the step net computes now with what it did when it was built ("" for the pass), on symbols. Throws
// Error that names the pass.
void check_pass(StepIr& ir, const std::string& pass);

// The passes; the table says what each does.
void overwrite_slabs(StepIr& ir);
void plan_stages(StepIr& ir);
void hoist(StepIr& ir);
void defer(StepIr& ir);
void fold_sums(StepIr& ir);
void widen_rows(StepIr& ir);
void fuse_chains(StepIr& ir);
void plan_scans(StepIr& ir);
void plan_block_size(StepIr& ir);
void lay_out(StepIr& ir);

// What several passes share: whether the operator could run for a block at once if all that it reads were there, giving
// a scratch buffer a row for each timestep of a block, the same for what one stage hands to another, whether an
// operator takes less time than it takes to read what it makes, whether it multiplies matrices by vectors and may be
// part of a loop that makes them, and keeping out of the blocks slices of columns, and what is made for loops of a
// timestep alone and is less work there.
bool may_hoist(const StepIr& ir, const StepOp& op);
bool is_cheap(const OpSpec& spec, const void* args, int inputs);
void widen(StepIr& ir, int slot);
void widen_between_stages(StepIr& ir);
bool makes_matrices(const StepIr& ir, const StepOp& op);
bool reads_matrices(const StepIr& ir, const StepOp& op);
void keep_slices_in_steps(StepIr& ir);
void keep_cheap_in_steps(StepIr& ir);

}  // namespace stepnet
