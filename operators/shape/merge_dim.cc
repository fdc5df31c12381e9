// MergeDim: the first two dimensions become one. PrependDim: the first becomes two, of which the first has dim_size.
//
// dX = ResizeLike(dY, X), which reads X's shape only.

#include "core/operator/operator.h"
#include "operators/loops/copy_elements.h"

namespace stepnet {
namespace {

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

void copy(Call& call) { copy_values(call.in(0), call.out(0)); }

template <class Args>
OpBuilder<Args>& declare(OpBuilder<Args>& spec) {
  return spec.input("data", "a tensor of any type")
      .any_type()
      .output("reshaped", "the same elements")
      .any_type()
      .cpu(copy)
      .derivative("data", [](Formula& f) {
        return f.op("ResizeLike", {f.dy("reshaped"), f.x("data")});
      });
}

REGISTER(merge_dim) {
  auto spec = op("MergeDim");
  return declare(spec)
      .doc("Makes one dimension of the first two.")
      .shape(merged)
      .example({"data=2,3,2"})
      .example({"data=0,3"});
}

REGISTER(prepend_dim) {
  auto spec = op<PrependArgs>("PrependDim");
  return declare(spec)
      .doc("Makes two dimensions of the first.")
      .required_arg("dim_size", &PrependArgs::dim_size, "the size of the first of the two", at_least(1))
      .shape(prepended)
      .example({"data=6,2"}, {"dim_size=3"})
      .example({"data=4"}, {"dim_size=4"});
}

}  // namespace
}  // namespace stepnet
