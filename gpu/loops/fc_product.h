// What FC and its kin share on a GPU; see operators/products/fc_product.h, whose sizes_of(args, call) they have.
// Threads: as gpu/runtime/launch.h.
#pragma once

#include <utility>

#include "core/compute/product_epilogue.h"
#include "gpu/loops/elementwise.h"
#include "gpu/loops/products.h"
#include "gpu/loops/reduce.h"
#include "gpu/runtime/accumulate.h"
#include "gpu/runtime/launch.h"
#include "gpu/runtime/timesteps.h"
#include "operators/pointwise/rectifiers.h"
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

// With the Relu that a net wants in the product, where the library has one and a file of choices says that it is the
// fastest way.
template <class T>
bool fc_product_with_relu(const ProductSizes& p, const T* x, const T* w, const T* b, Out<T> y, Call& call) {
  if (wanted_epilogue() != ProductEpilogue::relu || p.m == 0 || p.n == 0 || p.k == 0 || recording()) return false;
  const auto separately = [&](T* to) {
    matmul(call, p, x, w, to, b);
    map(call, In<T>{{to, y.size}}, Out<T>{{to, y.size}}, ReluValue<T>());
  };
  if (!run_vendor_product_with_relu(device_of(call), with_strides(p), x, w, y.data, b, separately)) return false;
  epilogue_is_done();
  return true;
}

template <class Args, class T>
void fc_forward(const Args& a, In<T> x, In<T> w, In<T> b, Out<T> y, Call& call) {
  const FcSizes s = sizes_of(a, call);
  ProductSizes p{.trans_b = !s.transposed, .m = s.m, .n = s.n, .k = s.k, .accumulate = call.accumulates(0)};
  const T* window = in_w(s, w.data, p.ldb);
  if (!fc_product_with_relu(p, x.data, window, b.data, y, call)) matmul(call, p, x.data, window, y.data, b.data);
}

// dW as a product of dY and X, in this order or in the other.
template <class T>
struct FcWeightProduct {
  ProductSizes sizes;
  const T *a, *b;
  T* c;
  SummedOperand dy;  // which of them it is
};

template <class T>
FcWeightProduct<T> fc_weight_product(const FcSizes& s, const T* dy, const T* x, T* dw, bool accumulate) {
  ProductSizes p{.trans_a = true, .m = s.n, .n = s.k, .k = s.m, .accumulate = accumulate};
  if (!s.transposed) {
    T* window = in_w(s, dw, p.ldc);
    return {p, dy, x, window, SummedOperand::a};
  }
  std::swap(p.m, p.n);
  return {p, x, dy, dw, SummedOperand::b};
}

// Both in one product, where the library has one and a file of choices says that it is the fastest way.
template <class T>
bool fc_product_with_sums(const FcSizes& s, const FcWeightProduct<T>& w, const T* dy, T* db, const Call& call) {
  if (s.m == 0 || s.n == 0 || s.k == 0 || recording()) return false;
  const auto separately = [&](T* c, T* sums) {
    matmul(call, w.sizes, w.a, w.b, c);
    sum_rows(call, s.m, s.n, dy, sums, false);
  };
  return run_vendor_product_with_sums(device_of(call), with_strides(w.sizes), w.a, w.b, w.c, w.dy, db, separately);
}

// Beside the window dW is zero, or stays as it is.
template <class T>
void fc_weight_gradients(const FcSizes& s, const T* dy, const T* x, Out<T> dw, Out<T> db, const Call& call) {
  const bool accumulate = call.accumulates(0), adds_up = call.accumulates(1);
  if (!call.wants(0)) {
    if (call.wants(1)) sum_rows(call, s.m, s.n, dy, db.data, adds_up);
    return;
  }
  if (!accumulate && !s.whole()) each(call, dw.size, [=] __device__(size_t i) { dw[i] = T(0); });
  const FcWeightProduct<T> w = fc_weight_product(s, dy, x, dw.data, accumulate);
  if (call.wants(1) && !adds_up && fc_product_with_sums(s, w, dy, db.data, call)) return;
  matmul(call, w.sizes, w.a, w.b, w.c);
  if (call.wants(1)) sum_rows(call, s.m, s.n, dy, db.data, adds_up);
}

template <class Args, class T>
void fc_gradient(const Args& a, In<T> x, In<T> w, In<T> dy, Out<T> dw, Out<T> db, Out<T> dx, Call& call) {
  const FcSizes s = sizes_of(a, call);
  fc_weight_gradients(s, dy.data, x.data, dw, db, call);
  if (!call.wants(2)) return;
  ProductSizes p{.trans_b = s.transposed, .m = s.m, .n = s.k, .k = s.n, .accumulate = call.accumulates(2)};
  const T* window = in_w(s, w.data, p.ldb);
  matmul(call, p, dy.data, window, dx.data);
}

}  // namespace stepnet::gpu
