// BatchGather: Y[b, i..., :] = DATA[b, INDICES[i...], :], rows of each of B tables by the same indices.
//
// dDATA = BatchGatherGradient(dY), which adds the rows where they came from; its own derivative is BatchGather.
// Backward reads INDICES and DATA's shape.

#include <algorithm>

#include "core/compute/threads.h"
#include "core/operator/flops.h"
#include "operators/loops/copy_elements.h"
#include "operators/loops/indices.h"
#include "stepnet/operator.h"

namespace stepnet::cpu_batch_gather {
namespace {

Shape gathered_shape(const ShapeCall& call) {
  Shape y{call.shape(0)[0]};
  for (const int64_t size : call.shape(1)) y.push_back(size);
  for (const int64_t size : call.shape(0).from(2)) y.push_back(size);
  return y;
}

bool check_tables(const ShapeCall& call) {
  if (call.known(0)) require(call.shape(0).rank() >= 2, "DATA must be [B, R, ...], but is {}", call.shape(0));
  return call.known(0) && call.known(1);
}

void infer(const NoArgs&, ShapeCall& call) {
  if (check_tables(call)) call.set(0, call.dtype(0), gathered_shape(call));
}

void infer_gradient(const NoArgs&, ShapeCall& call) {
  if (!check_tables(call) || !call.known(2)) return;
  const Shape expected = gathered_shape(call);
  require(call.shape(2) == expected, "the gradient of OUTPUT must be {}, but is {}", expected, call.shape(2));
  call.set(0, call.dtype(2), call.shape(0));
}

void gather(Call& call) {
  const Tensor& data = call.in(0);
  Tensor& y = call.out(0);
  const int64_t rows = data.dim(1), row = data.shape().size_between(2, data.rank()), count = call.in(1).size();
  check_indices(call.in(1), rows);
  if (y.size() == 0) return;
  const double nanoseconds = 3 + 0.1 * static_cast<double>(row) * static_cast<double>(dtype_size(data.dtype()));
  with_indices(call.in(1), [&](auto indices) {
    parallel_for(data.dim(0) * count, nanoseconds, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        copy_elements(data, (i / count * rows + indices[i % count]) * row, y, i * row, row);
    });
  });
}

// Tables in parallel: rows of one index add up in their order.
template <class T>
void scatter(const Tensor&, const Tensor& indices, In<T> dy, Out<T> dx, Call& call) {
  const Shape& shape = call.out(0).shape();
  const int64_t rows = shape[1], row = shape.size_between(2, shape.rank()), count = indices.size();
  check_indices(indices, rows);
  if (dx.empty()) return;
  const double nanoseconds = 0.3 * static_cast<double>((rows + count) * row);
  with_indices(indices, [&](auto values) {
    parallel_for(shape[0], nanoseconds, [&](int64_t begin, int64_t end) {
      for (int64_t b = begin; b < end; ++b) {
        T* table = dx.data() + b * rows * row;
        const T* from = dy.data() + b * count * row;
        std::fill_n(table, rows * row, T(0));
        for (int64_t k = 0; k < count; ++k)
          for (int64_t j = 0; j < row; ++j) table[values[k] * row + j] += from[k * row + j];
      }
    });
  });
}

REGISTER(batch_gather) {
  return op("BatchGather")
      .doc("Rows of each of several tables by the same indices.")
      .input("DATA", "[B, R, ...] of any type")
      .any_type()
      .input("INDICES", "any shape, each from 0 to R - 1")
      .types({DType::int32, DType::int64})
      .output("OUTPUT", "[B], then the indices' shape, then the shape of a row")
      .any_type()
      .shape(infer)
      .cpu(gather)
      .example({"DATA=2,4,2", "INDICES=int32,3:2,0,2"})
      .example({"DATA=2,3", "INDICES=int64,2,2:0,1,1,1"})
      .example({"DATA=1,1,2", "INDICES=int32:0"})
      .example({"DATA=2,3,2", "INDICES=int32,0"})
      .derivative("DATA", [](Formula& f) {
        return f.op("BatchGatherGradient", {f.x("DATA"), f.x("INDICES"), f.dy("OUTPUT")});
      });
}

REGISTER(batch_gather_gradient) {
  return op("BatchGatherGradient")
      .doc("Gradient of BatchGather: adds rows where they came from.")
      .input("DATA", "[B, R, ...]; its values are not read")
      .any_type()
      .shape_only()
      .input("INDICES", "any shape, each from 0 to R - 1")
      .types({DType::int32, DType::int64})
      .input("d_OUTPUT", "[B], then the indices' shape, then the shape of a row")
      .output("d_DATA", "as DATA")
      .shape(infer_gradient)
      .flops(flops_per_input(1, 2))
      .cpu(scatter<float>, scatter<double>)
      .derivative("DATA", [](Formula&) { return Gradient::none(); })
      .derivative("d_OUTPUT", [](Formula& f) {
        return f.op("BatchGather", {f.dy("d_DATA"), f.x("INDICES")});
      });
}

}  // namespace
}  // namespace stepnet::cpu_batch_gather
