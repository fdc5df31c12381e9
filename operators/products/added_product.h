// What operators of the form Y = beta M + alpha P share, where P is a product of the other inputs: the two factors, the
// addition, and the derivative of M, which is beta dY and reads nothing.
// Threads: pure functions.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "core/compute/matmul.h"
#include "core/compute/threads.h"
#include "core/operator/flops.h"
#include "core/operator/operator.h"
#include "operators/products/added_sizes.h"

namespace stepnet {

inline OpBuilder<AddedArgs> added_product_op(const std::string& type) {
  OpBuilder<AddedArgs> b(type);
  b.arg("beta", &AddedArgs::beta, 1.0F, "the factor of what is added; if it is 0, its values are not used")
      .arg("alpha", &AddedArgs::alpha, 1.0F, "the factor of the product");
  return b;
}

// y = alpha y + beta m, where y is the product.
template <class T>
void blend(const AddedArgs& a, In<T> m, Out<T> y) {
  const T alpha = static_cast<T>(a.alpha), beta = static_cast<T>(a.beta);
  auto range = [=, from = m.data(), to = y.data()](int64_t begin, int64_t end) {
    if (beta == T(0)) {
      for (int64_t i = begin; i < end; ++i) to[i] *= alpha;
    } else {
#pragma omp simd
      for (int64_t i = begin; i < end; ++i) to[i] = beta * from[i] + alpha * to[i];
    }
  };
  parallel_for(static_cast<int64_t>(y.size()), 0.4, std::ref(range));
}

// factor v
inline Value times(Formula& f, Value v, float factor) {
  return factor == 1 ? v : f.op("Scale", {v}, {make_arg("scale", factor)});
}

// The gradients of M, and of a factor of P from its gradient for an alpha of 1.
inline Gradient gradient_of_added(Formula& f, const char* output) {
  return times(f, f.dy(output), f.args<AddedArgs>().beta);
}
inline Gradient times_alpha(Formula& f, Value gradient) { return times(f, gradient, f.args<AddedArgs>().alpha); }

// The same, checked; nothing if it is not known yet.
inline std::optional<BatchProduct> batch_product(const ShapeCall& c) {
  for (const int i : {1, 2})
    if (c.known(i))
      require(c.shape(i).rank() == 3, "{} is {}, but a batch of matrices has three dimensions", i == 1 ? "A" : "B",
              c.shape(i));
  if (!c.known(1) || !c.known(2)) return std::nullopt;
  const Shape &a = c.shape(1), &b = c.shape(2);
  require(a[0] == b[0], "A {} has {} matrices, but B {} has {}", a, a[0], b, b[0]);
  require(a[2] == b[1], "matrices of A {} have {} columns, but those of B {} have {} rows", a, a[2], b, b[1]);
  return batch_product(a, b);
}

inline double batch_product_flops(const AddedArgs&, const ShapeCall& c) {
  const auto product = batch_product(c);
  return product ? product->flops() + 3 * input_size(c, 0) : 0;
}

// The products of the batch, one after the other, or their sum.
template <class T>
void multiply_batch(const BatchProduct& p, bool sum, In<T> a, In<T> b, Out<T> y) {
  for (int64_t i = 0; i < p.batch; ++i)
    matmul(false, false, p.rows, p.columns, p.inner, a.data() + i * p.rows * p.inner,
           b.data() + i * p.inner * p.columns, y.data() + (sum ? 0 : i * p.rows * p.columns), sum && i > 0);
}

// Y has the shape of the product, and so must input 0 have.
inline void set_added(ShapeCall& c, const char* name, const Shape& product) {
  if (c.known(0)) require(c.shape(0) == product, "{} is {}, but the product is {}", name, c.shape(0), product);
  c.set(0, c.dtype(1), product);
}

}  // namespace stepnet
