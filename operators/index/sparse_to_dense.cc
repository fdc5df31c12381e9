// SparseToDense: Y[indices[n], :] += values[n, :] over a Y of zeros, so rows of one index add up.
//
// d values = Gather(dY, indices); backward reads the indices.

#include <algorithm>
#include <functional>
#include <limits>

#include "core/compute/threads.h"
#include "core/operator/flops.h"
#include "operators/loops/indices.h"
#include "stepnet/operator.h"

namespace stepnet::cpu_sparse_to_dense {
namespace {

struct SparseToDenseArgs {
  std::optional<int64_t> output_first_dim;
};

// One more than the largest index; 0 if there is none.
int64_t needed_rows(const Tensor& indices) {
  int64_t largest = -1;
  with_indices(indices, [&](auto values) {
    for (const auto v : values) largest = std::max(largest, static_cast<int64_t>(v));
  });
  require(largest < std::numeric_limits<int64_t>::max(), "the index {} is too large", largest);
  return largest + 1;
}

std::optional<int64_t> first_dimension(const SparseToDenseArgs& args, const ShapeCall& call) {
  if (call.has(2)) {
    require(!args.output_first_dim, "the number of rows is given by the argument \"output_first_dim\" and by an input");
    if (!call.known(2)) return std::nullopt;
    require(call.shape(2).rank() >= 1, "the third input is a single value, which has no rows");
    return call.shape(2)[0];
  }
  if (args.output_first_dim) {
    require(*args.output_first_dim >= 0, "argument \"output_first_dim\" must be at least 0, but is {}",
            *args.output_first_dim);
    return args.output_first_dim;
  }
  if (!call.value(0)) return std::nullopt;
  return needed_rows(*call.value(0));
}

void shape(const SparseToDenseArgs& args, ShapeCall& call) {
  const std::optional<int64_t> rows = first_dimension(args, call);
  if (!rows || !call.known(0) || !call.known(1)) return;
  const Shape& indices = call.shape(0);
  const Shape& values = call.shape(1);
  require(values.rank() >= indices.rank() && std::equal(indices.begin(), indices.end(), values.begin()),
          "values of shape {} do not begin with the indices' shape {}", values, indices);
  Shape y{*rows};
  for (const int64_t size : values.from(indices.rank())) y.push_back(size);
  call.set(0, call.dtype(1), y);
}

template <class T>
void scatter(Call& call) {
  Tensor& y = call.out(0);
  check_indices(call.in(0), y.dim(0));
  y.fill_zero();
  const int64_t row = y.shape().size_between(1, y.rank());
  const T* from = call.in_span<T>(1).data();
  T* rows = y.data<T>();
  const double elements = static_cast<double>(call.in(1).size());
  with_indices(call.in(0), [&](auto indices) {
    // Threads take columns, so that each sum has one order.
    const auto columns = [&](int64_t begin, int64_t end) {
      for (size_t n = 0; n < indices.size(); ++n) {
        T* const to = rows + indices[n] * row;
        const T* const values = from + static_cast<int64_t>(n) * row;
#pragma omp simd
        for (int64_t j = begin; j < end; ++j) to[j] += values[j];
      }
    };
    parallel_for(row, 0.3 * elements / static_cast<double>(std::max<int64_t>(row, 1)), std::ref(columns));
  });
}

REGISTER(sparse_to_dense) {
  return op<SparseToDenseArgs>("SparseToDense")
      .doc("Adds rows into a tensor of zeros at the given indices.")
      .arg("output_first_dim", &SparseToDenseArgs::output_first_dim, {},
           "the number of rows, if there is no third input; else one more than the largest index")
      .accepts("dense_gradient", "Gather's, whose gradient carries it: the result is dense anyway")
      .input("indices", "any shape, each at least 0")
      .types({DType::int32, DType::int64})
      .input("values", "the indices' shape, then the shape of a row")
      .input("data_to_infer_dim", "a tensor with as many rows as the result has; its values are not read")
      .any_type()
      .shape_only()
      .optional()
      .output("output", "the sums")
      .shape(shape)
      .role(Role::rows_to_dense)
      .example({"indices=int32,3:2,0,2", "values=3,2"})
      .example({"indices=int64,2,2:3,3,0,1", "values=2,2,2"}, {"output_first_dim=5"})
      .example({"indices=int32,2:1,1", "values=2,2", "data_to_infer_dim=4,1"})
      .example({"indices=int32,0", "values=0,2"})
      .flops(flops_per_input(1, 1))
      .cpu_for<float>(scatter<float>)
      .cpu_for<double>(scatter<double>)
      .cpu_for<int32_t>(scatter<int32_t>)
      .cpu_for<int64_t>(scatter<int64_t>)
      .derivative("values",
                  [](Formula& f) {
                    return f.op("Gather", {f.dy("output"), f.x("indices")});
                  })
      .derivative("data_to_infer_dim", [](Formula&) { return Gradient::none(); });
}

}  // namespace
}  // namespace stepnet::cpu_sparse_to_dense
