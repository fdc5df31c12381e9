// What RecurrentNetwork does beyond the public format: states that start at zero, several sequences, outputs that are
// no states, and lengths of samples. See the fields of RecurrentSpec.
// Threads: pure functions but for what they write to.
#pragma once

#include "recurrent/network/kept.h"

namespace stepnet {

// The dtype and shape of a state that starts at zero: the type of the first input with a floating one.
DType zero_state_type(std::span<const DType> inputs);
Shape zero_state_shape(const StateSpec& state, int64_t steps, int64_t batch);

// The types of the states over time; unknown where that of an initial value is. The first sequence must be known.
std::vector<TensorType> infer_states(const RecurrentArgs& args, const ShapeCall& call);
// Types of the views, for checks before a run.
void infer_outputs(const RecurrentArgs& args, ShapeCall& call);

// Which rows of a state a view shows. Throws Error if there are not that many.
struct RowRange {
  int64_t first = 0, count = 0;
};
RowRange shown_rows(const StateView& view, const Tensor& state, bool reverse);

// Throws Error if a sequence has another T or B than the first, or a sample's length is not from 0 to T.
void check_more_sequences(const RecurrentSpec& spec, const BlobCall& call, const Shape& first);
void check_lengths(const RecurrentSpec& spec, const BlobCall& call, int64_t steps, int64_t batch);

// Outputs that the step net writes are slabs of the program. Throws Error unless one timestep of each is [1, B, ...].
void check_outputs(const RecurrentSpec& spec, const StepProgram& program, int64_t batch);
Tensor output_over_time(const Tensor& slab);  // [T, B, ...]
void show_outputs(const RecurrentSpec& spec, const StepProgram& program, Workspace& workspace);
int64_t output_bytes(const RecurrentSpec& spec, const StepProgram& program);

}  // namespace stepnet
