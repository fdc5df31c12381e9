// Concat: Y = the X's one after another along a dimension, or, with add_axis, stacked along a new one.
// SplitLike: its inverse by the shapes of the parts.
//
// dX_i = output i of Split(dY, split_info), or, where only some are wanted or the net has no split_info, of
// SplitLike(dY, X...), which reads shapes only.
#include "operators/shape/concat.h"

#include <algorithm>

#include "core/operator/dry_run.h"
#include "operators/loops/copy_elements.h"
#include "operators/loops/segment_lengths.h"

namespace stepnet {

int concat_axis(const ConcatArgs& args, int rank, bool new_axis) {
  require(!args.axis || !args.order, "arguments \"axis\" and \"order\" exclude each other");
  require(!args.add_axis || !args.order, "argument \"add_axis\" needs \"axis\", not \"order\"");
  if (args.order) {
    require(*args.order == "NCHW" || *args.order == "NHWC", "argument \"order\" must be NCHW or NHWC, but is \"{}\"",
            *args.order);
    return canonical_axis(*args.order == "NCHW" ? 1 : 3, rank);
  }
  // A new dimension may also come last, so a negative axis counts from one place further.
  return canonical_axis(args.axis.value_or(1), new_axis ? rank + 1 : rank);
}

std::vector<Argument> axis_args(const Formula& f) {
  std::vector<Argument> kept;
  for (const Argument& arg : f.forward_args())
    if (arg.name() == "axis" || arg.name() == "order" || arg.name() == "add_axis") kept.push_back(arg);
  return kept;
}

namespace {

BlockCopy contiguous_part(const Tensor& whole, int axis, int64_t size) {
  BlockCopy plan;
  plan.blocks = whole.shape().size_between(0, axis);
  plan.count = size * whole.shape().size_between(axis + 1, whole.rank());
  return plan;
}

}  // namespace

void put_part(const Tensor& part, Tensor& whole, int axis, int64_t begin, int64_t size) {
  BlockCopy plan = contiguous_part(whole, axis, size);
  plan.from_stride = plan.count;
  plan.to_stride = whole.shape().size_between(axis, whole.rank());
  plan.to_at = begin * whole.shape().size_between(axis + 1, whole.rank());
  copy_blocks(part, whole, plan);
}

void take_part(const Tensor& whole, Tensor& part, int axis, int64_t begin, int64_t size) {
  BlockCopy plan = contiguous_part(whole, axis, size);
  plan.from_stride = whole.shape().size_between(axis, whole.rank());
  plan.from_at = begin * whole.shape().size_between(axis + 1, whole.rank());
  plan.to_stride = plan.count;
  copy_blocks(whole, part, plan);
}

namespace {

Shape insert_dimension(const Shape& shape, int at, int64_t size) {
  Shape wider;
  for (int i = 0; i < at; ++i) wider.push_back(shape[i]);
  wider.push_back(size);
  for (int i = at; i < shape.rank(); ++i) wider.push_back(shape[i]);
  return wider;
}

// Checks inputs [first, call.inputs()) against the first of them and returns the concatenation's shape.
Shape joined_shape(const ConcatArgs& args, const ShapeCall& call, int first) {
  const Shape& model = call.shape(first);
  const int axis = concat_axis(args, model.rank(), args.add_axis);
  int64_t total = 0;
  for (int i = first; i < call.inputs(); ++i) {
    const Shape& x = call.shape(i);
    require(call.dtype(i) == call.dtype(first), "parts must have one type, but part {} is {} and part 0 is {}",
            i - first, dtype_name(call.dtype(i)), dtype_name(call.dtype(first)));
    const bool fits = args.add_axis ? x == model : x.rank() == model.rank() && x.with(axis, model[axis]) == model;
    require(fits, "part {} has shape {}, which does not fit part 0 of shape {} along dimension {}", i - first, x, model,
            axis);
    require(!__builtin_add_overflow(total, part_size(args, x, axis), &total), "the parts are too large");
  }
  return args.add_axis ? insert_dimension(model, axis, total) : Shape(model.with(axis, total).dims());
}

void shape(const ConcatArgs& args, ShapeCall& call) {
  call.set(1, DType::int32, Shape{call.inputs()});
  if (call.all_known()) call.set(0, call.dtype(0), joined_shape(args, call, 0));
}

void concat(const ConcatArgs& args, Call& call) {
  const int axis = concat_axis(args, call.in(0).rank(), args.add_axis);
  int64_t at = 0;
  for (int i = 0; i < call.inputs(); ++i) {
    const int64_t size = part_size(args, call.in(i).shape(), axis);
    if (call.wants(0)) put_part(call.in(i), call.out(0), axis, at, size);
    if (call.wants(1)) call.out_span<int32_t>(1)[i] = to_int32(size, "the size of a part,");
    at += size;
  }
}

void know_sizes(const ConcatArgs& args, Call& call) {
  if (!know_output(call, 1)) return;
  const int axis = concat_axis(args, call.in(0).rank(), args.add_axis);
  for (int i = 0; i < call.inputs(); ++i)
    call.out_span<int32_t>(1)[i] = to_int32(part_size(args, call.in(i).shape(), axis), "the size of a part,");
}

// Dimensions before the axis are rows; split_info has none.
int leading_dimensions(const ConcatArgs& args, const ShapeCall& call) {
  return call.known(0) && !call.wants(1) ? concat_axis(args, call.shape(0).rank(), args.add_axis) : 0;
}

// Of the inputs from `first` on, in the concatenation.
std::vector<int64_t> first_columns(const ConcatArgs& args, const ShapeCall& call, int first) {
  if (!call.all_known() || call.inputs() <= first || args.add_axis) return {};
  const int rank = call.shape(first).rank();
  if (rank == 0 || concat_axis(args, rank) != rank - 1) return {};
  std::vector<int64_t> columns = {0};
  for (int i = first; i < call.inputs(); ++i) columns.push_back(columns.back() + call.shape(i)[rank - 1]);
  columns.pop_back();
  return columns;
}

void split_like_shape(const ConcatArgs& args, ShapeCall& call) {
  for (int i = 1; i < call.inputs(); ++i) call.set_like(i - 1, i);
  if (!call.all_known() || call.inputs() < 2) return;
  const Shape joined = joined_shape(args, call, 1);
  require(joined == call.shape(0), "the parts make shape {}, but the input has shape {}", joined, call.shape(0));
  require(call.dtype(0) == call.dtype(1), "parts of {} cannot be taken from {}", dtype_name(call.dtype(1)),
          dtype_name(call.dtype(0)));
}

void split_like(const ConcatArgs& args, Call& call) {
  const int axis = concat_axis(args, call.in(1).rank(), args.add_axis);
  int64_t at = 0;
  for (int i = 1; i < call.inputs(); ++i) {
    const int64_t size = part_size(args, call.in(i).shape(), axis);
    if (call.wants(i - 1)) take_part(call.in(0), call.out(i - 1), axis, at, size);
    at += size;
  }
}

// The public form, Split, has all of its outputs; SplitLike computes those that are wanted.
std::vector<Gradient> gradients(Formula& f) {
  std::vector<bool> wanted(f.inputs());
  for (int i = 0; i < f.inputs(); ++i) wanted[i] = f.wants_at(i);
  const Value dy = f.dy("concat_result");
  const Value info = f.y_at(1);
  std::vector<Value> parts;
  if (info.defined() && std::ranges::find(wanted, false) == wanted.end()) {
    parts = f.ops("Split", {dy, info}, axis_args(f), wanted);
  } else {
    std::vector<Value> inputs = {dy};
    for (int i = 0; i < f.inputs(); ++i) inputs.push_back(f.x_at(i));
    parts = f.ops("SplitLike", inputs, axis_args(f), wanted);
  }
  return {parts.begin(), parts.end()};
}

REGISTER(concat) {
  auto spec = op<ConcatArgs>("Concat");
  declare_axis(spec);
  return spec.doc("Joins tensors along a dimension. They agree in all other dimensions.")
      .accepts("split", "Split's, whose gradient carries it: the inputs' own sizes count")
      .input("inputs", "tensors of one type")
      .any_type()
      .variadic()
      .output("concat_result", "the joined tensor")
      .any_type()
      .output("split_info", "the size of each input along the dimension, int32")
      .types({DType::int32})
      .optional()
      .uses({})
      .shape(shape)
      .rowwise(leading_dimensions)
      .role(Role::concat)
      .puts_columns([](const ConcatArgs& a, const ShapeCall& c) { return first_columns(a, c, 0); })
      .cpu(concat)
      .known_outputs(know_sizes)
      .example({"inputs0=2,3", "inputs1=2,1"})
      .example({"inputs0=2,3", "inputs1=1,3", "inputs2=0,3"}, {"axis=0"})
      .example({"inputs0=2,2", "inputs1=2,2"}, {"axis=-1", "add_axis=1"})
      .example({"inputs0=2,1,1,2", "inputs1=2,3,1,2"}, {"order=NCHW"})
      .example({"inputs0=2,3"}, {"axis=-1"})
      .whole_derivative(gradients);
}

REGISTER(split_like) {
  auto spec = op<ConcatArgs>("SplitLike");
  spec.own();
  declare_axis(spec);
  return spec.doc("The inverse of Concat: cuts a tensor into parts of the shapes of others.")
      .input("input", "the joined tensor")
      .any_type()
      .input("parts", "tensors of the parts' shapes; their values are not read")
      .any_type()
      .shape_only()
      .variadic()
      .output("outputs", "the parts")
      .optional()
      .any_type()
      .variadic()
      .shape(split_like_shape)
      .takes_columns([](const ConcatArgs& a, const ShapeCall& c) { return first_columns(a, c, 1); })
      .cpu(split_like)
      .example({"input=2,5", "parts0=2,2", "parts1=2,3"}, {}, 2)
      .example({"input=2,2,3", "parts0=2,3", "parts1=2,3"}, {"axis=1", "add_axis=1"}, 2)
      .example({"input=3,2", "parts0=0,2", "parts1=3,2"}, {"axis=0"}, 2)
      .derivative("input",
                  [](Formula& f) -> Gradient {
                    std::vector<Value> parts;
                    for (int i = 0; i < f.outputs(); ++i)
                      parts.push_back(f.has_dy_at(i) ? f.dy_at(i) : f.op("ZerosLike", {f.x_at(i + 1)}));
                    return f.op("Concat", parts, axis_args(f));
                  })
      .variadic_derivative("parts", [](Formula&, int) { return Gradient::none(); });
}

}  // namespace
}  // namespace stepnet
