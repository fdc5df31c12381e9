// The state tensors of a RecurrentNetwork: making them for a run, and showing them as outputs; and what the operator
// does beyond the public format: states that start at zero, several sequences, outputs that are no states, and lengths
// of samples (see the fields of RecurrentSpec).
//
// A state tensor is [T + L, B, D]: rows 0 ... L-1 are the initial value, and the step at t writes row t + L. In a
// network that only runs forward, a state of which nobody outside reads more than the last row has L + 1 rows that are
// taken in turn, row r in place r % (L + 1), so that its memory does not grow with T. It is no blob of the workspace.
// Threads: one run at a time.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "recurrent/network/kept.h"
#include "stepnet/operator.h"

namespace stepnet {

// The names of the states whose rows may be taken in turn: the step net sees single rows of them, and of their views,
// the operators of the net and its outputs, none shows an earlier row.
std::set<std::string> states_taken_in_turn(const RecurrentSpec& spec, const OperatorDef& def, const NetDef& net);

// The names of the gradients of states of which two rows are enough, if operators of single timesteps alone see them:
// the step at t reads one and writes the other, and no name outside shows an earlier one.
std::set<std::string> gradients_taken_in_turn(const RecurrentSpec& spec, const OperatorDef& def, const NetDef& net);

// The names of the states that the step net reads where it makes them.
std::set<std::string> states_read_ahead(const RecurrentSpec& spec);

// Of a network with a backward pass: the names of the states that may have the rows of a segment of timesteps alone.
std::set<std::string> states_in_segments(const RecurrentSpec& spec, const OperatorDef& def, const NetDef& net);

// The state's type and shape over all timesteps, without bytes if only a part of it is there.
Tensor state_over_time(const RecurrentScratch& scratch, const Workspace& workspace, const std::string& state);

// Creates the state tensors and writes their first rows: the one copy that a state ever costs.
void initialise_states(RecurrentScratch& scratch, BlobCall& call, int64_t steps, int64_t batch);

// Makes the operator's outputs views of the states.
void show_views(const RecurrentScratch& scratch, Workspace& workspace);

// An input that must be there and hold a tensor; throws Error.
const Tensor& tensor_input(const BlobCall& call, int i);

// The dtype and shape of a state that starts at zero: the type of the first input with a floating one.
DType zero_state_type(std::span<const DType> inputs);
Shape zero_state_shape(const StateSpec& state, int64_t steps, int64_t batch);

// The types of the states over time; unknown where that of an initial value is. The first sequence must be known.
std::vector<TensorType> infer_states(const RecurrentArgs& args, const ShapeCall& call);
// What is known inside the step net of such a network: rows of sequences and states, the timestep, and what it reads by
// name. `in`: of the operator's inputs; that of the first sequence must be known.
std::map<std::string, TensorType> known_in_step(const RecurrentSpec& spec, const RecurrentArgs& args,
                                                const OperatorDef& def, std::span<const TensorType> in);
// Types of the views, for checks before a run.
void infer_outputs(const RecurrentArgs& args, ShapeCall& call);

// Which rows of a state a view shows. Throws Error if there are not that many.
struct RowRange {
  int64_t first = 0, count = 0;
};
RowRange shown_rows(const StateView& view, const Tensor& state, bool reverse);

// Of a network that was written for an RNN, GRU or LSTM: throws Error if its sequence, initial states or weights do not
// fit the argument "hidden". `shape_of` is the shape of an input, or null if it is not known.
void check_layer(const RecurrentArgs& args, const std::function<const Shape*(int64_t)>& shape_of);

// Throws Error if a sequence has another T or B than the first, or a sample's length is not from 0 to T.
void check_more_sequences(const RecurrentSpec& spec, const BlobCall& call, const Shape& first);
void check_lengths(const RecurrentSpec& spec, const BlobCall& call, int64_t steps, int64_t batch);

// Outputs that the step net writes are slabs of the program. Throws Error unless one timestep of each is [1, B, ...].
void check_outputs(const RecurrentSpec& spec, const StepProgram& program, int64_t batch);
Tensor output_over_time(const Tensor& slab);  // [T, B, ...]
void show_outputs(const RecurrentSpec& spec, const StepProgram& program, Workspace& workspace);
int64_t output_bytes(const RecurrentSpec& spec, const StepProgram& program);

}  // namespace stepnet
