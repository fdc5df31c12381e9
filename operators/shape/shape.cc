// Shape: the sizes of X's dimensions, or of those in `axes`. Size: the number of X's elements. IsEmpty: whether it has
// none. Of X only the shape is read. No derivative: the results do not depend on X's values.

#include "operators/shape/shape.h"

#include "stepnet/operator.h"

namespace stepnet::cpu_shape {
namespace {

void infer(const ShapeArgs& args, ShapeCall& call) {
  if (!call.known(0)) return;
  const int rank = call.shape(0).rank();
  for (const int64_t axis : args.axes) canonical_axis(axis, rank);
  call.set(0, DType::int64, Shape{args.axes.empty() ? rank : static_cast<int64_t>(args.axes.size())});
}

void write_shape(const ShapeArgs& args, Call& call) {
  const Shape& x = call.in(0).shape();
  const Out<int64_t> y = call.out_span<int64_t>(0);
  for (size_t i = 0; i < y.size(); ++i)
    y[i] = args.axes.empty() ? x[static_cast<int>(i)] : x[canonical_axis(args.axes[i], x.rank())];
}

void infer_size(const NoArgs&, ShapeCall& call) { call.set(0, DType::int64, Shape{}); }

void write_size(Call& call) { call.out_span<int64_t>(0)[0] = call.in(0).size(); }

void infer_is_empty(const NoArgs&, ShapeCall& call) { call.set(0, DType::boolean, Shape{}); }

void write_is_empty(Call& call) { call.out_span<bool>(0)[0] = call.in(0).size() == 0; }

REGISTER(shape) {
  return op<ShapeArgs>("Shape")
      .doc("The sizes of a tensor's dimensions.")
      .arg("axes", &ShapeArgs::axes, {}, "dimensions whose sizes are asked for, in this order; all if absent")
      .input("X", "any tensor; its values are not read")
      .any_type()
      .shape_only()
      .output("shape", "the sizes, one dimension, int64")
      .types({DType::int64})
      .shape(infer)
      .cpu(write_shape)
      .example({"X=2,3"})
      .example({"X=2,3,0"}, {"axes=2,-3"})
      .stop_gradient();
}

REGISTER(size) {
  return op("Size")
      .doc("The number of a tensor's elements.")
      .input("X", "any tensor; its values are not read")
      .any_type()
      .shape_only()
      .output("output", "one int64")
      .types({DType::int64})
      .shape(infer_size)
      .cpu(write_size)
      .example({"X=2,3"})
      .example({"X="})
      .stop_gradient();
}

REGISTER(is_empty) {
  return op("IsEmpty")
      .doc("Whether a tensor has no elements.")
      .input("tensor", "any tensor; its values are not read")
      .any_type()
      .shape_only()
      .output("is_empty", "one bool")
      .types({DType::boolean})
      .shape(infer_is_empty)
      .cpu(write_is_empty)
      .example({"tensor=2,3"})
      .example({"tensor=2,0"})
      .stop_gradient();
}

}  // namespace
}  // namespace stepnet::cpu_shape
