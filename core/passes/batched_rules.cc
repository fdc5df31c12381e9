#include "core/passes/batched_rules.h"

#include <algorithm>
#include <array>
#include <bit>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/operator/in_place.h"
#include "stepnet/arguments.h"
#include "stepnet/error.h"

namespace stepnet {
namespace {

using Dims = RowBatch::Dims;
using Strings = RowBatch::Strings;
using Rule = bool (*)(RowBatch& batch, const BoundOp& op);

Dims dims_of(const Shape& shape) { return {shape.begin(), shape.end()}; }

Dims joined(const Dims& a, const Dims& b) {
  Dims all = a;
  all.insert(all.end(), b.begin(), b.end());
  return all;
}

int64_t number(const OperatorDef& op, const char* name, int64_t otherwise) {
  const Argument* arg = find_arg(op, name);
  return arg ? arg->i() : otherwise;
}

std::vector<Argument> args_without(const OperatorDef& op, const std::set<std::string>& names) {
  std::vector<Argument> args;
  for (const Argument& arg : op.arg())
    if (names.count(arg.name()) == 0) args.push_back(arg);
  return args;
}

bool all_known(const RowBatch& batch, const OperatorDef& op) {
  for (const auto* names : {&op.input(), &op.output()})
    for (const std::string& name : *names)
      if (!name.empty() && !batch.known(name)) return false;
  return true;
}

bool has_only_first_output(const OperatorDef& op) {
  for (int o = 1; o < op.output_size(); ++o)
    if (!op.output(o).empty()) return false;
  return op.output_size() > 0 && !op.output(0).empty();
}

// In front of a shape's dimensions, 1 as often as it takes to have so many.
Dims with_leading_ones(const Shape& shape, int rank) {
  return joined(Dims(static_cast<size_t>(rank - shape.rank()), 1), dims_of(shape));
}

// The output gets a value that has the elements of it, with rows in front, in some shape.
void finish_as(RowBatch& batch, const std::string& output, const std::string& made, const Dims& have) {
  const Dims want = joined({batch.rows()}, dims_of(batch.shape(output)));
  batch.finish(output, batch.reshape(made, joined({batch.rows()}, have), want, batch.type(output).dtype));
}

// --- Elements ------------------------------------------------------------------------------------------------------

// Where the second operand's dimensions stand in the first one's; -1 if the arguments say it otherwise.
int place_of_second(const OperatorDef& op, const Shape& a, const Shape& b) {
  int64_t axis = number(op, "axis", -1);
  const Argument* letter = find_arg(op, "axis_str");
  if (letter && !letter->s().empty()) {
    const Argument* order = find_arg(op, "order");
    const size_t at = (order && !order->s().empty() ? order->s() : std::string("NCHW")).find(letter->s());
    if (axis != -1 || letter->s().size() != 1 || at == std::string::npos) return -1;
    axis = static_cast<int64_t>(at);
  }
  if (axis == -1) return a.rank() - b.rank();
  if (number(op, "broadcast", 0) == 0) return -1;
  return axis >= 0 && axis + b.rank() <= a.rank() ? static_cast<int>(axis) : -1;
}

// An operator whose operands are laid over each other.
bool lay_over(RowBatch& batch, const BoundOp& bound) {
  const OperatorDef& op = bound.def;
  if (op.input_size() != 2 || !all_known(batch, op) || !has_only_first_output(op)) return false;
  // The sum that undoes it takes the same arguments, and reads no more than a shape of one operand.
  for (const int i : {0, 1})
    if (bound.spec->input_spec(i)->shape_only) return false;
  const Shape &a = batch.shape(op.input(0)), &b = batch.shape(op.input(1)), &out = batch.shape(op.output(0));
  std::array<Dims, 2> views;
  const bool by_rule = number(op, "broadcast", 0) != 0 || find_arg(op, "axis") || find_arg(op, "axis_str");
  if (!by_rule) {
    views = {with_leading_ones(a, out.rank()), with_leading_ones(b, out.rank())};
  } else if (b.size() == 1) {
    if (!(a == out)) return false;
    views = {dims_of(a), Dims(static_cast<size_t>(out.rank()), 1)};
  } else {
    const int place = place_of_second(op, a, b);
    if (place < 0 || !(a == out)) return false;
    const Dims behind(static_cast<size_t>(a.rank() - place - b.rank()), 1);
    views = {dims_of(a), joined(Dims(static_cast<size_t>(place), 1), joined(dims_of(b), behind))};
  }
  Strings inputs;
  for (int i = 0; i < 2; ++i) {
    const bool as_it_is = !by_rule && !batch.has_rows(op.input(i));
    inputs.push_back(as_it_is ? op.input(i) : batch.row_view(op.input(i), views[static_cast<size_t>(i)]));
  }
  batch.finish(op.output(0), batch.emit(op.type(), inputs,
                                        args_without(op, {"broadcast", "axis", "axis_str", "order", "equal_shapes"})));
  return true;
}

// Element by element, of operands of one shape.
bool by_element(RowBatch& batch, const BoundOp& bound) {
  const OperatorDef& op = bound.def;
  if (!has_only_first_output(op)) return false;
  Strings inputs;
  const bool one = op.input_size() == 1;
  if (!one && !all_known(batch, op)) return false;
  for (const std::string& name : op.input())
    if (name.empty() || (!one && !(batch.shape(name) == batch.shape(op.output(0))))) return false;
  for (const std::string& name : op.input()) inputs.push_back(batch.with_rows(name));
  batch.finish(op.output(0), batch.emit(op.type(), inputs, args_without(op, {})));
  return true;
}

// --- Shapes --------------------------------------------------------------------------------------------------------

bool reshape(RowBatch& batch, const BoundOp& bound) {
  const OperatorDef& op = bound.def;
  if (op.output(0).empty() || !batch.known(op.output(0)) || !batch.known(op.input(0)) || !batch.has_rows(op.input(0)))
    return false;
  for (int i = 1; i < op.input_size(); ++i)
    if (batch.has_rows(op.input(i))) return false;
  if (!has_only_first_output(op)) return false;
  const std::string made = batch.row_view(op.input(0), dims_of(batch.shape(op.output(0))));
  batch.finish(op.output(0), made);
  return true;
}

// Reshape says what the shape was, too, which is the same for all rows.
bool reshape_with_old_shape(RowBatch& batch, const BoundOp& bound) {
  OperatorDef op = bound.def;
  if (op.output_size() < 2 || op.output(1).empty()) return reshape(batch, bound);
  const std::string old = op.output(1);
  op.mutable_output()->DeleteSubrange(1, 1);
  if (op.output(0).empty() || !batch.known(op.output(0)) || !batch.known(op.input(0)) || !batch.has_rows(op.input(0)) ||
      (op.input_size() > 1 && batch.has_rows(op.input(1))) || !batch.known(old))
    return false;
  const bool is_long = batch.type(old).dtype == DType::int64;
  const Dims was = dims_of(batch.shape(op.input(0)));
  const std::string made =
      batch.emit(is_long ? "GivenTensorInt64Fill" : "GivenTensorIntFill", {},
                 {make_arg("shape", Dims{static_cast<int64_t>(was.size())}), make_arg("values", was)});
  batch.finish(old, batch.repeat(made));
  batch.finish(op.output(0), batch.row_view(op.input(0), dims_of(batch.shape(op.output(0)))));
  return true;
}

bool transpose(RowBatch& batch, const BoundOp& bound) {
  const OperatorDef& op = bound.def;
  if (!all_known(batch, op)) return false;
  const int rank = batch.shape(op.input(0)).rank();
  Dims axes = {0};
  const Argument* given = find_arg(op, "axes");
  for (int i = 0; i < rank; ++i)
    axes.push_back(1 + (given && given->ints_size() > 0 ? canonical_axis(given->ints(i), rank) : rank - 1 - i));
  batch.finish(op.output(0), batch.emit("Transpose", {batch.with_rows(op.input(0))}, {make_arg("axes", axes)}));
  return true;
}

bool concat(RowBatch& batch, const BoundOp& bound) {
  const OperatorDef& op = bound.def;
  const Argument* axis = find_arg(op, "axis");
  if (!has_only_first_output(op) || !all_known(batch, op) || (!axis && find_arg(op, "order"))) return false;
  const int rank = batch.shape(op.output(0)).rank();
  const int at = canonical_axis(axis ? axis->i() : 1, rank);
  Strings inputs;
  for (const std::string& name : op.input()) {
    if (batch.shape(name).rank() + (number(op, "add_axis", 0) != 0 ? 1 : 0) != rank) return false;
    inputs.push_back(batch.with_rows(name));
  }
  std::vector<Argument> args = args_without(op, {"axis", "order"});
  args.push_back(make_arg("axis", at + 1));
  batch.finish(op.output(0), batch.emit("Concat", inputs, args));
  return true;
}

// Columns [begin, end) of a dimension, one of a row.
std::string slice(RowBatch& batch, const std::string& name, int axis, int64_t begin, int64_t end) {
  Dims starts(static_cast<size_t>(axis) + 2, 0), ends(static_cast<size_t>(axis) + 2, -1);
  starts.back() = begin;
  ends.back() = end;
  return batch.emit("Slice", {batch.with_rows(name)}, {make_arg("starts", starts), make_arg("ends", ends)});
}

// Split, and SplitLike and SplitByRows, whose other inputs say how wide the parts are.
bool split(RowBatch& batch, const BoundOp& bound) {
  const OperatorDef& op = bound.def;
  const Argument* axis = find_arg(op, "axis");
  const bool by_inputs = op.type() != "Split";
  if (!batch.has_rows(op.input(0)) || !batch.known(op.input(0)) || number(op, "add_axis", 0) != 0 ||
      (!axis && find_arg(op, "order")))
    return false;
  const Shape& whole = batch.shape(op.input(0));
  const int at = canonical_axis(axis ? axis->i() : 1, whole.rank());
  Dims sizes;
  for (int o = 0; o < op.output_size(); ++o) {
    const std::string& sized = by_inputs ? op.input(o + 1) : op.output(o);
    if (sized.empty() || !batch.known(sized)) return false;
    const int dimension = op.type() == "SplitByRows" ? 0 : at;
    if (batch.shape(sized).rank() <= dimension) return false;
    sizes.push_back(batch.shape(sized)[dimension]);
  }
  if (std::accumulate(sizes.begin(), sizes.end(), int64_t{0}) != whole[at]) return false;
  int64_t begin = 0;
  for (int o = 0; o < op.output_size(); ++o) {
    const int64_t end = begin + sizes[static_cast<size_t>(o)];
    if (!op.output(o).empty()) batch.finish(op.output(o), slice(batch, op.input(0), at, begin, end));
    begin = end;
  }
  return true;
}

// The bounds of Slice, with the rows' before them.
std::optional<std::vector<Argument>> shifted_bounds(const OperatorDef& op) {
  std::vector<Argument> args;
  for (const auto& [name, first] : {std::pair{"starts", 0}, {"ends", -1}}) {
    Dims bounds = {first};
    if (const Argument* given = find_arg(op, name))
      bounds.insert(bounds.end(), given->ints().begin(), given->ints().end());
    args.push_back(make_arg(name, bounds));
  }
  if (args[0].ints_size() != args[1].ints_size()) return std::nullopt;
  return args;
}

bool slice_op(RowBatch& batch, const BoundOp& bound) {
  const OperatorDef& op = bound.def;
  const auto args = shifted_bounds(op);
  if (op.input_size() != 1 || !args) return false;
  batch.finish(op.output(0), batch.emit("Slice", {batch.with_rows(op.input(0))}, *args));
  return true;
}

bool slice_gradient(RowBatch& batch, const BoundOp& bound) {
  const OperatorDef& op = bound.def;
  const auto args = shifted_bounds(op);
  if (op.input_size() != 2 || !args || !batch.has_rows(op.input(1))) return false;
  const std::string like = batch.with_rows(op.input(0));
  batch.finish(op.output(0), batch.emit("SliceGradient", {like, batch.with_rows(op.input(1))}, *args));
  return true;
}

// The value, of one row [dims] after its sizes of 1 are put in, repeated to `to`.
void expand_to(RowBatch& batch, const std::string& from, const Dims& dims, const std::string& output) {
  const Dims to = dims_of(batch.shape(output));
  std::string made = batch.row_view(from, dims);
  if (dims != to) made = batch.emit("Expand", {made}, {make_arg("shape", joined({batch.rows()}, to))});
  batch.finish(output, made);
}

bool expand(RowBatch& batch, const BoundOp& bound) {
  const OperatorDef& op = bound.def;
  if (!batch.known(op.input(0)) || !batch.known(op.output(0)) || (op.input_size() > 1 && batch.has_rows(op.input(1))))
    return false;
  expand_to(batch, op.input(0), with_leading_ones(batch.shape(op.input(0)), batch.shape(op.output(0)).rank()),
            op.output(0));
  return true;
}

// --- Sums ----------------------------------------------------------------------------------------------------------

// Reduces dimensions of `from`, of one row in the sizes `dims`, and gives the result to the output.
void reduce_to(RowBatch& batch, const std::string& type, const std::string& from, const std::vector<bool>& reduced,
               const std::string& output) {
  Dims axes, left;
  const Shape& shape = batch.shape(from);
  for (int i = 0; i < shape.rank(); ++i) {
    if (reduced[static_cast<size_t>(i)])
      axes.push_back(i + 1);
    else
      left.push_back(shape[i]);
  }
  std::string made = batch.with_rows(from);
  if (!axes.empty()) made = batch.emit(type, {made}, {make_arg("axes", axes), make_arg("keepdims", 0)});
  finish_as(batch, output, made, left);
}

std::optional<std::vector<bool>> reduced_axes(const OperatorDef& op, int rank) {
  const Argument* axes = find_arg(op, "axes");
  std::vector<bool> reduced(static_cast<size_t>(rank), !axes || axes->ints_size() == 0);
  if (axes)
    for (const int64_t axis : axes->ints()) reduced[static_cast<size_t>(canonical_axis(axis, rank))] = true;
  return reduced;
}

Dims kept_dims(const Shape& shape, const std::vector<bool>& reduced) {
  Dims dims = dims_of(shape);
  for (size_t i = 0; i < dims.size(); ++i)
    if (reduced[i]) dims[i] = 1;
  return dims;
}

// Reductions over axes, of one element too.
bool reduce(RowBatch& batch, const BoundOp& bound) {
  const OperatorDef& op = bound.def;
  if (!all_known(batch, op)) return false;
  const Shape& x = batch.shape(op.input(0));
  const auto reduced = reduced_axes(op, x.rank());
  if (std::ranges::count(*reduced, true) == 0) return false;
  reduce_to(batch, op.type(), op.input(0), *reduced, op.output(0));
  return true;
}

// dX is dY, or a share of it, wherever X was added up; the values of X are not read.
void spread(RowBatch& batch, const std::string& dy, const Shape& x, const std::vector<bool>& reduced, bool average,
            const std::string& output) {
  const Dims kept = kept_dims(x, reduced);
  int64_t count = 1;
  for (int i = 0; i < x.rank(); ++i)
    if (reduced[static_cast<size_t>(i)]) count *= x[i];
  const Dims to = dims_of(x);
  std::string made = batch.row_view(dy, kept);
  if (average && count > 1) {
    const std::string whole =
        batch.emit("GivenTensorInt64Fill", {}, {make_arg("shape", Dims{1}), make_arg("values", Dims{count})});
    const std::string divisor = batch.emit("Cast", {whole}, {make_arg("to", static_cast<int>(batch.type(dy).dtype))});
    made = batch.emit("Div", {made, divisor});
  }
  if (kept != to) made = batch.emit("Expand", {made}, {make_arg("shape", joined({batch.rows()}, to))});
  batch.finish(output, made);
}

// dY, X.
bool reduce_gradient(RowBatch& batch, const BoundOp& bound) {
  const OperatorDef& op = bound.def;
  if (!all_known(batch, op) || !batch.has_rows(op.input(0))) return false;
  const Shape& x = batch.shape(op.input(1));
  spread(batch, op.input(0), x, *reduced_axes(op, x.rank()), op.type() == "ReduceMeanGradient", op.output(0));
  return true;
}

std::vector<bool> front_or_back(const OperatorDef& op, int rank) {
  const auto count = static_cast<size_t>(number(op, "num_reduce_dim", 1));
  std::vector<bool> reduced(static_cast<size_t>(rank), false);
  const bool front = op.type().starts_with("ReduceFront");
  for (size_t i = 0; i < count; ++i) reduced.at(front ? i : reduced.size() - 1 - i) = true;
  return reduced;
}

bool reduce_front_back(RowBatch& batch, const BoundOp& bound) {
  const OperatorDef& op = bound.def;
  if (op.input_size() != 1 || !all_known(batch, op)) return false;
  const std::string type = "Reduce" + op.type().substr(op.type().starts_with("ReduceFront") ? 11 : 10);
  reduce_to(batch, type, op.input(0), front_or_back(op, batch.shape(op.input(0)).rank()), op.output(0));
  return true;
}

bool reduce_front_back_gradient(RowBatch& batch, const BoundOp& bound) {
  const OperatorDef& op = bound.def;
  if (op.input_size() != 2 || !all_known(batch, op) || !batch.has_rows(op.input(0))) return false;
  const Shape& x = batch.shape(op.input(1));
  const bool average = op.type().ends_with("MeanGradient");
  spread(batch, op.input(0), x, front_or_back(op, x.rank()), average, op.output(0));
  return true;
}

// Of all elements: SumElements, AveragedLoss and their gradients.
bool reduce_all(RowBatch& batch, const BoundOp& bound) {
  const OperatorDef& op = bound.def;
  if (!all_known(batch, op) || batch.shape(op.input(0)).size() == 0) return false;
  const bool average = op.type() == "AveragedLoss" || number(op, "average", 0) != 0;
  reduce_to(batch, average ? "ReduceMean" : "ReduceSum", op.input(0),
            std::vector<bool>(static_cast<size_t>(batch.shape(op.input(0)).rank()), true), op.output(0));
  return true;
}

// X, dY.
bool reduce_all_gradient(RowBatch& batch, const BoundOp& bound) {
  const OperatorDef& op = bound.def;
  if (!all_known(batch, op) || !batch.has_rows(op.input(1)) || batch.shape(op.input(1)).size() != 1) return false;
  const bool average = op.type() == "AveragedLossGradient" || number(op, "average", 0) != 0;
  const Shape& x = batch.shape(op.input(0));
  spread(batch, op.input(1), x, std::vector<bool>(static_cast<size_t>(x.rank()), true), average, op.output(0));
  return true;
}

// Which of the dimensions of `large` the other shape, laid over it, is repeated along.
std::optional<std::vector<bool>> repeated_dims(const OperatorDef& op, const Shape& large, const Shape& small) {
  std::vector<bool> repeated(static_cast<size_t>(large.rank()), true);
  if (small.size() == 1) return repeated;  // whatever its rank
  const int place = small.rank() > large.rank() ? -1 : place_of_second(op, large, small);
  if (place < 0) return std::nullopt;
  for (int i = 0; i < small.rank(); ++i) {
    const int at = place + i;
    const bool repeats = small[i] == 1 && large[at] != 1;
    if (!repeats && small[i] != large[at]) return std::nullopt;
    repeated[static_cast<size_t>(at)] = repeats;
  }
  return repeated;
}

// A is summed to the shape of the output.
bool sum_to(RowBatch& batch, const BoundOp& bound) {
  const OperatorDef& op = bound.def;
  if (!all_known(batch, op) || !batch.has_rows(op.input(0))) return false;
  const auto reduced = repeated_dims(op, batch.shape(op.input(0)), batch.shape(op.output(0)));
  if (!reduced) return false;
  reduce_to(batch, "ReduceSum", op.input(0), *reduced, op.output(0));
  return true;
}

// A, dC: dC is repeated to the shape of A.
bool repeat_to(RowBatch& batch, const BoundOp& bound) {
  const OperatorDef& op = bound.def;
  if (!all_known(batch, op) || !batch.has_rows(op.input(1))) return false;
  const Shape& large = batch.shape(op.input(0));
  const auto repeated = repeated_dims(op, large, batch.shape(op.input(1)));
  if (!repeated) return false;
  spread(batch, op.input(1), large, *repeated, false, op.output(0));
  return true;
}

bool match_shape(RowBatch& batch, const BoundOp& bound) {
  const OperatorDef& op = bound.def;
  if (!all_known(batch, op) || !batch.has_rows(op.input(0))) return false;
  const Shape &from = batch.shape(op.input(0)), &to = batch.shape(op.output(0));
  if (const auto reduced = repeated_dims(op, from, to)) {
    reduce_to(batch, "ReduceSum", op.input(0), *reduced, op.output(0));
  } else if (const auto repeated = repeated_dims(op, to, from)) {
    spread(batch, op.input(0), to, *repeated, false, op.output(0));
  } else {
    return false;
  }
  return true;
}

// --- Products ------------------------------------------------------------------------------------------------------

// A blob as a matrix, and whether its transpose is meant; with rows, one for each.
struct Matrix {
  std::string name;
  int64_t rows = 0, columns = 0;
  bool transposed = false;

  int64_t height() const { return transposed ? columns : rows; }
  int64_t width() const { return transposed ? rows : columns; }
};

Matrix matrix(const RowBatch& batch, const std::string& name, int64_t axis, bool transposed) {
  const Shape& shape = batch.shape(name);
  const int at = canonical_axis(axis, shape.rank(), true);
  return {name, shape.size_between(0, at), shape.size_between(at, shape.rank()), transposed};
}

// [rows, height of a, width of b]
std::string product(RowBatch& batch, const Matrix& a, const Matrix& b) {
  const auto view = [&](const Matrix& m) { return batch.row_view(m.name, {m.rows, m.columns}); };
  if (batch.has_rows(a.name) && !batch.has_rows(b.name) && !a.transposed) {
    const DType dtype = batch.type(a.name).dtype;
    const std::string all = batch.reshape(batch.with_rows(a.name), joined({batch.rows()}, dims_of(batch.shape(a.name))),
                                          {batch.rows() * a.rows, a.columns}, dtype);
    const std::string made = batch.emit("MatMul", {all, view(b)}, {make_arg("trans_b", b.transposed)});
    return batch.reshape(made, {batch.rows() * a.rows, b.width()}, {batch.rows(), a.rows, b.width()}, dtype);
  }
  return batch.emit(
      "BatchMatMul", {view(a), view(b)},
      {make_arg("trans_a", a.transposed), make_arg("trans_b", b.transposed), make_arg("broadcast", true)});
}

bool matmul(RowBatch& batch, const BoundOp& bound) {
  const OperatorDef& op = bound.def;
  if (!all_known(batch, op)) return false;
  const Matrix a = matrix(batch, op.input(0), number(op, "axis_a", 1), number(op, "trans_a", 0) != 0);
  const Matrix b = matrix(batch, op.input(1), number(op, "axis_b", 1), number(op, "trans_b", 0) != 0);
  finish_as(batch, op.output(0), product(batch, a, b), {a.height(), b.width()});
  return true;
}

bool batch_matmul(RowBatch& batch, const BoundOp& bound) {
  const OperatorDef& op = bound.def;
  if (!all_known(batch, op)) return false;
  const Shape& out = batch.shape(op.output(0));
  const bool a_transposed = number(op, "trans_a", 0) != 0;
  if (batch.has_rows(op.input(0)) && !batch.has_rows(op.input(1)) && batch.shape(op.input(1)).rank() == 2 &&
      !a_transposed) {
    const Matrix a = matrix(batch, op.input(0), batch.shape(op.input(0)).rank() - 1, false);
    const Matrix b = matrix(batch, op.input(1), 1, number(op, "trans_b", 0) != 0);
    finish_as(batch, op.output(0), product(batch, a, b), {a.height(), b.width()});
    return true;
  }
  Strings inputs;
  for (const std::string& name : op.input())
    inputs.push_back(batch.row_view(name, with_leading_ones(batch.shape(name), out.rank())));
  std::vector<Argument> args = args_without(op, {"broadcast"});
  args.push_back(make_arg("broadcast", true));
  batch.finish(op.output(0), batch.emit("BatchMatMul", inputs, args));
  return true;
}

// X, W, b.
bool fully_connected(RowBatch& batch, const BoundOp& bound) {
  const OperatorDef& op = bound.def;
  if (!all_known(batch, op)) return false;
  const Matrix x = matrix(batch, op.input(0), number(op, "axis", 1), false);
  const Matrix w = matrix(batch, op.input(1), number(op, "axis_w", 1), op.type() == "FC");
  const Dims sizes = {x.height(), w.width()};
  const bool has_bias = op.input_size() > 2 && !op.input(2).empty();
  std::string made;
  if (batch.has_rows(x.name) || batch.has_rows(w.name)) {
    made = product(batch, x, w);
  } else {
    const std::string view = batch.row_view(x.name, {x.rows, x.columns});
    made =
        batch.emit("MatMul", {view, batch.row_view(w.name, {w.rows, w.columns})}, {make_arg("trans_b", w.transposed)});
  }
  if (has_bias) made = batch.emit("Add", {made, batch.row_view(op.input(2), {1, w.width()})});
  finish_as(batch, op.output(0), made, sizes);
  return true;
}

// X, W, dY to dW, db, dX.
bool fully_connected_gradient(RowBatch& batch, const BoundOp& bound) {
  const OperatorDef& op = bound.def;
  if (!all_known(batch, op)) return false;
  const bool plain = op.type() == "FCGradient";
  const auto wants = [&](int o) { return o < op.output_size() && !op.output(o).empty(); };
  const auto operand = [&](const Matrix& m, bool transposed) { return Matrix{m.name, m.rows, m.columns, transposed}; };
  const Matrix x = matrix(batch, op.input(0), number(op, "axis", 1), false);
  const Matrix w = matrix(batch, op.input(1), number(op, "axis_w", 1), false);
  const Matrix dy{op.input(2), x.rows, plain ? w.rows : w.columns, false};
  if (batch.shape(dy.name).size() != dy.rows * dy.columns) return false;
  const auto rows_in = [&](const Matrix& a, const Matrix& b) {
    return batch.has_rows(a.name) || batch.has_rows(b.name);
  };
  if ((wants(0) && !rows_in(dy, x)) || (wants(1) && !batch.has_rows(dy.name)) || (wants(2) && !rows_in(dy, w)))
    return false;
  if (wants(0)) {
    const std::string dw = plain ? product(batch, operand(dy, true), x) : product(batch, operand(x, true), dy);
    finish_as(batch, op.output(0), dw, {w.rows, w.columns});
  }
  if (wants(1)) {
    const std::string view = batch.row_view(dy.name, {dy.rows, dy.columns});
    const std::string db = batch.emit("ReduceSum", {view}, {make_arg("axes", Dims{1}), make_arg("keepdims", 0)});
    finish_as(batch, op.output(1), db, {dy.columns});
  }
  if (wants(2)) finish_as(batch, op.output(2), product(batch, dy, operand(w, !plain)), {x.rows, x.columns});
  return true;
}

// --- Tables --------------------------------------------------------------------------------------------------------

bool gather(RowBatch& batch, const BoundOp& bound) {
  const OperatorDef& op = bound.def;
  if (batch.has_rows(op.input(1)) || !batch.known(op.input(0)) || number(op, "match_outer", 0) != 0) return false;
  const int axis = canonical_axis(number(op, "axis", 0), batch.shape(op.input(0)).rank());
  batch.finish(op.output(0),
               batch.emit("Gather", {batch.with_rows(op.input(0)), op.input(1)}, {make_arg("axis", axis + 1)}));
  return true;
}

// Indices, values. What is added to a row is that of all rows of the batch, side by side.
bool rows_to_dense(RowBatch& batch, const BoundOp& bound) {
  const OperatorDef& op = bound.def;
  if (!all_known(batch, op) || batch.has_rows(op.input(0)) || !batch.has_rows(op.input(1))) return false;
  const Shape &indices = batch.shape(op.input(0)), &out = batch.shape(op.output(0));
  const int64_t row = out.size_between(1, out.rank()), n = batch.rows();
  const std::string values = batch.row_view(op.input(1), {indices.size(), row});
  const std::string beside = batch.emit("Transpose", {values}, {make_arg("axes", Dims{1, 0, 2})});
  const std::string places = batch.row_view(op.input(0), {indices.size()});
  const std::string sums = batch.emit("SparseToDense", {places, beside}, {make_arg("output_first_dim", out[0])});
  const std::string made = batch.emit("Transpose", {sums}, {make_arg("axes", Dims{1, 0, 2})});
  batch.finish(op.output(0),
               batch.reshape(made, {n, out[0], row}, joined({n}, dims_of(out)), batch.type(op.output(0)).dtype));
  return true;
}

// --- Operators that say what their rows are ------------------------------------------------------------------------

// That with the first dimension of these inputs so many times as long, so is that of all outputs, and rows are rows.
bool grows(const RowBatch& batch, const BoundOp& op, const std::vector<bool>& with, int64_t times) {
  std::vector<TensorType> in, out(op.def.output_size()), small;
  for (int i = 0; i < op.def.input_size(); ++i) {
    TensorType type = batch.type(op.def.input(i));
    type.absent = op.def.input(i).empty();
    type.value = nullptr;
    if (with[i]) type.shape = type.shape.with(0, type.shape[0] * times);
    in.push_back(type);
  }
  for (int o = 0; o < op.def.output_size(); ++o) {
    out[o].absent = op.def.output(o).empty();
    small.push_back(batch.type(op.def.output(o)));
    small.back().absent = out[o].absent;
  }
  try {
    infer_types(op, in, out);
    if (op.spec->rowwise(op.args.get(), ShapeCall(in, out)) < 1) return false;
  } catch (const Error&) {
    return false;
  }
  for (size_t o = 0; o < out.size(); ++o) {
    if (out[o].absent) continue;
    const Shape& shape = small[o].shape;
    if (!out[o].known || shape.rank() < 1 || !(out[o].shape == shape.with(0, shape[0] * times))) return false;
  }
  return true;
}

// Which inputs have a row for each row of the outputs; none if that is not clear. As many as possible: to repeat one
// that serves all rows costs time, but one that is read row by row and is not repeated would be read beyond its end.
std::optional<std::vector<bool>> inputs_by_rows(const RowBatch& batch, const BoundOp& op) {
  const int count = op.def.input_size();
  if (count > 8) return std::nullopt;
  std::vector<unsigned> sets(1U << static_cast<unsigned>(count));
  std::iota(sets.begin(), sets.end(), 0U);
  std::ranges::stable_sort(sets, {}, [](unsigned set) { return -std::popcount(set); });
  for (const unsigned set : sets) {
    std::vector<bool> with;
    bool possible = true;
    for (int i = 0; i < count; ++i) {
      with.push_back(((set >> static_cast<unsigned>(i)) & 1U) != 0);
      const std::string& name = op.def.input(i);
      if (with.back() && (name.empty() || batch.shape(name).rank() < 1)) possible = false;
      if (!with.back() && batch.has_rows(name)) possible = false;
    }
    const auto fits = [&](int64_t times) { return grows(batch, op, with, times); };
    if (possible && fits(1) && fits(batch.rows()) && fits(7) && fits(11)) return with;
  }
  return std::nullopt;
}

// Whether all outputs have a row for each of the operator's rows: of gradients that also add over rows, dX alone has.
// The others are like a parameter, and with more rows of that there are shapes that fit, but other sums.
bool makes_rows(const BoundOp& op) {
  if (!op.spec->sums_rows) return true;
  for (int o = 0; o < op.def.output_size(); ++o) {
    const ParamSpec* output = op.spec->output_spec(o);
    if (!op.def.output(o).empty() && !(output && output->name == "dX")) return false;
  }
  return true;
}

// Rows of the batch behind one another, as one operator's rows.
bool by_rows(RowBatch& batch, const BoundOp& bound) {
  const OperatorDef& op = bound.def;
  if (!bound.spec->rowwise || bound.spec->blob_kernel || !all_known(batch, op) || !makes_rows(bound)) return false;
  const auto with = inputs_by_rows(batch, bound);
  if (!with) return false;
  OperatorDef made = op;
  const auto behind = [&](const Shape& shape) { return dims_of(shape.with(0, shape[0] * batch.rows())); };
  for (int i = 0; i < op.input_size(); ++i) {
    if (!(*with)[static_cast<size_t>(i)]) continue;
    const TensorType& type = batch.type(op.input(i));
    made.set_input(i, batch.reshape(batch.with_rows(op.input(i)), joined({batch.rows()}, dims_of(type.shape)),
                                    behind(type.shape), type.dtype));
  }
  for (std::string& name : *made.mutable_output())
    if (!name.empty()) name = batch.fresh(op.type());
  batch.emit_op(made);
  for (int o = 0; o < op.output_size(); ++o) {
    if (op.output(o).empty()) continue;
    const TensorType& type = batch.type(op.output(o));
    batch.finish(op.output(o), batch.reshape(made.output(o), behind(type.shape),
                                             joined({batch.rows()}, dims_of(type.shape)), type.dtype));
  }
  return true;
}

const std::map<std::string, Rule>& rules() {
  static const std::map<std::string, Rule> all = {
      {"Reshape", reshape_with_old_shape},
      {"Transpose", transpose},
      {"Concat", concat},
      {"Split", split},
      {"SplitLike", split},
      {"SplitByRows", split},
      {"Slice", slice_op},
      {"SliceGradient", slice_gradient},
      {"Expand", expand},
      {"ReduceSum", reduce},
      {"ReduceMean", reduce},
      {"ReduceSumGradient", reduce_gradient},
      {"ReduceMeanGradient", reduce_gradient},
      {"ReduceFrontSum", reduce_front_back},
      {"ReduceFrontMean", reduce_front_back},
      {"ReduceBackSum", reduce_front_back},
      {"ReduceBackMean", reduce_front_back},
      {"ReduceFrontSumGradient", reduce_front_back_gradient},
      {"ReduceFrontMeanGradient", reduce_front_back_gradient},
      {"ReduceBackSumGradient", reduce_front_back_gradient},
      {"ReduceBackMeanGradient", reduce_front_back_gradient},
      {"SumElements", reduce_all},
      {"AveragedLoss", reduce_all},
      {"SumElementsGradient", reduce_all_gradient},
      {"AveragedLossGradient", reduce_all_gradient},
      {"SumReduceLike", sum_to},
      {"ExpandGradient", sum_to},
      {"SumReduceLikeGradient", repeat_to},
      {"MatchShape", match_shape},
      {"MatMul", matmul},
      {"BatchMatMul", batch_matmul},
      {"FC", fully_connected},
      {"FCTransposed", fully_connected},
      {"FCGradient", fully_connected_gradient},
      {"FCTransposedGradient", fully_connected_gradient},
      {"Gather", gather},
      {"SparseToDense", rows_to_dense},
  };
  return all;
}

}  // namespace

bool rewrite_for_rows(RowBatch& batch, const BoundOp& op) {
  if (const auto rule = rules().find(op.def.type()); rule != rules().end() && rule->second(batch, op)) return true;
  if (op.spec->blob_kernel) return false;
  if (op.spec->reshapes && reshape(batch, op)) return true;
  if (lays_operands_over(*op.spec) && lay_over(batch, op)) return true;
  if (op.spec->elementwise && by_element(batch, op)) return true;
  return by_rows(batch, op);
}

}  // namespace stepnet
