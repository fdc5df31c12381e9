// Slice: Y = X[start_0 : end_0, start_1 : end_1, ...], at most one dimension being really cut.
//
// A negative value v means size + 1 + v, so that -1 is the end; values past the end are the end. Dimensions after the
// listed ones are taken whole.
// dX = SliceGradient(X, dY), or (X, starts, ends, dY): dY at its place, zeros elsewhere. Backward reads X's shape, dY,
// and the bounds.

#include "operators/shape/slice.h"

#include <algorithm>

#include "operators/loops/copy_elements.h"
#include "operators/loops/fill_shape.h"

namespace stepnet {
namespace {

int64_t resolve(int64_t bound, int64_t size, const char* what, size_t axis) {
  const int64_t at = bound < 0 ? size + (bound + 1) : std::min(bound, size);
  require(at >= 0, "the {} {} of dimension {} lies before its beginning; the size is {}", what, bound, axis, size);
  return at;
}

}  // namespace

SliceRange cut_range(const Shape& x, const std::vector<int64_t>& starts, const std::vector<int64_t>& ends) {
  require(starts.size() == ends.size(), "there are {} starts and {} ends", starts.size(), ends.size());
  require(static_cast<int>(starts.size()) <= x.rank(), "{} ranges are given for shape {}", starts.size(), x);
  SliceRange range{0, 0, x.rank() > 0 ? x[0] : 1};
  bool cut = false;
  for (size_t i = 0; i < starts.size(); ++i) {
    const int64_t size = x[static_cast<int>(i)];
    const int64_t begin = resolve(starts[i], size, "start", i);
    const int64_t end = resolve(ends[i], size, "end", i);
    require(begin <= end, "the start {} of dimension {} is after its end {}", begin, i, end);
    if (begin == 0 && end == size) continue;
    require(!cut, "only one dimension can be sliced, but dimensions {} and {} are", range.axis, i);
    cut = true;
    range = {static_cast<int>(i), begin, end - begin};
  }
  return range;
}

namespace {

// From starts and ends if they are there, else from the arguments.
SliceRange range_of(const SliceArgs& args, const Shape& x, const Tensor* starts, const Tensor* ends) {
  if (!starts) return cut_range(x, args.starts, args.ends);
  return cut_range(x, read_integers(*starts, "starts"), read_integers(*ends, "ends"));
}

// `given`: as inputs 1 and 2.
void check_bounds_given_once(const SliceArgs& args, bool given) {
  require(!given || (args.starts.empty() && args.ends.empty()), "starts and ends are given as inputs and as arguments");
}

bool bounds_known(const ShapeCall& call, bool given) { return !given || (call.value(1) && call.value(2)); }

SliceRange range_of(const SliceArgs& args, const Call& call, bool given) {
  return range_of(args, call.in(0).shape(), given ? &call.in(1) : nullptr, given ? &call.in(2) : nullptr);
}

BlockCopy plan_of(const Shape& whole, const SliceRange& range) {
  BlockCopy plan;
  const int64_t inner = whole.rank() > 0 ? whole.size_between(range.axis + 1, whole.rank()) : 1;
  plan.blocks = whole.size_between(0, range.axis);
  plan.count = range.size * inner;
  plan.from_at = range.begin * inner;
  plan.from_stride = whole.size_between(range.axis, whole.rank());
  plan.to_stride = plan.count;
  return plan;
}

Shape cut_shape(const Shape& x, const SliceRange& range) { return x.rank() > 0 ? x.with(range.axis, range.size) : x; }

void shape(const SliceArgs& args, ShapeCall& call) {
  require(call.has(1) == call.has(2), "starts and ends must be given as inputs both or not at all");
  check_bounds_given_once(args, call.has(1));
  if (!call.known(0) || !bounds_known(call, call.has(1))) return;
  const SliceRange range = range_of(args, call.shape(0), call.value(1), call.value(2));
  call.set(0, call.dtype(0), cut_shape(call.shape(0), range));
}

void slice(const SliceArgs& args, Call& call) {
  copy_blocks(call.in(0), call.out(0), plan_of(call.in(0).shape(), range_of(args, call, call.has(1))));
}

// A gradient has starts and ends, if they are inputs, between X and dY.
bool bounds_between(int inputs) { return inputs == 4; }

void gradient_shape(const SliceArgs& args, ShapeCall& call) {
  const bool given = bounds_between(call.inputs());
  require(given || call.inputs() == 2, "its inputs are X and dY, or X, starts, ends and dY, but there are {}",
          call.inputs());
  check_bounds_given_once(args, given);
  for (const int i : {1, 2})
    if (given && call.known(i))
      require(call.dtype(i) == DType::int32 || call.dtype(i) == DType::int64,
              "{} must be int32 or int64, but is {}; the inputs are X, starts, ends and dY", i == 1 ? "starts" : "ends",
              call.in(i));
  const int dy = call.inputs() - 1;
  if (!call.known(0) || !call.known(dy)) return;
  call.set(0, call.dtype(dy), call.shape(0));
  if (!bounds_known(call, given)) return;
  const SliceRange range =
      range_of(args, call.shape(0), given ? call.value(1) : nullptr, given ? call.value(2) : nullptr);
  require(cut_shape(call.shape(0), range) == call.shape(dy), "the slice has shape {}, but its gradient {}",
          cut_shape(call.shape(0), range), call.shape(dy));
}

void slice_gradient(const SliceArgs& args, Call& call) {
  Tensor& dx = call.out(0);
  BlockCopy plan = plan_of(dx.shape(), range_of(args, call, bounds_between(call.inputs())));
  std::swap(plan.from_at, plan.to_at);
  std::swap(plan.from_stride, plan.to_stride);
  if (plan.count * plan.blocks < dx.size()) dx.fill_zero();
  copy_blocks(call.in(call.inputs() - 1), dx, plan);
}

// Dimensions before the one that is cut are rows.
int leading_dimensions(const SliceArgs& args, const ShapeCall& call, bool given) {
  if (!call.known(0) || given) return 0;
  const SliceRange range = cut_range(call.shape(0), args.starts, args.ends);
  return range.size == call.shape(0).size_between(range.axis, range.axis + 1) ? call.shape(0).rank() : range.axis;
}

// Empty if it is not columns that are cut out.
std::vector<int64_t> first_column(const SliceArgs& args, const ShapeCall& call, bool given) {
  if (!call.known(0) || given) return {};
  const SliceRange range = cut_range(call.shape(0), args.starts, args.ends);
  if (range.axis != call.shape(0).rank() - 1) return {};
  return {range.begin};
}

Gradient gradient(Formula& f) {
  std::vector<Value> inputs = {f.x("data")};
  if (f.has_x("starts")) inputs.insert(inputs.end(), {f.x("starts"), f.x("ends")});
  inputs.push_back(f.dy("output"));
  return f.op("SliceGradient", inputs, f.forward_args());
}

// Of the gradient by dY, the last element of `rest`.
Gradient second_gradient(Formula& f, int element) {
  const int last = f.count("rest") - 1;
  if (element < last) return Gradient::none();
  std::vector<Value> inputs = {f.dy("dX")};
  for (int i = 0; i < last; ++i) inputs.push_back(f.x("rest", i));
  return f.op("Slice", inputs, f.forward_args());
}

OpBuilder<SliceArgs>& declare_bounds(OpBuilder<SliceArgs>& spec) {
  return spec.arg("starts", &SliceArgs::starts, {}, "the first index of each dimension")
      .arg("ends", &SliceArgs::ends, {}, "the index after the last of each dimension; -1 is the end");
}

REGISTER(slice) {
  auto spec = op<SliceArgs>("Slice");
  spec.doc(
          "A range of indices of one dimension. A negative bound v means size + 1 + v; bounds past the end are the "
          "end; dimensions after those listed are taken whole.")
      .input("data", "a tensor of any type")
      .any_type()
      .input("starts", "the first indices, one dimension, instead of the argument")
      .types({DType::int32, DType::int64})
      .optional()
      .input("ends", "the indices after the last, instead of the argument")
      .types({DType::int32, DType::int64})
      .optional();
  return declare_bounds(spec)
      .output("output", "the range")
      .any_type()
      .shape(shape)
      .rowwise([](const SliceArgs& a, const ShapeCall& c) { return leading_dimensions(a, c, c.has(1)); })
      .takes_columns([](const SliceArgs& a, const ShapeCall& c) { return first_column(a, c, c.has(1)); })
      .cpu(slice)
      .example({"data=4,3"}, {"starts=1,0", "ends=3,-1"})
      .example({"data=3,4"}, {"starts=0,1", "ends=-1,-2"})
      .example({"data=4,3", "starts=int32,1:2", "ends=int32,1:4"})
      .example({"data=2,3"}, {"starts=1", "ends=1"})
      .example({"data=2,3"})
      .derivative("data", gradient);
}

REGISTER(slice_gradient) {
  auto spec = op<SliceArgs>("SliceGradient");
  spec.doc("Gradient of Slice: dY in its place in a tensor of X's shape that is zero elsewhere.")
      .input("X", "the tensor that was sliced; its values are not read")
      .any_type()
      .shape_only()
      .input("rest", "starts and ends, if they are Slice's inputs, and the slice's gradient dY")
      .any_type()
      .variadic();
  return declare_bounds(spec)
      .output("dX", "gradient of X")
      .any_type()
      .shape(gradient_shape)
      .rowwise(
          [](const SliceArgs& a, const ShapeCall& c) { return leading_dimensions(a, c, bounds_between(c.inputs())); })
      .puts_columns([](const SliceArgs& a, const ShapeCall& c) {
        std::vector<int64_t> first = first_column(a, c, bounds_between(c.inputs()));
        if (!first.empty()) first.insert(first.begin(), -1);  // X is only its shape
        return first;
      })
      .cpu(slice_gradient)
      .derivative("X", [](Formula&) { return Gradient::none(); })
      .variadic_derivative("rest", second_gradient);
}

}  // namespace
}  // namespace stepnet
