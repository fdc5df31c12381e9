// Split: cuts X along a dimension into Y_0, Y_1, ...: by the sizes given, or into equal parts.
//
// dX = Concat(dY_0, dY_1, ...). A part without a gradient counts as zeros of its shape. Backward reads nothing.

#include "operators/shape/split.h"

#include <numeric>

#include "operators/loops/fill_shape.h"
#include "operators/shape/concat.h"

namespace stepnet {
namespace {

std::vector<int64_t> equal_sizes(int64_t size, int parts) {
  require(size % parts == 0, "size {} cannot be split into {} equal parts", size, parts);
  return std::vector<int64_t>(parts, size / parts);
}

void check_sizes(const SplitArgs& args, const std::vector<int64_t>& sizes, int64_t total, int parts) {
  require(static_cast<int>(sizes.size()) == parts, "{} sizes are given for {} outputs", sizes.size(), parts);
  int64_t sum = 0;
  for (const int64_t size : sizes) {
    require(size >= 0, "the size of a part is {}, which is negative", size);
    require(!args.add_axis || size == 1, "with add_axis each part has size 1, but one has {}", size);
    require(size <= total - sum, "the parts' sizes exceed the input's size {}", total);
    sum += size;
  }
  require(sum == total, "the parts' sizes add up to {}, but the input has {}", sum, total);
}

}  // namespace

std::vector<int64_t> part_sizes(const SplitArgs& args, const Shape& x, const Tensor* given, int parts) {
  const int64_t total = x[concat_axis(args, x.rank())];
  require(!given || args.split.empty(), "the sizes are given by the argument \"split\" and by an input");
  std::vector<int64_t> sizes = given                ? read_integers(*given, "the sizes of the parts")
                               : args.split.empty() ? equal_sizes(total, parts)
                                                    : args.split;
  check_sizes(args, sizes, total, parts);
  return sizes;
}

namespace {

Shape without(const Shape& shape, int axis) {
  Shape narrower;
  for (int i = 0; i < shape.rank(); ++i)
    if (i != axis) narrower.push_back(shape[i]);
  return narrower;
}

void shape(const SplitArgs& args, ShapeCall& call) {
  if (!call.known(0) || (call.has(1) && !call.value(1))) return;
  const Shape& x = call.shape(0);
  const int axis = concat_axis(args, x.rank());
  const std::vector<int64_t> sizes = part_sizes(args, x, call.value(1), call.outputs());
  for (int i = 0; i < call.outputs(); ++i)
    call.set(i, call.dtype(0), args.add_axis ? without(x, axis) : x.with(axis, sizes[i]));
}

void split(const SplitArgs& args, Call& call) {
  const Tensor& x = call.in(0);
  const int axis = concat_axis(args, x.rank());
  std::vector<int64_t> given;  // the shape function has checked what the argument says
  if (call.has(1)) given = part_sizes(args, x.shape(), &call.in(1), call.outputs());
  const std::vector<int64_t>& sizes = call.has(1) ? given : args.split;
  int64_t at = 0;
  for (int i = 0; i < call.outputs(); ++i) {
    const int64_t size = sizes.empty() ? x.dim(axis) / call.outputs() : sizes[i];
    if (call.wants(i)) take_part(x, call.out(i), axis, at, size);
    at += size;
  }
}

int leading_dimensions(const SplitArgs& args, const ShapeCall& call) {
  return call.known(0) ? concat_axis(args, call.shape(0).rank()) : 0;
}

std::vector<int64_t> first_columns(const SplitArgs& args, const ShapeCall& call) {
  if (!call.known(0) || call.has(1) || args.add_axis) return {};
  const Shape& x = call.shape(0);
  if (concat_axis(args, x.rank()) != x.rank() - 1) return {};
  std::vector<int64_t> columns = {0};
  for (const int64_t size : part_sizes(args, x, nullptr, call.outputs())) columns.push_back(columns.back() + size);
  columns.pop_back();
  return columns;
}

Gradient gradient(Formula& f) {
  std::vector<Value> parts;
  for (int i = 0; i < f.outputs(); ++i) parts.push_back(f.has_dy_at(i) ? f.dy_at(i) : f.op("ZerosLike", {f.y_at(i)}));
  return f.ops("Concat", parts, axis_args(f), {true, false})[0];
}

REGISTER(split) {
  auto spec = op<SplitArgs>("Split");
  declare_axis(spec);
  return spec.doc("Cuts a tensor along a dimension into one part per output.")
      .arg("split", &SplitArgs::split, {}, "the size of each part; equal parts if neither this nor the input is given")
      .input("input", "a tensor of any type")
      .any_type()
      .input("split", "the size of each part, one dimension, instead of the argument")
      .types({DType::int32, DType::int64})
      .optional()
      .output("outputs", "the parts in order")
      .any_type()
      .variadic()
      .shape(shape)
      .rowwise(leading_dimensions)
      .takes_columns(first_columns)
      .cpu(split)
      .example({"input=2,4"}, {}, 2)
      .example({"input=2,5"}, {"split=2,0,3"}, 3)
      .example({"input=5,2", "split=int32,2:3,2"}, {"axis=0"}, 2)
      .example({"input=2,3,2"}, {"axis=1", "add_axis=1"}, 3)
      .example({"input=1,2"}, {"axis=-1"}, 1)
      .derivative("input", gradient);
}

// SplitByRows: cuts X along a dimension into parts Y_0, Y_1, ..., as wide as the matrices W_0, W_1, ... have rows: what
// one product with all of these below each other gives, into what the products with each of them give.
//
// dX = Concat(dY_0, dY_1, ...). A part without a gradient counts as zeros of its shape. Backward reads nothing.

int64_t rows_of_matrix(const Shape& w) {
  require(w.rank() >= 1, "a matrix whose rows say how wide a part is has shape {}", w);
  return w[0];
}

void by_rows_shape(const ConcatArgs& args, ShapeCall& c) {
  require(c.outputs() == c.inputs() - 1, "it has {} outputs for {} matrices", c.outputs(), c.inputs() - 1);
  if (!c.known(0)) return;
  const Shape& x = c.shape(0);
  const int axis = concat_axis(args, x.rank());
  int64_t sum = 0;
  bool known = true;
  for (int i = 1; i < c.inputs(); ++i) {
    if (!c.known(i)) {
      known = false;
      continue;
    }
    const int64_t rows = rows_of_matrix(c.shape(i));
    require(rows <= x[axis] - sum, "the matrices have more rows than the {} of X's dimension {}", x[axis], axis);
    sum += rows;
    c.set(i - 1, c.dtype(0), x.with(axis, rows));
  }
  require(!known || sum == x[axis], "the matrices have {} rows, but X's dimension {} has size {}", sum, axis, x[axis]);
}

void split_by_rows(const ConcatArgs& args, Call& c) {
  const int axis = concat_axis(args, c.in(0).rank());
  int64_t at = 0;
  for (int i = 1; i < c.inputs(); ++i) {
    const int64_t size = c.in(i).dim(0);
    if (c.wants(i - 1)) take_part(c.in(0), c.out(i - 1), axis, at, size);
    at += size;
  }
}

int by_rows_leading(const ConcatArgs& args, const ShapeCall& c) {
  return c.known(0) ? concat_axis(args, c.shape(0).rank()) : 0;
}

std::vector<int64_t> by_rows_columns(const ConcatArgs& args, const ShapeCall& c) {
  if (!c.all_known() || concat_axis(args, c.shape(0).rank()) != c.shape(0).rank() - 1) return {};
  std::vector<int64_t> columns = {0};
  for (int i = 1; i < c.inputs(); ++i) columns.push_back(columns.back() + c.shape(i)[0]);
  columns.pop_back();
  return columns;
}

Gradient by_rows_gradient(Formula& f) {
  std::vector<Value> parts;
  for (int i = 0; i < f.outputs(); ++i) parts.push_back(f.has_dy_at(i) ? f.dy_at(i) : f.op("ZerosLike", {f.y_at(i)}));
  return f.op("Concat", parts, axis_args(f));
}

REGISTER(split_by_rows) {
  auto spec = op<ConcatArgs>("SplitByRows");
  spec.own();
  declare_axis(spec);
  return spec.doc("Cuts a tensor along a dimension into parts as wide as matrices have rows.")
      .input("X", "a tensor of any type")
      .any_type()
      .input("W", "a matrix for each part; their values are not read")
      .any_type()
      .shape_only()
      .variadic()
      .output("Y", "the parts in order")
      .any_type()
      .variadic()
      .shape(by_rows_shape)
      .rowwise(by_rows_leading)
      .takes_columns(by_rows_columns)
      .cpu(split_by_rows)
      .example({"X=2,5", "W0=2,3", "W1=3,1"}, {}, 2)
      .example({"X=3,2", "W0=1,2", "W1=2"}, {"axis=0"}, 2)
      .derivative("X", by_rows_gradient)
      .variadic_derivative("W", [](Formula&, int) { return Gradient::none(); });
}

}  // namespace
}  // namespace stepnet
