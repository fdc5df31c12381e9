// ScatterWeightedSum: with i_k the indices and X_j[k] the k-th row of X_j, in place and in this order:
//
//   X_0[i_k] = w_0 X_0[i_k]             for each k
//   X_0[i_k] = X_0[i_k] + w_j X_j[k]    for each k, for j = 1, 2, ...
//
// so that an index that stands there twice is scaled twice. No derivative: X_0's old values are gone.

#include <vector>

#include "core/operator/flops.h"
#include "operators/optimizer/optimizer.h"
#include "stepnet/half.h"

namespace stepnet::cpu_scatter_weighted_sum {
namespace {

constexpr int kIndices = 2, kFirst = 3;  // inputs: X_0, weight_0, INDICES, X_1, weight_1, ...

void check_weight(const ShapeCall& call, int i, int number) {
  if (!call.known(i)) return;
  require(call.shape(i).size() == 1, "weight {} must be one value, but has shape {}", number, call.shape(i));
  const bool like_table = is_half(call.dtype(i)) && call.known(0) && call.dtype(i) == call.dtype(0);
  require(call.dtype(i) == DType::float32 || call.dtype(i) == DType::float64 || like_table,
          "weight {} must be float or double, but is {}", number, dtype_name(call.dtype(i)));
}

// Exact shapes do not matter, as in the public format: K rows in any shape.
void check_rows(const ShapeCall& call, int i, int number) {
  if (!call.known(0) || !call.known(i)) return;
  require(call.dtype(i) == call.dtype(0), "tensor {} must be {} as X_0 is, but is {}", number,
          dtype_name(call.dtype(0)), dtype_name(call.dtype(i)));
  if (!call.known(kIndices)) return;
  const int64_t row = call.shape(0).size_between(1, call.shape(0).rank()), rows = call.shape(kIndices).size();
  int64_t size = 0;
  require(!__builtin_mul_overflow(row, rows, &size) && call.shape(i).size() == size,
          "tensor {} is {} with {} elements, but there are {} indices of rows of {}", number, call.in(i),
          call.shape(i).size(), rows, row);
}

void shape(const NoArgs&, ShapeCall& call) {
  require(call.inputs() % 2 == 1, "after INDICES tensors and weights alternate, but there are {} inputs",
          call.inputs());
  if (call.known(0)) require(call.shape(0).rank() >= 1, "X_0 is a single value, which has no rows");
  require_one_value(call, 1, "weight 0");
  for (int i = kFirst, number = 1; i < call.inputs(); i += 2, ++number) {
    check_rows(call, i, number);
    check_weight(call, i + 1, number);
  }
  call.set_like(0, 0);
}

// One pass over the indices: X_0[i_k] = of(X_0[i_k], k), element by element. `of` gets the element's place in row k.
template <class T, class Of>
void each_element(Out<T> table, int64_t table_rows, int64_t row, const Tensor& indices, const Of& of) {
  for_each_row(indices, table_rows, 2 + 0.5 * static_cast<double>(row), [&](int64_t k, int64_t at) {
    T* const x = table.data() + at * row;
    for (int64_t i = 0; i < row; ++i) x[i] = of(x[i], k * row + i);
  });
}

template <class T>
void scatter(Out<T> table, Call& call) {
  const Tensor& indices = call.in(kIndices);
  const Shape& shape = call.in(0).shape();
  const int64_t row = shape.size_between(1, shape.rank());
  const T first = static_cast<T>(call.in(1).item<double>());
  check_indices(indices, shape[0]);
  if (first != 1) each_element(table, shape[0], row, indices, [&](T x, int64_t) { return first * x; });
  for (int j = kFirst; j < call.inputs(); j += 2) {
    const In<T> rows = call.in_span<T>(j);
    const T w = static_cast<T>(call.in(j + 1).item<double>());
    each_element(table, shape[0], row, indices, [&](T x, int64_t i) { return x + w * rows[i]; });
  }
}

REGISTER(scatter_weighted_sum) {
  return op("ScatterWeightedSum")
      .doc(
          "Adds weighted rows to rows of a tensor, by index. Inputs are X_0, w_0, INDICES, X_1, w_1, ... Rows of X_0 "
          "that no index names stay as they are; an index that stands there twice is scaled by w_0 twice.")
      .input("X_0", "[R, ...], float or double")
      .input("weight_0", "the weight of the rows that were there, one value")
      .types({DType::float32, DType::float64})
      .input("INDICES", "any shape, K values from 0 to R - 1")
      .types({DType::int32, DType::int64})
      .input("inputs",
             "tensors of X_0's type with K rows, in any shape, each followed by its weight, one float or double")
      .any_type()
      .variadic(2)
      .output("output", "X_0 with the new rows")
      .must_be_in_place("X_0", "output")
      .shape(shape)
      .flops([](const auto&, const ShapeCall& c) {
        double elements = 0;
        for (int j = kFirst; j < c.inputs(); j += 2) elements += 2 * input_size(c, j);
        return input_size(c, kFirst) + elements;
      })
      .cpu(scatter<float>, scatter<double>)
      .no_gradient("it overwrites what it reads")
      .example({"X_0=4,2", "weight_0=1:1", "INDICES=int64,3:2,0,2", "inputs0=3,2", "inputs1=1:-0.125"})
      .example({"X_0=3", "weight_0=1:0.5", "INDICES=int32,1,2:1,1", "inputs0=2", "inputs1=1:-0.125", "inputs2=1,2",
                "inputs3=float,1:2"})
      .example({"X_0=3,2", "weight_0=1:0.5", "INDICES=int64,0", "inputs0=0,2", "inputs1=1:2"});
}

}  // namespace
}  // namespace stepnet::cpu_scatter_weighted_sum
