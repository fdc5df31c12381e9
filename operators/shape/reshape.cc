// Reshape: Y has X's elements in another shape. Out of place it copies; in place nothing moves.
//
// dX = Reshape(dY, old_shape), or, where the net has no old_shape, ResizeLike(dY, X), which reads X's shape only.

#include <algorithm>

#include "operators/loops/copy_elements.h"
#include "operators/loops/fill_shape.h"
#include "operators/loops/segment_lengths.h"

namespace stepnet {
namespace {

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

void shape(const ReshapeArgs& args, ShapeCall& call) {
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
  if (!call.wants(1)) return;
  call.out(1).set_known(true);
  write_shape(call.in(0).shape(), call.out(1));
}

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
      .in_place("data", "reshaped")
      .shape(shape)
      .cpu(reshape)
      .known_outputs(know_old_shape)
      .example({"data=2,6"}, {"shape=3,-1"})
      .example({"data=2,6"}, {"shape=0,3,2"})
      .example({"data=2,3", "new_shape=int64,2:3,2"})
      .example({"data=0,3"}, {"shape=3,0"})
      .example_net(R"(op { type: "Reshape" input: "X" output: "Y" arg { name: "shape" ints: 6 } })", {"X=2,3"}, {"Y"})
      .derivative("data", gradient);
}

}  // namespace
}  // namespace stepnet
