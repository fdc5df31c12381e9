// Gather: Y[i..., :] = DATA[INDICES[i...], :], rows of a table by index: the embedding lookup.
//
// The gradient of DATA is sparse: the rows dY at INDICES, with no operator at all. With dense_gradient = 1 it is
// SparseToDense(INDICES, dY, DATA), which reads DATA's shape only. Along another axis, or with match_outer, Gather is
// BatchGather, and so is its gradient.

#include "operators/index/gather.h"

#include "stepnet/operator.h"

namespace stepnet::cpu_gather {
namespace {

void shape(const GatherArgs& args, ShapeCall& call) {
  if (call.known(0)) require(call.shape(0).rank() >= 1, "DATA is a single value, which has no rows");
  if (call.known(0) && call.known(1)) call.set(0, call.dtype(0), gathered_shape(args, call.shape(0), call.shape(1)));
}

void gather(const GatherArgs& args, Call& call) { gather_rows(args, call.in(0), call.in(1), call.out(0)); }

Gradient gradient(Formula& f) {
  const auto& args = f.args<GatherArgs>();
  if (args.axis != 0 || args.match_outer)
    return f.op("BatchGatherGradient", {f.x("DATA"), f.x("INDICES"), f.dy("OUTPUT")}, gather_args(args));
  if (!args.dense_gradient) return Gradient::sparse(f.x("INDICES"), f.dy("OUTPUT"));
  return f.op("SparseToDense", {f.x("INDICES"), f.dy("OUTPUT"), f.x("DATA")});
}

REGISTER(gather) {
  return op<GatherArgs>("Gather")
      .doc(
          "Rows of a table by index. The table's gradient is rows and their indices. Those of several lookups of one "
          "table follow each other, for which their indices must have one type and differ in the first dimension at "
          "most.")
      .arg(
          "dense_gradient", &GatherArgs::dense_gradient, false,
          "give DATA a dense gradient of its full size instead of rows and their indices; along another axis than 0 it "
          "always has one")
      .arg("axis", &GatherArgs::axis, int64_t{0}, "the dimension of DATA that is indexed, a negative one from the end")
      .arg("match_outer", &GatherArgs::match_outer, false,
           "the dimensions before the axis are INDICES' first, too: each has indices of its own")
      .accepts("output_first_dim", "SparseToDense's, whose gradient carries it")
      .accepts("wrap_indices", "an index below 0 is an error, with it and without it")
      .input("DATA", "[R, ...], the table, of any type")
      .any_type()
      .input("INDICES", "any shape, each from 0 to R - 1")
      .types({DType::int32, DType::int64})
      .output("OUTPUT",
              "DATA's dimensions before the axis, those of INDICES, or with match_outer its others, then a row's")
      .any_type()
      .shape(shape)
      .cpu(gather)
      .example({"DATA=4,2", "INDICES=int32,3:2,0,2"})
      .example({"DATA=4,2", "INDICES=int64,2,2:3,3,0,1"}, {"dense_gradient=1"})
      .example({"DATA=3", "INDICES=int32,0"})
      .example({"DATA=1,2", "INDICES=int32:0"})
      .example({"DATA=2,3", "INDICES=int32,4:2,0,2,1"}, {"axis=1"})
      .example({"DATA=2,3,2", "INDICES=int64,2,2:2,0,1,1"}, {"axis=1", "match_outer=1"})
      .derivative("DATA", gradient);
}

}  // namespace
}  // namespace stepnet::cpu_gather
