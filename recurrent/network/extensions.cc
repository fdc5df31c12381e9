#include "recurrent/network/extensions.h"

#include <algorithm>
#include <map>
#include <optional>

#include "core/tensor/tensor.h"
#include "recurrent/network/states.h"

namespace stepnet {
namespace {

Tensor output_slab(const StepOutput& output, const StepProgram& program) {
  const Tensor slab = program.slab(output.internal);
  if (!slab.defined()) fail("the output \"{}\" has no rows of its own in the step net", output.internal);
  return slab;
}

}  // namespace

DType zero_state_type(std::span<const DType> inputs) {
  for (const DType type : inputs)
    if (is_floating(type)) return type;
  return DType::float32;
}

Shape zero_state_shape(const StateSpec& state, int64_t steps, int64_t batch) {
  Shape shape{steps + 1, batch};
  for (const int64_t size : state.size) shape.push_back(size);
  return Shape(shape.dims());  // made anew, so that its size is checked
}

namespace {

// By state, as far as the arguments can be right.
std::vector<StateSpec> zero_states(const RecurrentArgs& args) {
  std::vector<StateSpec> states;
  auto size = args.zero_state_sizes.begin();
  for (const int64_t rank : args.zero_state_ranks) {
    if (rank < 0 || rank > Shape::kMaxRank - 2 || rank > args.zero_state_sizes.end() - size) break;
    states.emplace_back().size.assign(size, size + rank);
    size += rank;
  }
  return states;
}

// What states that start at zero have; nothing if an input is not known yet.
std::optional<DType> zero_type(const ShapeCall& call) {
  std::vector<DType> types;
  for (int i = 0; i < call.inputs(); ++i) {
    if (!call.known(i) && call.has(i)) return {};
    types.push_back(call.dtype(i));
  }
  return zero_state_type(types);
}

}  // namespace

std::vector<TensorType> infer_states(const RecurrentArgs& args, const ShapeCall& call) {
  const Shape& sequence = call.shape(0);
  const std::vector<StateSpec> zero = zero_states(args);
  const std::optional<DType> type = zero_type(call);
  std::vector<TensorType> types(std::min(args.recurrent_states.size(), args.initial_recurrent_state_ids.size()));
  for (size_t s = 0; s < types.size(); ++s) {
    const int64_t id = args.initial_recurrent_state_ids[s];
    if (id >= 0 && id < call.inputs() && call.known(static_cast<int>(id)))
      types[s] = TensorType::of(call.dtype(static_cast<int>(id)),
                                state_shape(call.shape(static_cast<int>(id)), sequence[0], sequence[1]));
    if (id < 0 && s < zero.size() && type)
      types[s] = TensorType::of(*type, zero_state_shape(zero[s], sequence[0], sequence[1]));
  }
  return types;
}

void infer_outputs(const RecurrentArgs& args, ShapeCall& call) {
  if (!call.known(0)) return;
  require(call.shape(0).rank() >= 2, "the sequence must be [T, B, ...], not {}", call.shape(0));
  const size_t count = std::min({args.alias_src.size(), args.alias_offset.size(), static_cast<size_t>(call.outputs())});
  std::map<std::string, TensorType> states;
  const std::vector<TensorType> types = infer_states(args, call);
  for (size_t s = 0; s < types.size(); ++s) states[args.recurrent_states[s]] = types[s];
  for (size_t v = 0; v < count; ++v) {
    const auto state = states.find(args.alias_src[v]);
    if (state == states.end() || !state->second.known) continue;
    const TensorType& whole = state->second;
    const int64_t rows = whole.shape[0];
    const int64_t left_out = args.alias_offset[v] >= 0 ? args.alias_offset[v] : rows + args.alias_offset[v];
    require(left_out >= 0 && left_out <= rows, "\"alias_offset\" is {}, but the state \"{}\" has {} rows",
            args.alias_offset[v], args.alias_src[v], rows);
    call.set(static_cast<int>(v), whole.dtype, whole.shape.with(0, rows - left_out));
  }
}

RowRange shown_rows(const StateView& view, const Tensor& state, bool reverse) {
  const int64_t rows = state.dim(0);
  const int64_t left_out = view.offset >= 0 ? view.offset : rows + view.offset;
  if (left_out < 0 || left_out > rows)
    fail("\"alias_offset\" of \"{}\" is {}, but the state \"{}\" is {}", view.output, view.offset, view.state, state);
  return {reverse ? 0 : left_out, rows - left_out};
}

void check_more_sequences(const RecurrentSpec& spec, const BlobCall& call, const Shape& first) {
  for (const int i : spec.more_sequences) {
    const Shape& shape = tensor_input(call, i).shape();
    if (shape.rank() < 2) fail("the sequence \"{}\" must be [T, B, ...], not {}", call.def.input(i), shape);
    if (shape[0] != first[0] || shape[1] != first[1])
      fail("the sequence \"{}\" is {}, but \"{}\" has {} timesteps and a batch of {}", call.def.input(i), shape,
           call.def.input(0), first[0], first[1]);
  }
}

void check_lengths(const RecurrentSpec& spec, const BlobCall& call, int64_t steps, int64_t batch) {
  if (spec.lengths < 0) return;
  const Tensor& lengths = tensor_input(call, spec.lengths);
  const std::string& name = call.def.input(spec.lengths);
  if (lengths.dtype() != DType::int32 || !(lengths.shape() == Shape{batch}))
    fail("the lengths \"{}\" must be int32[{}], one for each sample, but are {}", name, batch, lengths);
  if (lengths.is_dry()) return;
  const Tensor values = on_device(lengths, {});
  for (int64_t b = 0; b < batch; ++b)
    if (const int32_t length = values.data<int32_t>()[b]; length < 0 || length > steps)
      fail("the length of sample {} in \"{}\" is {}; it must be from 0 to the {} timesteps of the sequence", b, name,
           length, steps);
}

void check_outputs(const RecurrentSpec& spec, const StepProgram& program, int64_t batch) {
  for (const StepOutput& output : spec.outputs) {
    const Tensor slab = output_slab(output, program);
    const Shape row = slab.shape().from(1);
    if (row.rank() < 2 || row[0] != 1 || row[1] != batch)
      fail("\"{}\", a row of the output \"{}\", must be [1, B, ...] with a batch of {}, but the step net makes it {}{}",
           output.internal, output.external, batch, dtype_name(slab.dtype()), row);
  }
}

Tensor output_over_time(const Tensor& slab) { return slab.reshaped(slab.shape().from(2).prepend(slab.dim(0))); }

void show_outputs(const RecurrentSpec& spec, const StepProgram& program, Workspace& workspace) {
  for (const StepOutput& output : spec.outputs)
    workspace.create(output.external).tensor() = output_over_time(output_slab(output, program));
}

int64_t output_bytes(const RecurrentSpec& spec, const StepProgram& program) {
  int64_t bytes = 0;
  for (const StepOutput& output : spec.outputs) bytes += static_cast<int64_t>(output_slab(output, program).bytes());
  return bytes;
}

}  // namespace stepnet
