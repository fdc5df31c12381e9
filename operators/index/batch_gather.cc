// BatchGather: Y[b, i..., :] = DATA[b, INDICES[i...], :], rows of each of B tables by the same indices. The axis that
// is indexed may be another than 1; b stands for all before it. With match_outer each b has indices of its own: Y[b,
// i..., :] = DATA[b, INDICES[b, i...], :].
//
// dDATA = BatchGatherGradient(dY), which adds the rows where they came from; its own derivative is BatchGather.
// Backward reads INDICES and DATA's shape.

#include <algorithm>

#include "core/operator/flops.h"
#include "operators/index/gather.h"
#include "stepnet/operator.h"

namespace stepnet::cpu_batch_gather {
namespace {

bool check_tables(const GatherArgs& args, const ShapeCall& call) {
  if (call.known(0) && args.axis == 1)
    require(call.shape(0).rank() >= 2, "DATA must be [B, R, ...], but is {}", call.shape(0));
  return call.known(0) && call.known(1);
}

void infer(const GatherArgs& args, ShapeCall& call) {
  if (check_tables(args, call)) call.set(0, call.dtype(0), gathered_shape(args, call.shape(0), call.shape(1)));
}

void infer_gradient(const GatherArgs& args, ShapeCall& call) {
  if (!check_tables(args, call) || !call.known(2)) return;
  const Shape expected = gathered_shape(args, call.shape(0), call.shape(1));
  require(call.shape(2) == expected, "the gradient of OUTPUT must be {}, but is {}", expected, call.shape(2));
  call.set(0, call.dtype(2), call.shape(0));
}

void gather(const GatherArgs& args, Call& call) { gather_rows(args, call.in(0), call.in(1), call.out(0)); }

// Tables in parallel: rows of one index add up in their order.
template <class T>
void scatter(const GatherArgs& args, const Tensor&, const Tensor& indices, In<T> dy, Out<T> dx, Call& call) {
  const GatheredRows gathered(args, call.out(0).shape(), indices.shape());
  const int64_t rows = gathered.data.size, row = gathered.data.inner, count = gathered.count;
  check_indices(indices, rows);
  if (dx.empty()) return;
  const double nanoseconds = 0.3 * static_cast<double>((rows + count) * row);
  with_indices(indices, [&](auto values) {
    parallel_for(gathered.data.outer, nanoseconds, [&](int64_t begin, int64_t end) {
      for (int64_t b = begin; b < end; ++b) {
        T* table = dx.data() + b * rows * row;
        const T* from = dy.data() + b * count * row;
        std::fill_n(table, rows * row, T(0));
        for (int64_t k = 0; k < count; ++k)
          for (int64_t j = 0; j < row; ++j) table[values[gathered.place(b, k)] * row + j] += from[k * row + j];
      }
    });
  });
}

OpBuilder<GatherArgs>& add_args(OpBuilder<GatherArgs>& b) {
  return b
      .arg("axis", &GatherArgs::axis, int64_t{1}, "the dimension of DATA that is indexed, a negative one from the end")
      .arg("match_outer", &GatherArgs::match_outer, false,
           "the dimensions before the axis are INDICES' first, too: each has indices of its own");
}

REGISTER(batch_gather) {
  auto spec = op<GatherArgs>("BatchGather");
  return add_args(spec)
      .doc("Rows of each of several tables by the same indices.")
      .input("DATA", "[B, R, ...] of any type")
      .any_type()
      .input("INDICES", "any shape, each from 0 to R - 1")
      .types({DType::int32, DType::int64})
      .output("OUTPUT", "[B], then the indices' shape, or with match_outer what follows [B] there, then a row's")
      .any_type()
      .shape(infer)
      .cpu(gather)
      .example({"DATA=2,4,2", "INDICES=int32,3:2,0,2"})
      .example({"DATA=2,3", "INDICES=int64,2,2:0,1,1,1"})
      .example({"DATA=1,1,2", "INDICES=int32:0"})
      .example({"DATA=2,3,2", "INDICES=int32,0"})
      .example({"DATA=2,2,3", "INDICES=int32,2:2,2"}, {"axis=-1"})
      .example({"DATA=2,3,2", "INDICES=int64,2,2:2,0,1,1"}, {"match_outer=1"})
      .derivative("DATA", [](Formula& f) {
        return f.op("BatchGatherGradient", {f.x("DATA"), f.x("INDICES"), f.dy("OUTPUT")}, f.forward_args());
      });
}

REGISTER(batch_gather_gradient) {
  auto spec = op<GatherArgs>("BatchGatherGradient");
  return add_args(spec)
      .doc("Gradient of BatchGather: adds rows where they came from.")
      .input("DATA", "[B, R, ...]; its values are not read")
      .any_type()
      .shape_only()
      .input("INDICES", "any shape, each from 0 to R - 1")
      .types({DType::int32, DType::int64})
      .input("d_OUTPUT", "gradient of OUTPUT")
      .output("d_DATA", "as DATA")
      .shape(infer_gradient)
      .flops(flops_per_input(1, 2))
      .cpu(scatter<float>, scatter<double>)
      .derivative("DATA", [](Formula&) { return Gradient::none(); })
      .derivative("d_OUTPUT", [](Formula& f) {
        return f.op("BatchGather", {f.dy("d_DATA"), f.x("INDICES")}, f.forward_args());
      });
}

}  // namespace
}  // namespace stepnet::cpu_batch_gather
