// The same elements with other dimensions: Reshape, Flatten, FlattenToVec, MergeDim, PrependDim, ResizeLike, Squeeze
// and ExpandDims. Out of place they copy; in place nothing moves.
#include <algorithm>

#include "core/operator/dry_run.h"
#include "operators/loops/copy_elements.h"
#include "operators/loops/fill_shape.h"
#include "operators/loops/segment_lengths.h"
#include "stepnet/operator.h"

namespace stepnet::cpu_reshape {
namespace {

// Reshape: Y has X's elements in another shape. Out of place it copies; in place nothing moves.
//
// dX = Reshape(dY, old_shape), or, where the net has no old_shape, ResizeLike(dY, X), which reads X's shape only.

struct ReshapeArgs {
  std::optional<std::vector<int64_t>> shape;
};

// True if a 0 of the new shape cannot mean "copy the input's size": the input is empty, and with copies the output
// would not be. It is the size 0 then, as in the gradient of an empty tensor's Reshape.
bool zeros_are_sizes(const std::vector<int64_t>& dims, const Shape& from) {
  if (from.size() > 0) return false;
  bool copies_exist = true, stays_empty = false;
  for (size_t i = 0; i < dims.size(); ++i) {
    if (dims[i] < 0) return false;
    if (dims[i] > 0) continue;
    const int at = static_cast<int>(i);
    copies_exist = copies_exist && at < from.rank();
    stays_empty = stays_empty || (at < from.rank() && from[at] == 0);
  }
  return !copies_exist || !stays_empty;
}

// Replaces 0 by the input's size there and -1 by what is left.
Shape resolve(std::vector<int64_t> dims, const Shape& from) {
  int64_t known = 1;
  int unknown = -1;
  const bool copy_zeros = !zeros_are_sizes(dims, from);
  for (size_t i = 0; i < dims.size(); ++i) {
    const int at = static_cast<int>(i);
    if (dims[i] == 0 && copy_zeros) {
      require(at < from.rank(), "size {} of the new shape is 0, which copies dimension {} of an input of shape {}", at,
              at, from);
      dims[i] = from[at];
    }
    if (dims[i] == -1) {
      require(unknown < 0, "the new shape has more than one -1");
      unknown = at;
      continue;
    }
    require(dims[i] >= 0, "size {} of the new shape is {}; only -1 may be negative", at, dims[i]);
    require(!__builtin_mul_overflow(known, dims[i], &known), "the new shape has more elements than 64 bits can count");
  }
  if (unknown >= 0) {
    require(known > 0 && from.size() % known == 0, "{} elements of shape {} do not divide by {}, so -1 has no value",
            from.size(), from, known);
    dims[unknown] = from.size() / known;
  }
  const Shape to(dims);
  require(to.size() == from.size(), "shape {} has {} elements, which do not fit shape {} of {}", from, from.size(), to,
          to.size());
  return to;
}

void reshaped(const ReshapeArgs& args, ShapeCall& call) {
  require(!args.shape || !call.has(1), "the new shape is given by the argument \"shape\" and by an input");
  require(args.shape || call.has(1), "the new shape is given neither by the argument \"shape\" nor by an input");
  if (!call.known(0)) return;
  const DType old_type = call.known(1) ? call.dtype(1) : DType::int64;
  if (!call.has(1) || call.known(1)) call.set(1, old_type, Shape{call.shape(0).rank()});
  if (args.shape) {
    call.set(0, call.dtype(0), resolve(*args.shape, call.shape(0)));
  } else if (call.value(1)) {
    call.set(0, call.dtype(0), resolve(read_integers(*call.value(1), "a new shape given as input"), call.shape(0)));
  }
}

void write_shape(const Shape& shape, Tensor& out) {
  if (out.dtype() == DType::int32) {
    std::ranges::transform(shape.dims(), out.data<int32_t>(), [](int64_t d) { return to_int32(d, "the old size"); });
  } else {
    std::ranges::copy(shape.dims(), out.data<int64_t>());
  }
}

void know_old_shape(const ReshapeArgs&, Call& call) {
  if (know_output(call, 1)) write_shape(call.in(0).shape(), call.out(1));
}

void copy(Call& call) { copy_values(call.in(0), call.out(0)); }

void reshape(Call& call) {
  const Shape old_shape = call.in(0).shape();
  if (call.wants(0)) copy_values(call.in(0), call.out(0));
  if (call.wants(1)) write_shape(old_shape, call.out(1));
}

Gradient gradient(Formula& f) {
  const Value old_shape = f.y_at(1);
  if (!old_shape.defined()) {
    if (f.def().input(0) == f.def().output(0))
      throw Error("the gradient needs the shape that the input had, but it is overwritten in place",
                  "give Reshape its second output, old_shape");
    return f.op("ResizeLike", {f.dy("reshaped"), f.x("data")});
  }
  return f.ops("Reshape", {f.dy("reshaped"), old_shape}, {}, {true, false})[0];
}

REGISTER(reshape) {
  return op<ReshapeArgs>("Reshape")
      .doc("The same elements in another shape. A size of 0 copies the input's; one size of -1 is what is left.")
      .arg("shape", &ReshapeArgs::shape, {}, "the new shape, unless it is an input")
      .input("data", "a tensor of any type")
      .any_type()
      .input("new_shape", "the new shape, one dimension, instead of the argument")
      .types({DType::int64, DType::int32})
      .optional()
      .output("reshaped", "the elements in the new shape")
      .any_type()
      .output("old_shape", "the input's shape, int64 or the new shape's type")
      .types({DType::int64, DType::int32})
      .optional()
      .uses({})
      .in_place("data", "reshaped")
      .shape(reshaped)
      .reshapes()
      .role(Role::reshape)
      .cpu(reshape)
      .known_outputs(know_old_shape)
      .example({"data=2,6"}, {"shape=3,-1"})
      .example({"data=2,6"}, {"shape=0,3,2"})
      .example({"data=2,3", "new_shape=int64,2:3,2"})
      .example({"data=0,3"}, {"shape=3,0"})
      .example_net(R"(op { type: "Reshape" input: "X" output: "Y" arg { name: "shape" ints: 6 } })", {"X=2,3"}, {"Y"})
      .derivative("data", gradient);
}

// Flatten: a matrix of the same elements, whose rows are the dimensions before `axis`. FlattenToVec: one dimension.
//
// dX = ResizeLike(dY, X), which reads X's shape only.

struct FlattenArgs {
  int64_t axis = 1;
};

void matrix_shape(const FlattenArgs& args, ShapeCall& call) {
  if (!call.known(0)) return;
  const Shape& x = call.shape(0);
  const int axis = canonical_axis(args.axis, x.rank(), true);
  call.set(0, call.dtype(0), Shape{x.size_between(0, axis), x.size_between(axis, x.rank())});
}

void vector_shape(const NoArgs&, ShapeCall& call) {
  if (call.known(0)) call.set(0, call.dtype(0), Shape{call.shape(0).size()});
}

// The first dimension stays what it is only if it alone is the rows.
int leading_rows(const FlattenArgs& args, const ShapeCall& call) {
  return call.known(0) && canonical_axis(args.axis, call.shape(0).rank(), true) == 1 ? 1 : 0;
}

Gradient flatten_gradient(Formula& f) { return f.op("ResizeLike", {f.dy("output"), f.x("input")}); }

REGISTER(flatten) {
  return op<FlattenArgs>("Flatten")
      .doc("The same elements as a matrix.")
      .arg("axis", &FlattenArgs::axis, int64_t{1}, "the first dimension that is columns; those before it are rows")
      .input("input", "a tensor of any type")
      .any_type()
      .output("output", "[the product of the sizes before axis, that of the others]")
      .any_type()
      .shape(matrix_shape)
      .rowwise(leading_rows)
      .reshapes()
      .cpu(copy)
      .example({"input=2,3,2"})
      .example({"input=2,3,2"}, {"axis=2"})
      .example({"input=2,3"}, {"axis=0"})
      .derivative("input", flatten_gradient);
}

REGISTER(flatten_to_vec) {
  return op("FlattenToVec")
      .doc("The same elements in one dimension.")
      .input("input", "a tensor of any type")
      .any_type()
      .output("output", "[the number of elements]")
      .any_type()
      .shape(vector_shape)
      .reshapes()
      .cpu(copy)
      .example({"input=2,3"})
      .example({"input="})
      .example({"input=2,0"})
      .derivative("input", flatten_gradient);
}

// MergeDim: the first two dimensions become one. PrependDim: the first becomes two, of which the first has dim_size.
//
// dX = ResizeLike(dY, X), which reads X's shape only.

struct PrependArgs {
  int64_t dim_size = 0;
};

void merged(const NoArgs&, ShapeCall& call) {
  if (!call.known(0)) return;
  const Shape& x = call.shape(0);
  require(x.rank() >= 2, "two dimensions are needed to make one of them, but the input is {}", x);
  call.set(0, call.dtype(0), x.from(2).prepend(x[0] * x[1]));
}

void prepended(const PrependArgs& args, ShapeCall& call) {
  if (!call.known(0)) return;
  const Shape& x = call.shape(0);
  require(x.rank() >= 1, "the input is a single value, which has no dimension to divide");
  require(x[0] % args.dim_size == 0, "the first dimension of {} has size {}, which {} does not divide", x, x[0],
          args.dim_size);
  call.set(0, call.dtype(0), x.with(0, x[0] / args.dim_size).prepend(args.dim_size));
}

template <class Args>
OpBuilder<Args>& declare_dim(OpBuilder<Args>& spec) {
  return spec.input("data", "a tensor of any type")
      .any_type()
      .output("reshaped", "the same elements")
      .any_type()
      .reshapes()
      .cpu(copy)
      .derivative("data", [](Formula& f) {
        return f.op("ResizeLike", {f.dy("reshaped"), f.x("data")});
      });
}

REGISTER(merge_dim) {
  auto spec = op("MergeDim");
  return declare_dim(spec)
      .doc("Makes one dimension of the first two.")
      .shape(merged)
      .example({"data=2,3,2"})
      .example({"data=0,3"});
}

REGISTER(prepend_dim) {
  auto spec = op<PrependArgs>("PrependDim");
  return declare_dim(spec)
      .doc("Makes two dimensions of the first.")
      .required_arg("dim_size", &PrependArgs::dim_size, "the size of the first of the two", at_least(1))
      .shape(prepended)
      .example({"data=6,2"}, {"dim_size=3"})
      .example({"data=4"}, {"dim_size=4"});
}

// ResizeLike: the elements of `data` in the shape of `shape_tensor`, whose values are not read. Operators that only
// rename dimensions use it for their gradient.
//   d data = ResizeLike(dY, data), which reads the shape of data only; shape_tensor has no derivative.

void resized(const NoArgs&, ShapeCall& call) {
  if (!call.known(0) || !call.known(1)) return;
  require(call.shape(0).size() == call.shape(1).size(),
          "data {} has {} elements, which do not fit the shape {} of shape_tensor", call.shape(0), call.shape(0).size(),
          call.shape(1));
  call.set(0, call.dtype(0), call.shape(1));
}

REGISTER(resize_like) {
  return op("ResizeLike")
      .doc("The elements of one tensor in the shape of another.")
      .accepts("axis", "Flatten's, whose gradient carries it: the second input has the shape")
      .input("data", "a tensor of any type")
      .any_type()
      .input("shape_tensor", "a tensor with the new shape and as many elements; its values are not read")
      .any_type()
      .shape_only()
      .output("output", "the elements in the new shape")
      .any_type()
      .in_place("data", "output", {"data"})
      .shape(resized)
      .example({"data=2,6", "shape_tensor=3,4"})
      .example({"data=1", "shape_tensor=double,1,1"})
      .reshapes()
      .cpu(copy)
      .derivative("data",
                  [](Formula& f) {
                    return f.op("ResizeLike", {f.dy("output"), f.x("data")});
                  })
      .derivative("shape_tensor", [](Formula&) { return Gradient::none(); });
}

// Squeeze and ExpandDims: the same elements with dimensions of size 1 removed or inserted. `dims` are places in the
// longer of the two shapes. Each is the other's gradient, with the same dims; backward reads nothing.

struct DimsArgs {
  std::vector<int64_t> dims;
};

// Sorted, each once, and within a shape of `rank` dimensions.
std::vector<int64_t> places(const DimsArgs& args, int rank) {
  std::vector<int64_t> dims = args.dims;
  std::ranges::sort(dims);
  dims.erase(std::unique(dims.begin(), dims.end()), dims.end());
  for (const int64_t d : dims)
    require(d >= 0 && d < rank, "argument \"dims\" names dimension {}, but the shape has {}", d, rank);
  return dims;
}

void squeezed(const DimsArgs& args, ShapeCall& call) {
  if (!call.known(0)) return;
  const Shape& x = call.shape(0);
  const std::vector<int64_t> dims = places(args, x.rank());
  Shape y;
  for (int i = 0; i < x.rank(); ++i) {
    const bool gone = std::ranges::binary_search(dims, int64_t{i});
    if (!gone) y.push_back(x[i]);
    require(!gone || x[i] == 1, "argument \"dims\" names dimension {} of {}, whose size is {} and not 1", i, x, x[i]);
  }
  call.set(0, call.dtype(0), y);
}

void expanded(const DimsArgs& args, ShapeCall& call) {
  if (!call.known(0)) return;
  const Shape& x = call.shape(0);
  std::vector<int64_t> dims = args.dims;
  std::ranges::sort(dims);
  const int rank = x.rank() + static_cast<int>(std::unique(dims.begin(), dims.end()) - dims.begin());
  require(rank <= Shape::kMaxRank, "{} with {} more dimensions has more than {}", x, rank - x.rank(), Shape::kMaxRank);
  dims = places(args, rank);
  Shape y;
  for (int i = 0, from = 0; i < rank; ++i) y.push_back(std::ranges::binary_search(dims, int64_t{i}) ? 1 : x[from++]);
  call.set(0, call.dtype(0), y);
}

// Dimensions before the first that changes.
int unchanged_dims(const DimsArgs& args, const ShapeCall&) {
  if (args.dims.empty()) return Shape::kMaxRank;
  return static_cast<int>(std::clamp<int64_t>(std::ranges::min(args.dims), 0, Shape::kMaxRank));
}

OpBuilder<DimsArgs>& declare_dims(OpBuilder<DimsArgs>& builder) {
  return builder.required_arg("dims", &DimsArgs::dims, "places in the longer shape, from 0")
      .input("data", "a tensor of any type")
      .any_type()
      .output("output", "the same elements")
      .any_type()
      .in_place("data", "output")
      .rowwise(unchanged_dims)
      .reshapes()
      .cpu(copy);
}

Gradient by(Formula& f, const char* type) { return f.op(type, {f.dy("output")}, f.forward_args()); }

REGISTER(squeeze) {
  auto builder = op<DimsArgs>("Squeeze");
  return declare_dims(builder)
      .doc("Removes dimensions of size 1.")
      .shape(squeezed)
      .example({"data=2,1,3,1"}, {"dims=1,3"})
      .example({"data=1"}, {"dims=0"})
      .derivative("data", [](Formula& f) { return by(f, "ExpandDims"); });
}

REGISTER(expand_dims) {
  auto builder = op<DimsArgs>("ExpandDims");
  return declare_dims(builder)
      .doc("Inserts dimensions of size 1.")
      .shape(expanded)
      .example({"data=2,3"}, {"dims=0,2"})
      .example({"data="}, {"dims=0"})
      .derivative("data", [](Formula& f) { return by(f, "Squeeze"); });
}

}  // namespace
}  // namespace stepnet::cpu_reshape
