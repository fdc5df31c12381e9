// OneHot: Y[n, k] = 1 if indices[n] == k, else 0. No derivative: indices are integers.

#include "operators/loops/indices.h"
#include "stepnet/operator.h"

namespace stepnet::cpu_one_hot {
namespace {

void shape(const NoArgs&, ShapeCall& call) {
  if (call.known(0))
    require(call.shape(0).rank() == 1, "indices must have one dimension, but have shape {}", call.shape(0));
  if (call.known(1))
    require(call.shape(1).size() == 1, "index_size must be one value, but has shape {}", call.shape(1));
  if (!call.known(0) || !call.value(1)) return;
  const auto size = call.value(1)->item<int64_t>();
  require(size >= 0, "index_size is {}, which is negative", size);
  call.set(0, DType::float32, Shape{call.shape(0)[0], size});
}

void one_hot(Call& call) {
  Tensor& y = call.out(0);
  const int64_t width = y.dim(1);
  check_indices(call.in(0), width);
  y.fill_zero();
  float* rows = y.data<float>();
  with_indices(call.in(0), [&](auto indices) {
    for (size_t n = 0; n < indices.size(); ++n) rows[static_cast<int64_t>(n) * width + indices[n]] = 1;
  });
}

REGISTER(one_hot) {
  return op("OneHot")
      .doc("Rows that are 1 at an index and 0 elsewhere.")
      .input("indices", "[N], each from 0 to index_size - 1")
      .types({DType::int64, DType::int32})
      .input("index_size", "one value, the row length K")
      .types({DType::int64, DType::int32})
      .output("one_hots", "float [N, K]")
      .types({DType::float32})
      .shape(shape)
      .example({"indices=int64,3:2,0,1", "index_size=int64,1:4"})
      .example({"indices=int32,0", "index_size=int32:3"})
      .cpu(one_hot)
      .stop_gradient();
}

}  // namespace
}  // namespace stepnet::cpu_one_hot
