// Gather: Y[i..., :] = DATA[INDICES[i...], :], rows of a table by index: the embedding lookup.
//
// The gradient of DATA is sparse: the rows dY at INDICES, with no operator at all. With dense_gradient = 1 it is
// SparseToDense(INDICES, dY, DATA), which reads DATA's shape only.

#include "operators/index/gather.h"

#include "core/compute/threads.h"
#include "operators/loops/copy_elements.h"
#include "operators/loops/indices.h"
#include "stepnet/operator.h"

namespace stepnet::cpu_gather {
namespace {

void shape(const GatherArgs&, ShapeCall& call) {
  if (call.known(0)) require(call.shape(0).rank() >= 1, "DATA is a single value, which has no rows");
  if (!call.known(0) || !call.known(1)) return;
  Shape y = call.shape(1);
  for (const int64_t size : call.shape(0).from(1)) y.push_back(size);
  call.set(0, call.dtype(0), y);
}

void gather(Call& call) {
  const Tensor& data = call.in(0);
  Tensor& y = call.out(0);
  check_indices(call.in(1), data.dim(0));
  const int64_t row = data.shape().size_between(1, data.rank());
  const double nanoseconds = 3 + 0.1 * static_cast<double>(row) * static_cast<double>(dtype_size(data.dtype()));
  with_indices(call.in(1), [&](auto indices) {
    parallel_for(static_cast<int64_t>(indices.size()), nanoseconds, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) copy_elements(data, indices[i] * row, y, i * row, row);
    });
  });
}

Gradient gradient(Formula& f) {
  if (!f.args<GatherArgs>().dense_gradient) return Gradient::sparse(f.x("INDICES"), f.dy("OUTPUT"));
  return f.op("SparseToDense", {f.x("INDICES"), f.dy("OUTPUT"), f.x("DATA")});
}

REGISTER(gather) {
  return op<GatherArgs>("Gather")
      .doc(
          "Rows of a table by index. The table's gradient is rows and their indices. Those of several lookups of one "
          "table follow each other, for which their indices must have one type and differ in the first dimension at "
          "most.")
      .arg("dense_gradient", &GatherArgs::dense_gradient, false,
           "give DATA a dense gradient of its full size instead of rows and their indices")
      .input("DATA", "[R, ...], the table, of any type")
      .any_type()
      .input("INDICES", "any shape, each from 0 to R - 1")
      .types({DType::int32, DType::int64})
      .output("OUTPUT", "the indices' shape, then the shape of a row")
      .any_type()
      .shape(shape)
      .cpu(gather)
      .example({"DATA=4,2", "INDICES=int32,3:2,0,2"})
      .example({"DATA=4,2", "INDICES=int64,2,2:3,3,0,1"}, {"dense_gradient=1"})
      .example({"DATA=3", "INDICES=int32,0"})
      .example({"DATA=1,2", "INDICES=int32:0"})
      .derivative("DATA", gradient);
}

}  // namespace
}  // namespace stepnet::cpu_gather
