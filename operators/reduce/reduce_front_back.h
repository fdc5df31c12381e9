// What ReduceFrontSum and its relatives reduce, and how; see reduce_front_back.cc. Threads: pure functions.
#pragma once

#include "operators/reduce/reduce.h"

namespace stepnet {

struct FrontBackArgs {
  int64_t num_reduce_dim = 1;
};

// Where X is divided: dimensions before it are of the front.
template <bool kFront>
int front_dims(const FrontBackArgs& a, const Shape& x) {
  require(a.num_reduce_dim <= x.rank(), "argument \"num_reduce_dim\" is {}, but X {} has {} dimensions",
          a.num_reduce_dim, x, x.rank());
  const int reduced = static_cast<int>(a.num_reduce_dim);
  return kFront ? reduced : x.rank() - reduced;
}

// X as a matrix whose columns, if the front is reduced, or rows are stretches of `size` elements, one for each result.
template <bool kFront>
struct Stretches {
  int64_t values = 1, size = 1;

  Stretches(const FrontBackArgs& a, const Shape& x) {
    const int cut = front_dims<kFront>(a, x);
    const int64_t front = x.size_between(0, cut), back = x.size_between(cut, x.rank());
    values = kFront ? back : front;
    size = kFront ? front : back;
  }
  // The place of a stretch's element in X.
  constexpr int64_t at(int64_t value, int64_t element) const {
    return kFront ? element * values + value : value * size + element;
  }
};

// What the elements of a stretch are joined by, from `first`, and what is made of all n of them; of nothing it is 0.
// `share` is what an element gets of the result's gradient.
struct SumOfStretch {
  template <class T>
  static constexpr T first() {
    return 0;
  }
  template <class T>
  constexpr T operator()(T a, T b) const {
    return a + b;
  }
  template <class T>
  static constexpr T finish(T all, int64_t) {
    return all;
  }
  template <class T>
  static constexpr T share(T dy, int64_t) {
    return dy;
  }
};
struct MeanOfStretch : SumOfStretch {
  template <class T>
  static constexpr T finish(T all, int64_t n) {
    if (n <= 0) return T(0);
    if constexpr (std::is_integral_v<T>) return static_cast<T>(all / n);  // n may be more than a T holds
    return static_cast<T>(all / static_cast<T>(n));
  }
  template <class T>
  static constexpr T share(T dy, int64_t n) {
    return dy / static_cast<T>(n);
  }
};
struct MaxOfStretch : SumOfStretch {
  template <class T>
  static constexpr T first() {
    return least_value<T>();
  }
  template <class T>
  constexpr T operator()(T a, T b) const {
    return b > a || b != b ? b : a;
  }
  template <class T>
  static constexpr T finish(T most, int64_t n) {
    return n > 0 ? most : T(0);
  }
};

}  // namespace stepnet
