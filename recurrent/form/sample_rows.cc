#include "recurrent/form/sample_rows.h"

#include <algorithm>
#include <vector>

#include "core/operator/in_place.h"
#include "stepnet/arguments.h"
#include "stepnet/bound_op.h"
#include "stepnet/error.h"

namespace stepnet {
namespace {

constexpr int64_t kMixed = SampleBlob::kMixed;

// Elements behind the first `dims` dimensions, for one place in these.
int64_t row_size(const Shape& shape, int dims) {
  return shape.size_between(std::min(dims, shape.rank()), shape.rank());
}

// Sizes of 1 in front of the others do not count.
bool is_end_of(const Shape& part, const Shape& whole) {
  int rank = part.rank();
  while (rank > 0 && part[part.rank() - rank] == 1) --rank;
  if (part.rank() > whole.rank()) return false;
  for (int i = 1; i <= rank; ++i)
    if (part[part.rank() - i] != whole[whole.rank() - i]) return false;
  return true;
}

// An operator with the types of its inputs and outputs.
struct TypedCallOp {
  BoundOp op;
  std::vector<TensorType> in, out;
  std::vector<int64_t> inner;  // of inputs; 0 of those whose values are not read
  std::vector<int64_t> held;   // of all of them
};

// True if each element of the output depends on elements in the same place, of operands that are laid over its last
// dimensions, and what holds samples among these has them in the same places.
bool is_laid_over(const TypedCallOp& c, const TensorType& out) {
  const OpSpec& spec = *c.op.spec;
  if (!lays_operands_over(spec) && !spec.elementwise && spec.type != "Dropout") return false;
  int64_t inner = 0;
  for (size_t i = 0; i < c.in.size(); ++i) {
    if (c.inner[i] == 0) continue;
    if (!c.in[i].known || !is_end_of(c.in[i].shape, out.shape) || (inner != 0 && inner != c.inner[i])) return false;
    inner = c.inner[i];
  }
  return true;
}

// By what the operator says of rows.
int64_t inner_by_rows(const TypedCallOp& c, const TensorType& out) {
  std::vector<TensorType> outs = c.out;
  const int rows = c.op.spec->rowwise(c.op.args.get(), ShapeCall(c.in, outs));
  int64_t rows_of_sample = 0;  // that follow each other
  for (size_t i = 0; i < c.in.size(); ++i) {
    if (c.inner[i] == 0) continue;
    const Shape& in = c.in[i].shape;
    const int64_t row = row_size(in, rows);
    if (!c.in[i].known || row == 0 || c.inner[i] % row != 0 || in.size() == 0) return kMixed;
    if (row_size(out.shape, rows) == 0 || in.size() / row != out.shape.size() / row_size(out.shape, rows))
      return kMixed;
    if (rows_of_sample != 0 && rows_of_sample != c.inner[i] / row) return kMixed;
    rows_of_sample = c.inner[i] / row;
  }
  return rows_of_sample * row_size(out.shape, rows);
}

// MatMul of rows that samples have by a matrix that is the same for all.
int64_t inner_of_matmul(const TypedCallOp& c, const TensorType& out) {
  if (c.inner[1] != 0 || !multiplies_rows(c.op.def) || c.in[0].shape.size() == 0) return kMixed;
  const int axis = canonical_axis(int_arg(c.op.def, "axis_a", 1), c.in[0].shape.rank());
  const int64_t row = row_size(c.in[0].shape, axis);
  return c.inner[0] % row == 0 ? c.inner[0] / row * (out.shape.size() / (c.in[0].shape.size() / row)) : kMixed;
}

// The samples' dimension, if it holds one sample in each place, goes where the permutation puts it.
int64_t inner_of_transposed(const TypedCallOp& c, const TensorType& out, int64_t samples) {
  const Shape& in = c.in[0].shape;
  int from = in.rank() - 1;
  while (from >= 0 && (row_size(in, from + 1) != c.inner[0] || in[from] != samples)) --from;
  if (from < 0) return kMixed;
  const Argument* axes = find_arg(c.op.def, "axes");
  int to = in.rank() - 1 - from;
  if (axes && axes->ints_size() > 0)
    to = static_cast<int>(std::ranges::find(axes->ints(), from) - axes->ints().begin());
  return to < out.shape.rank() ? row_size(out.shape, to + 1) : kMixed;
}

int64_t output_inner(const TypedCallOp& c, int o, int64_t samples) {
  const OpSpec& spec = *c.op.spec;
  const TensorType& out = c.out[o];
  if (std::ranges::all_of(c.inner, [](int64_t i) { return i == 0; })) return 0;
  if (!out.known || std::ranges::count(c.inner, kMixed) > 0) return kMixed;
  if (spec.reshapes)
    return std::any_of(c.inner.begin() + 1, c.inner.end(), [](int64_t i) { return i != 0; }) ? kMixed
           : o == 0                                                                          ? c.inner[0]
                                                                                             : 0;
  if (spec.side_effect && !spec.random) return kMixed;
  if (is_laid_over(c, out)) return *std::ranges::find_if(c.inner, [](int64_t i) { return i != 0; });
  if (c.op.def.type() == "Transpose") return inner_of_transposed(c, out, samples);
  if (c.op.def.type() == "MatMul") return inner_of_matmul(c, out);
  if (looks_rows_up(c.op.def) && c.inner[0] == 0 && c.in[0].known) return c.inner[1] * row_size(c.in[0].shape, 1);
  return spec.rowwise ? inner_by_rows(c, out) : kMixed;
}

// The type for one sample more; not known if the samples' dimension is not found.
TensorType with_one_more(const TensorType& type, int64_t inner, int64_t samples) {
  const Shape& shape = type.shape;
  for (int d = shape.rank() - 1; d >= 0; --d)
    if (row_size(shape, d + 1) == inner && shape[d] > 0 && shape[d] % samples == 0)
      return TensorType::of(type.dtype, shape.with(d, shape[d] / samples * (samples + 1)));
  return {};
}

// That one sample more makes each output larger by the samples' dimension alone: an operator says which of its
// dimensions are rows, but not which of its inputs have them.
bool grows_by_rows(const TypedCallOp& c, const std::vector<int64_t>& inner, int64_t samples) {
  std::vector<TensorType> in = c.in, out(c.out.size());
  for (size_t i = 0; i < in.size(); ++i) {
    if (c.held[i] == 0) continue;
    in[i] = with_one_more(in[i], c.held[i], samples);
    if (!in[i].known) return false;
  }
  for (size_t o = 0; o < out.size(); ++o) out[o].absent = c.out[o].absent;
  try {
    infer_types(c.op, in, out);
  } catch (const Error&) {
    return false;  // something else has the size of the batch
  }
  for (size_t o = 0; o < out.size(); ++o) {
    if (inner[o] <= 0 || out[o].absent) continue;
    const TensorType larger = with_one_more(c.out[o], inner[o], samples);
    if (!larger.known || !out[o].known || !(out[o].shape == larger.shape)) return false;
  }
  return true;
}

void trace_network(const OperatorDef& op, SampleBlobs& known) {
  const RecurrentDef& def = op.GetExtension(recurrent);
  SampleBlobs inside = enter_step_net(def, known);
  for (const OperatorDef& inner : def.step_net().op()) trace_samples(inner, inside);
  leave_step_net(def, inside, known);
}

// By its row, the type of what a network shows of all timesteps.
SampleBlob with_timesteps(SampleBlob row, int64_t steps) {
  if (row.type.known && row.type.shape.rank() >= 1) row.type.shape = row.type.shape.with(0, steps);
  return row;
}

int64_t timesteps_of(const RecurrentDef& def, const SampleBlobs& outside) {
  require(def.sequence_size() > 0, "the short form needs at least one sequence");
  const SampleBlob& sequence = outside.at(def.sequence(0).outer());
  return sequence.type.known && sequence.type.shape.rank() >= 2 ? sequence.type.shape[0] : -1;
}

// One sample in each place of the dimension behind the timesteps'.
SampleBlob row_of(const SampleBlob& sequence, int64_t samples) {
  SampleBlob row = sequence;
  const Shape& shape = sequence.type.shape;
  if (!sequence.type.known || shape.rank() < 2) return {.type = {}, .inner = kMixed};
  row.type.shape = shape.with(0, 1);
  const bool fits = shape[1] == samples && sequence.inner == row_size(shape, 2);
  if (sequence.inner != 0 && !fits) row.inner = kMixed;
  return row;
}

SampleBlob first_state(const StateLink& state, const SampleBlobs& outside, DType dtype) {
  std::vector<int64_t> dims = {1, outside.samples};
  int64_t first = 0;
  if (!state.has_initial()) {
    dims.insert(dims.end(), state.size().begin(), state.size().end());
  } else {
    const SampleBlob& initial = outside.at(state.initial());
    if (!initial.type.known) return {.type = {}, .inner = kMixed};
    const Shape& shape = initial.type.shape;
    if (shape.rank() == 1) dims.push_back(shape[0]);
    for (int i = shape.rank() == 2 ? 1 : 2; i < shape.rank(); ++i) dims.push_back(shape[i]);
    dtype = initial.type.dtype;
    first = initial.inner;
  }
  SampleBlob made{.type = TensorType::of(dtype, Shape(dims)), .inner = 0};
  made.inner = row_size(made.type.shape, 2);
  if (first != 0 && first != made.inner) made.inner = kMixed;
  return made;
}

}  // namespace

const SampleBlob& SampleBlobs::at(const std::string& name) const {
  static const SampleBlob unknown{.type = {}, .inner = kMixed};
  const auto found = blobs.find(name);
  return found == blobs.end() ? unknown : found->second;
}

SampleBlob fed_samples(const std::string& name, const TensorType& type, int axis, int64_t samples) {
  require(axis >= 0 && axis < type.shape.rank(), "\"{}\" is {}, which has no dimension {} for samples", name,
          type.str(), axis);
  require(samples > 0 && type.shape[axis] % samples == 0,
          "dimension {} of \"{}\", which is {}, does not hold {} samples", axis, name, type.str(), samples);
  return {.type = type, .inner = row_size(type.shape, axis + 1)};
}

int64_t int_arg(const OperatorDef& op, const char* name, int64_t otherwise) {
  const Argument* arg = find_arg(op, name);
  return arg ? arg->i() : otherwise;
}

bool looks_rows_up(const OperatorDef& op) {
  return op.type() == "Gather" && int_arg(op, "axis", 0) == 0 && int_arg(op, "match_outer", 0) == 0;
}

bool multiplies_rows(const OperatorDef& op) { return op.type() == "MatMul" && int_arg(op, "trans_a", 0) == 0; }

std::vector<SampleBlob> traced_outputs(const OperatorDef& op, const SampleBlobs& known) {
  TypedCallOp c{.op = bind_op(op, "", 0), .in = {}, .out = {}, .inner = {}, .held = {}};
  for (const std::string& name : op.input()) {
    TensorType type;
    type.absent = name.empty();
    c.in.push_back(name.empty() ? type : known.at(name).type);
    c.inner.push_back(name.empty() ? 0 : known.at(name).inner);
  }
  c.out.resize(op.output_size());
  c.held = c.inner;
  const std::vector<bool> reads = value_reads(*c.op.spec, op.input_size(), std::vector<bool>(op.output_size(), true));
  for (size_t i = 0; i < reads.size(); ++i)
    if (!reads[i] || (c.op.spec->role == Role::fill_like && int_arg(op, "input_as_shape", 0) == 0)) c.inner[i] = 0;
  for (int o = 0; o < op.output_size(); ++o) c.out[o].absent = op.output(o).empty();
  if (!c.op.spec->blob_kernel) infer_types(c.op, c.in, c.out);
  std::vector<int64_t> inner;
  for (int o = 0; o < op.output_size(); ++o)
    inner.push_back(c.op.spec->blob_kernel ? kMixed : output_inner(c, o, known.samples));  // it may read other blobs
  // Element by element there are no rows, and constants of the samples' number may be laid over them.
  const bool by_rows = !c.op.spec->blob_kernel && !c.op.spec->reshapes &&
                       std::ranges::any_of(c.out, [&](const TensorType& out) { return !is_laid_over(c, out); });
  if (by_rows && known.samples > 1 && !grows_by_rows(c, inner, known.samples))
    for (int64_t& i : inner)
      if (i > 0) i = kMixed;
  std::vector<SampleBlob> made;
  for (int o = 0; o < op.output_size(); ++o) made.push_back({.type = c.out[o], .inner = inner[o]});
  return made;
}

void trace_samples(const OperatorDef& op, SampleBlobs& known) {
  if (op.HasExtension(recurrent)) return trace_network(op, known);
  const std::vector<SampleBlob> made = traced_outputs(op, known);
  for (int o = 0; o < op.output_size(); ++o)
    if (!op.output(o).empty()) known.blobs[op.output(o)] = made[o];
}

SampleBlobs enter_step_net(const RecurrentDef& def, const SampleBlobs& outside) {
  SampleBlobs inside = outside;
  DType dtype = DType::float32;
  for (const SequenceLink& s : def.sequence()) {
    inside.blobs[s.inner()] = row_of(outside.at(s.outer()), outside.samples);
    if (is_floating(inside.blobs[s.inner()].type.dtype)) dtype = inside.blobs[s.inner()].type.dtype;
  }
  for (const StateLink& s : def.state()) inside.blobs[s.input()] = first_state(s, outside, dtype);
  inside.blobs[def.timestep()] = {.type = TensorType::of(DType::int32, {1}), .inner = 0};
  // A state that mixes samples in one timestep hands that to the next.
  for (bool spreads = true; spreads;) {
    spreads = false;
    SampleBlobs step = inside;
    for (const OperatorDef& op : def.step_net().op()) trace_samples(op, step);
    for (const StateLink& s : def.state()) {
      const SampleBlob& next = step.at(s.output());
      SampleBlob& state = inside.blobs[s.input()];
      if (next.inner == 0 || next.inner == state.inner || state.inner == kMixed) continue;
      state.inner = kMixed;
      spreads = true;
    }
  }
  return inside;
}

void leave_step_net(const RecurrentDef& def, const SampleBlobs& inside, SampleBlobs& outside) {
  const int64_t steps = timesteps_of(def, outside);
  for (const StateLink& s : def.state()) {
    SampleBlob row = inside.at(s.input());
    if (inside.at(s.output()).inner == kMixed) row.inner = kMixed;
    if (s.has_all()) outside.blobs[s.all()] = with_timesteps(row, steps);
    if (s.has_last()) outside.blobs[s.last()] = row;
  }
  for (const OutputLink& o : def.output()) outside.blobs[o.outer()] = with_timesteps(inside.at(o.inner()), steps);
}

}  // namespace stepnet
