// Cumsum: Y[k] = X[0] + ... + X[k] along an axis; with `exclusive` without X[k] itself, with `reverse` from the end on.
//
// dX = Cumsum of dY in the other direction; nothing is read.

#include "operators/reduce/cumsum.h"

#include <algorithm>

#include "core/operator/flops.h"
#include "operators/loops/one_axis.h"

namespace stepnet::cpu_cumsum {
namespace {

// What stands along the axis is added row by row, where a row is everything behind the axis.
template <class T>
void add_up(const CumsumArgs& a, const OneAxis& axis, const T* x, T* y) {
  const int64_t row = axis.inner, forth = a.reverse ? -row : row;
  int64_t at = a.reverse ? (axis.size - 1) * row : 0;
  for (int64_t k = 0; k < axis.size; ++k, at += forth) {
    T* to = y + at;
    if (k == 0 && a.exclusive) {
      std::fill_n(to, row, T(0));
    } else if (k == 0) {
      std::copy_n(x + at, row, to);
    } else {
      const T *sum = to - forth, *next = x + at - (a.exclusive ? forth : 0);
#pragma omp simd
      for (int64_t i = 0; i < row; ++i) to[i] = sum[i] + next[i];
    }
  }
}

// Rows along which elements are added, which do not wait for each other as the elements of one do.
constexpr int kRows = 8;

template <class T>
void add_up_rows(const CumsumArgs& a, int64_t size, const T* x, T* y) {
  T sums[kRows] = {};
  for (int64_t k = 0; k < size; ++k) {
    const int64_t at = a.reverse ? size - 1 - k : k;
    for (int r = 0; r < kRows; ++r) {
      const T next = x[r * size + at], sum = k == 0 ? next : sums[r] + next;
      y[r * size + at] = a.exclusive ? sums[r] : sum;
      sums[r] = sum;
    }
  }
}

template <class T>
void forward(const CumsumArgs& a, In<T> x, Out<T> y, Call& call) {
  const OneAxis axis = one_axis(a, call.in(0).shape());
  const int64_t block = axis.size * axis.inner;
  auto range = [&](int64_t begin, int64_t end) {
    for (; axis.inner == 1 && begin + kRows <= end; begin += kRows)
      add_up_rows(a, axis.size, x.data() + begin * block, y.data() + begin * block);
    for (int64_t n = begin; n < end; ++n) add_up(a, axis, x.data() + n * block, y.data() + n * block);
  };
  parallel_for(axis.outer, 2.0 + static_cast<double>(block), range);
}

void infer(const CumsumArgs& a, ShapeCall& c) {
  if (!c.known(0)) return;
  canonical_axis(a.axis, c.shape(0).rank());
  c.set_like(0, 0);
}

REGISTER(cumsum) {
  return op<CumsumArgs>("Cumsum")
      .own()
      .doc("Sums of all elements up to each along an axis.")
      .required_arg("axis", &CumsumArgs::axis, "the dimension to add along, a negative one counted from the end")
      .arg("exclusive", &CumsumArgs::exclusive, false, "leave the element itself out, so that the first sum is 0")
      .arg("reverse", &CumsumArgs::reverse, false, "begin at the end")
      .input("X", "any shape of at least one dimension")
      .output("Y", "like X")
      .shape(infer)
      .rowwise(rows_before_axis<CumsumArgs>)
      .example({"X=2,3"}, {"axis=0"})
      .example({"X=2,3,2"}, {"axis=1", "exclusive=true"})
      .example({"X=2,3,2"}, {"axis=-1", "reverse=true"})
      .example({"X=3"}, {"axis=0", "exclusive=true", "reverse=true"})
      .example({"X=2,0"}, {"axis=1"})
      .flops(flops_per_input(1))
      .precision(Precision::float32)
      .cpu(forward<float>, forward<double>)
      .derivative("X", [](Formula& f) {
        const auto& a = f.args<CumsumArgs>();
        return f.op("Cumsum", {f.dy("Y")},
                    {make_arg("axis", a.axis), make_arg("exclusive", a.exclusive), make_arg("reverse", !a.reverse)});
      });
}

}  // namespace
}  // namespace stepnet::cpu_cumsum
