// Flatten: a matrix of the same elements, whose rows are the dimensions before `axis`. FlattenToVec: one dimension.
//
// dX = ResizeLike(dY, X), which reads X's shape only.

#include "core/operator/operator.h"
#include "operators/loops/copy_elements.h"

namespace stepnet {
namespace {

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

void copy(Call& call) { copy_values(call.in(0), call.out(0)); }

// The first dimension stays what it is only if it alone is the rows.
int leading_rows(const FlattenArgs& args, const ShapeCall& call) {
  return call.known(0) && canonical_axis(args.axis, call.shape(0).rank(), true) == 1 ? 1 : 0;
}

Gradient gradient(Formula& f) { return f.op("ResizeLike", {f.dy("output"), f.x("input")}); }

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
      .cpu(copy)
      .example({"input=2,3,2"})
      .example({"input=2,3,2"}, {"axis=2"})
      .example({"input=2,3"}, {"axis=0"})
      .derivative("input", gradient);
}

REGISTER(flatten_to_vec) {
  return op("FlattenToVec")
      .doc("The same elements in one dimension.")
      .input("input", "a tensor of any type")
      .any_type()
      .output("output", "[the number of elements]")
      .any_type()
      .shape(vector_shape)
      .cpu(copy)
      .example({"input=2,3"})
      .example({"input="})
      .example({"input=2,0"})
      .derivative("input", gradient);
}

}  // namespace
}  // namespace stepnet
