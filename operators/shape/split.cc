// Split: cuts X along a dimension into Y_0, Y_1, ...: by the sizes given, or into equal parts.
//
// dX = Concat(dY_0, dY_1, ...). A part without a gradient counts as zeros of its shape. Backward reads nothing.

#include "operators/shape/split.h"

#include <numeric>

#include "operators/loops/fill_shape.h"

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

}  // namespace
}  // namespace stepnet
