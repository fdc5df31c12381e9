// ScatterAssign: DATA[INDICES[k], :] = SLICES[k, :], in place; of equal indices the last counts. No derivative: DATA's
// old values are gone.

#include "operators/loops/copy_elements.h"
#include "operators/loops/indices.h"
#include "stepnet/operator.h"

namespace stepnet::cpu_scatter_assign {
namespace {

void infer(const NoArgs&, ShapeCall& call) {
  if (call.known(0)) require(call.shape(0).rank() >= 1, "DATA is a single value, which has no rows");
  call.set_like(0, 0);
  if (!call.all_known()) return;
  const Shape& data = call.shape(0);
  const int64_t row = data.size_between(1, data.rank()), rows = call.shape(1).size();
  int64_t size = 0;
  require(!__builtin_mul_overflow(row, rows, &size) && call.shape(2).size() == size,
          "SLICES {} has {} elements, but there are {} indices of rows of {}", call.shape(2), call.shape(2).size(),
          rows, row);
  require(call.dtype(2) == call.dtype(0), "SLICES must be {} as DATA is, but is {}", dtype_name(call.dtype(0)),
          dtype_name(call.dtype(2)));
}

void assign(Call& call) {
  Tensor& data = call.out(0);
  check_indices(call.in(1), data.dim(0));
  const int64_t row = data.shape().size_between(1, data.rank());
  with_indices(call.in(1), [&](auto indices) {
    for (size_t k = 0; k < indices.size(); ++k)
      copy_elements(call.in(2), static_cast<int64_t>(k) * row, data, indices[k] * row, row);
  });
}

REGISTER(scatter_assign) {
  return op("ScatterAssign")
      .doc("Overwrites rows of a tensor, by index.")
      .input("DATA", "[R, ...] of any type")
      .any_type()
      .input("INDICES", "any shape, K values from 0 to R - 1")
      .types({DType::int32, DType::int64})
      .input("SLICES", "K rows, as DATA's, in any shape")
      .any_type()
      .output("OUTPUT", "DATA with the new rows")
      .any_type()
      .must_be_in_place("DATA", "OUTPUT")
      .shape(infer)
      .cpu(assign)
      .example({"DATA=4,2", "INDICES=int32,2:3,0", "SLICES=2,2"})
      .example({"DATA=3", "INDICES=int64,3:1,1,0", "SLICES=3"})
      .example({"DATA=2,2", "INDICES=int32,0", "SLICES=0,2"})
      .no_gradient("it overwrites what it reads");
}

}  // namespace
}  // namespace stepnet::cpu_scatter_assign
