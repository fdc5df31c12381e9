#include "core/passes/batched_rows.h"

#include <algorithm>
#include <utility>

#include "core/passes/batched_rules.h"
#include "core/passes/gradient_sums.h"
#include "stepnet/arguments.h"
#include "stepnet/error.h"

namespace stepnet {
namespace {

RowBatch::Dims dims_of(const Shape& shape) { return {shape.begin(), shape.end()}; }

int64_t size_of(const RowBatch::Dims& dims) {
  int64_t size = 1;
  for (const int64_t d : dims) size *= d;
  return size;
}

// Operators that a net may hold on blobs say themselves what of them is read.
std::vector<bool> values_read(const BoundOp& op) {
  std::vector<bool> wanted;
  for (const std::string& name : op.def.output()) wanted.push_back(!name.empty());
  std::vector<bool> reads = value_reads(*op.spec, op.def.input_size(), wanted);
  const Argument* as_shape = find_arg(op.def, "input_as_shape");
  if (op.spec->role == Role::fill_like && (!as_shape || as_shape->i() == 0)) reads.assign(reads.size(), false);
  return reads;
}

using NewNames = std::map<std::string, std::string>;

// A network's arguments have names of blobs around it, and of their gradients; all of one name mean one blob.
void rename(std::string& name, const NewNames& names) {
  static const std::string kSuffix = "_grad";
  if (const auto found = names.find(name); found != names.end()) {
    name = found->second;
  } else if (name.ends_with(kSuffix)) {
    const auto of = names.find(name.substr(0, name.size() - kSuffix.size()));
    if (of != names.end()) name = of->second + kSuffix;
  }
}

void rename_in_arguments(OperatorDef& op, const NewNames& names);

void rename_in_net(NetDef& net, const NewNames& names) {
  for (std::string& name : *net.mutable_external_input()) rename(name, names);
  for (std::string& name : *net.mutable_external_output()) rename(name, names);
  for (OperatorDef& op : *net.mutable_op()) {
    for (std::string& name : *op.mutable_input()) rename(name, names);
    for (std::string& name : *op.mutable_output()) rename(name, names);
    rename_in_arguments(op, names);
  }
}

void rename_in_arguments(OperatorDef& op, const NewNames& names) {
  for (Argument& arg : *op.mutable_arg()) {
    if (arg.has_n()) rename_in_net(*arg.mutable_n(), names);
    for (NetDef& net : *arg.mutable_nets()) rename_in_net(net, names);
    if (arg.has_s()) rename(*arg.mutable_s(), names);
    for (std::string& name : *arg.mutable_strings()) rename(name, names);
  }
}

}  // namespace

RowBatch::RowBatch(NetDef& net, int64_t rows, std::map<std::string, TensorType> types, std::string prefix)
    : net_(net), rows_(rows), types_(std::move(types)), prefix_(std::move(prefix)) {
  require(rows > 0, "there must be at least one row, but there are {}", rows);
}

const TensorType& RowBatch::type(const std::string& name) const {
  static const TensorType unknown;
  const auto found = types_.find(name);
  return found == types_.end() ? unknown : found->second;
}

TensorType RowBatch::full_type(const std::string& name) const {
  TensorType full = type(name);
  full.absent = name.empty();
  if (full.known && has_rows(name)) full.shape = full.shape.prepend(rows_);
  return full;
}

std::map<std::string, TensorType> RowBatch::promised() const {
  std::map<std::string, TensorType> types;
  for (const auto& [name, made] : made_)
    if (!made.stacked.empty() && known(name)) types[made.stacked] = full_type(name);
  return types;
}

std::string RowBatch::fresh(const std::string& base) { return fmt::format("{}{}_{}", prefix_, base, ++numbers_[base]); }

std::string RowBatch::emit(const std::string& type, const Strings& inputs, const std::vector<Argument>& args) {
  OperatorDef& op = append_gradient_op(net_, type, *like_);
  op.mutable_input()->Add(inputs.begin(), inputs.end());
  op.add_output(fresh(type));
  op.mutable_arg()->Add(args.begin(), args.end());
  return op.output(0);
}

void RowBatch::emit_op(const OperatorDef& op) { *net_.add_op() = op; }

std::string RowBatch::reshape(const std::string& stands, const Dims& have, const Dims& want, DType dtype) {
  if (have == want) return stands;
  // In the new shape a 0 would stand for the size that is in its place.
  if (size_of(want) == 0)
    return emit("ConstantFill", {}, {make_arg("shape", want), make_arg("dtype", static_cast<int>(dtype))});
  const std::string made = emit("Reshape", {stands}, {make_arg("shape", want)});
  net_.mutable_op(net_.op_size() - 1)->add_output(made + "_old_shape");
  return made;
}

std::string RowBatch::row_view(const std::string& name, const Dims& want) {
  Dims have = dims_of(shape(name)), sizes = want;
  if (!has_rows(name)) return reshape(name, have, sizes, type(name).dtype);
  have.insert(have.begin(), rows_);
  sizes.insert(sizes.begin(), rows_);
  return reshape(with_rows(name), have, sizes, type(name).dtype);
}

std::string RowBatch::repeat(const std::string& name) {
  std::string& made = repeated_[name];
  if (!made.empty()) return made;
  const std::string row = emit("ExpandDims", {name}, {make_arg("dims", Dims{0})});
  return made = emit("Tile", {row}, {make_arg("tiles", rows_), make_arg("axis", 0)});
}

std::string RowBatch::with_rows(const std::string& name) {
  const auto found = made_.find(name);
  if (found == made_.end()) return repeat(name);
  Made& made = found->second;
  if (!made.stacked.empty()) return made.stacked;
  OperatorDef& op = append_gradient_op(net_, "Concat", *like_);
  op.mutable_input()->Add(made.each.begin(), made.each.end());
  made.stacked = fresh("rows");
  op.add_output(made.stacked);
  op.add_output(made.stacked + "_sizes");
  *op.add_arg() = make_arg("axis", 0);
  *op.add_arg() = make_arg("add_axis", 1);
  return made.stacked;
}

const RowBatch::Strings& RowBatch::row_by_row(const std::string& name) {
  Made& made = made_.at(name);
  if (!made.each.empty()) return made.each;
  Strings cut;
  for (int64_t r = 0; r < rows_; ++r) cut.push_back(fresh("row"));
  OperatorDef& split = append_gradient_op(net_, "Split", *like_);
  split.add_input(made.stacked);
  split.mutable_output()->Add(cut.begin(), cut.end());
  *split.add_arg() = make_arg("axis", 0);
  for (const std::string& row : cut) made.each.push_back(emit("Squeeze", {row}, {make_arg("dims", Dims{0})}));
  return made.each;
}

std::string RowBatch::first_row(const std::string& name) {
  const Made& made = made_.at(name);
  if (!made.each.empty()) return made.each[0];
  std::string& row = first_rows_[name];
  if (!row.empty()) return row;
  const std::string cut = emit("Slice", {made.stacked}, {make_arg("starts", Dims{0}), make_arg("ends", Dims{1})});
  return row = emit("Squeeze", {cut}, {make_arg("dims", Dims{0})});
}

// The operator with blobs without rows in place of those of which it reads nothing but the shape.
OperatorDef RowBatch::with_row_of_shapes(const OperatorDef& op, const std::vector<bool>& reads) {
  OperatorDef made = op;
  for (int i = 0; i < op.input_size(); ++i) {
    if (reads[i] || !has_rows(op.input(i))) continue;
    const std::string row = first_row(op.input(i));
    types_[row] = type(op.input(i));
    made.set_input(i, row);
  }
  return made;
}

// Of outputs without elements nothing but the shape is to be made.
bool RowBatch::make_zeros(const OperatorDef& op) {
  for (const std::string& name : op.output())
    if (!name.empty() && (!known(name) || shape(name).size() != 0 || type(name).dtype == DType::string)) return false;
  for (const std::string& name : op.output()) {
    if (name.empty()) continue;
    const Dims dims = dims_of(shape(name).prepend(rows_));
    finish(name,
           emit("ConstantFill", {}, {make_arg("shape", dims), make_arg("dtype", static_cast<int>(type(name).dtype))}));
  }
  return true;
}

// What the operator computes by small ones, each by its rule.
bool RowBatch::use_body(const BoundOp& op) {
  if (!op.spec->composed) return false;
  const GradientProgram program = record_body(*op.spec, op.def, op.args.get());
  for (int o = 0; o < op.def.output_size(); ++o)
    if (!op.def.output(o).empty() && !program.results[o].dense.defined()) return false;
  std::map<int, std::string> names;
  for (size_t s = 0; s < program.slots.size(); ++s)
    if (program.slots[s].kind == GradientProgram::SlotKind::input)
      names[static_cast<int>(s)] = op.def.input(program.slots[s].index);
  for (const GradientProgram::Step& step : program.steps) {
    OperatorDef small;
    small.set_type(step.type);
    if (op.def.has_device_option()) *small.mutable_device_option() = op.def.device_option();
    small.mutable_arg()->Add(step.args.begin(), step.args.end());
    for (const int in : step.inputs) small.add_input(in < 0 ? "" : names.at(in));
    for (const int out : step.outputs) small.add_output(out < 0 ? "" : names[out] = fresh(step.type));
    const BoundOp bound = bind_op(small, "", 0);
    std::vector<TensorType> in, out(small.output_size());
    for (const std::string& name : small.input()) {
      in.push_back(type(name));
      in.back().absent = name.empty();
    }
    for (int o = 0; o < small.output_size(); ++o) out[o].absent = small.output(o).empty();
    infer_types(bound, in, out);
    for (int o = 0; o < small.output_size(); ++o) types_[small.output(o)] = out[o];
    const OperatorDef* outer = like_;
    add(small);
    like_ = outer;
  }
  for (int o = 0; o < op.def.output_size(); ++o) {
    if (op.def.output(o).empty()) continue;
    const std::string& made = names.at(program.results[o].dense.slot);
    finish(op.def.output(o), with_rows(made));
  }
  return true;
}

// A network keeps its states in blobs beside its outputs, which are rows of these: each copy has its own, and the
// gradient of a copy reads that one's.
void RowBatch::name_states(const OperatorDef& op, size_t row, std::map<std::string, std::string>& names) {
  const Argument* states = find_arg(op, "recurrent_states");
  if (!states) return;
  const bool is_gradient = op.type().ends_with("Gradient");
  for (const std::string& state : states->strings()) {
    if (is_gradient && states_.count(state) == 0) continue;  // of one network that serves all rows
    Strings& own = states_[state];
    while (own.size() <= row) own.push_back(fresh(state));
    names[state] = own[row];
  }
}

void RowBatch::repeat_op(const OperatorDef& op) {
  const bool holds_names = op_spec(op.type()).blob_kernel != nullptr;
  std::vector<const Strings*> inputs;
  for (const std::string& name : op.input()) inputs.push_back(has_rows(name) ? &row_by_row(name) : nullptr);
  std::vector<Strings> outputs(op.output_size());
  for (size_t r = 0; r < static_cast<size_t>(rows_); ++r) {
    OperatorDef copy = op;
    NewNames names;
    for (int i = 0; i < op.input_size(); ++i) {
      if (!inputs[i]) continue;
      copy.set_input(i, (*inputs[i])[r]);
      names[op.input(i)] = copy.input(i);
    }
    for (int o = 0; o < op.output_size(); ++o) {
      if (op.output(o).empty()) continue;
      copy.set_output(o, fresh(op.type()));
      outputs[o].push_back(copy.output(o));
      names[op.output(o)] = copy.output(o);
    }
    if (holds_names) {
      name_states(op, r, names);
      rename_in_arguments(copy, names);
    }
    *net_.add_op() = std::move(copy);
  }
  for (int o = 0; o < op.output_size(); ++o)
    if (!op.output(o).empty()) made_[op.output(o)].each = std::move(outputs[o]);
}

void RowBatch::add(const OperatorDef& given) {
  like_ = &given;
  const BoundOp whole = bind_op(given, net_.name(), net_.op_size());
  const OperatorDef op = with_row_of_shapes(given, values_read(whole));
  if (std::ranges::none_of(op.input(), [&](const std::string& name) { return has_rows(name); })) {
    *net_.add_op() = op;
    return;
  }
  const BoundOp bound = bind_op(op, net_.name(), net_.op_size());
  try {
    require(!bound.spec->random, "it draws random numbers, which would be others for each row of a Jacobian");
    for (const std::string& name : op.input())
      require(!has_rows(name) || !known(name) || shape(name).rank() < Shape::kMaxRank,
              "\"{}\", which is {}, has no room for a dimension more", name, type(name).str());
    if (!make_zeros(op) && !rewrite_for_rows(*this, bound) && !use_body(bound)) repeat_op(op);
  } catch (Error& e) {
    add_op_context(e, bound);
    throw;
  }
}

}  // namespace stepnet
