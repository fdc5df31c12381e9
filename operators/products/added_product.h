// The arguments of operators of the form Y = beta M + alpha P, and the sizes of a batch of products; see
// added_product.cc. Threads: pure functions.
#pragma once

#include "stepnet/shape.h"

namespace stepnet {

struct AddedArgs {
  float beta = 1, alpha = 1;
};

// The sizes of a product of A [batch, rows, inner] and B [batch, inner, columns], inputs 1 and 2.
struct BatchProduct {
  int64_t batch = 0, rows = 0, inner = 0, columns = 0;

  double flops() const {
    return 2.0 * static_cast<double>(batch) * static_cast<double>(rows) * static_cast<double>(inner) *
           static_cast<double>(columns);
  }
};

inline BatchProduct batch_product(const Shape& a, const Shape& b) { return {a[0], a[1], a[2], b[2]}; }

}  // namespace stepnet
