// The sizes of a matrix product, and where its matrices lie; what they mean: gpu/loops/matmul.h. Threads: plain data.
#pragma once

#include <compare>
#include <cstdint>

namespace stepnet::gpu {

struct ProductSizes {
  bool trans_a = false, trans_b = false;
  int64_t m = 0, n = 0, k = 0;
  bool accumulate = false;
  int64_t lda = 0, ldb = 0, ldc = 0;  // elements from one stored row to the next; 0: rows are dense
  int64_t batch = 1, stride_a = 0, stride_b = 0, stride_c = 0;
  auto operator<=>(const ProductSizes&) const = default;
};

}  // namespace stepnet::gpu
