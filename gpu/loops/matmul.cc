#include "gpu/loops/matmul.h"

namespace stepnet::gpu {
ProductSizes with_strides(ProductSizes s) {
  if (s.lda == 0) s.lda = s.trans_a ? s.m : s.k;
  if (s.ldb == 0) s.ldb = s.trans_b ? s.k : s.n;
  if (s.ldc == 0) s.ldc = s.n;
  return s;
}

}  // namespace stepnet::gpu
