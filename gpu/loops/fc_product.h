// What FC and its kin share on a GPU; see operators/products/fc_product.h, whose sizes_of(args, call) they have.
// Threads: as gpu/runtime/launch.h.
#pragma once

#include "gpu/loops/matmul.h"
#include "gpu/loops/reduce.h"
#include "gpu/runtime/accumulate.h"
#include "operators/products/fc.h"

namespace stepnet::gpu {

// db, [n], is the sum over the rows of dy, [m, n]; or is added to. Each sum has one order.
template <class T>
void sum_rows(const Call& call, int64_t m, int64_t n, const T* dy, T* db, bool accumulate) {
  const size_t columns = static_cast<size_t>(n);
  using Sum = Accumulate<T>;
  reduce(
      call, {1, m, n}, Sum(0),
      [=] __device__(size_t, size_t c, size_t i) { return static_cast<Sum>(dy[c * columns + i]); }, std::plus<Sum>(),
      [=] __device__(size_t, size_t i, Sum sum) { db[i] = accumulate ? db[i] + sum : sum; });
}

// W, or the columns of the window in it, as the second operand of a product.
template <class T>
T* in_w(const FcSizes& s, T* w, int64_t& ld) {
  ld = s.transposed ? 0 : s.columns;
  return w + (s.transposed ? 0 : s.first);
}

template <class Args, class T>
void fc_forward(const Args& a, In<T> x, In<T> w, In<T> b, Out<T> y, Call& call) {
  const FcSizes s = sizes_of(a, call);
  ProductSizes p{.trans_b = !s.transposed, .m = s.m, .n = s.n, .k = s.k, .accumulate = call.accumulates(0)};
  const T* window = in_w(s, w.data, p.ldb);
  matmul(call, p, x.data, window, y.data, b.data);
}

// Beside the window dW is zero, or stays as it is.
template <class T>
void fc_weight_gradient(const FcSizes& s, const T* dy, const T* x, Out<T> dw, const Call& call) {
  const bool accumulate = call.accumulates(0);
  if (s.transposed)
    return matmul(call, {.trans_a = true, .m = s.k, .n = s.n, .k = s.m, .accumulate = accumulate}, x, dy, dw.data);
  if (!accumulate && !s.whole()) each(call, dw.size, [=] __device__(size_t i) { dw[i] = T(0); });
  ProductSizes p{.trans_a = true, .m = s.n, .n = s.k, .k = s.m, .accumulate = accumulate};
  T* window = in_w(s, dw.data, p.ldc);
  matmul(call, p, dy, x, window);
}

template <class Args, class T>
void fc_gradient(const Args& a, In<T> x, In<T> w, In<T> dy, Out<T> dw, Out<T> db, Out<T> dx, Call& call) {
  const FcSizes s = sizes_of(a, call);
  if (call.wants(0)) fc_weight_gradient(s, dy.data, x.data, dw, call);
  if (call.wants(1)) sum_rows(call, s.m, s.n, dy.data, db.data, call.accumulates(1));
  if (!call.wants(2)) return;
  ProductSizes p{.trans_b = s.transposed, .m = s.m, .n = s.k, .k = s.n, .accumulate = call.accumulates(2)};
  const T* window = in_w(s, w.data, p.ldb);
  matmul(call, p, dy.data, window, dx.data);
}

}  // namespace stepnet::gpu
