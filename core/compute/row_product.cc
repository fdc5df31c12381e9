// The kernels of row_product.h for every CPU, and the choice at start.
#include "core/compute/row_product.h"

#include "core/compute/row_product_loops.h"

namespace stepnet {

const RowProductKernels& row_products_plain() { return kRowProductsHere; }

const RowProductKernels& row_products() {
  static const RowProductKernels& best = row_products_wide() ? *row_products_wide() : row_products_plain();
  return best;
}

}  // namespace stepnet
