// The kernels of row_product.h, built for x86-64-v4. Only what is in this file may use its instructions.
#include "core/compute/row_product_loops.h"

namespace stepnet {

const RowProductKernels* row_products_wide() {
#if defined(__AVX512F__)
  return cpu_is_x86_64_v4() ? &kRowProductsHere : nullptr;
#else
  return nullptr;
#endif
}

}  // namespace stepnet
