// The tensors of GRUUnitGradientGradient and one element of it; see gru_unit_second.cc.
#pragma once

#include "operators/cells/unit_second.h"

namespace stepnet {

// Where the inputs stand.
namespace gru_second {
constexpr int kHPrev = 0, kDH = 4, kDHPrevGrad = 5, kDGatesGrad = 6;
}  // namespace gru_second

// The tensors' elements, which in(i) and out(o) give, all null where they are missing, not wanted or not read.
template <class T>
struct GruSecond {
  const T *h_prev, *gates, *dh, *p, *q;
  T *to_h_prev, *to_gates, *to_dh;

  template <class In, class Out>
  GruSecond(const In& in, const Out& out)
      : h_prev(in(gru_second::kHPrev)),
        gates(in(kGates)),
        dh(in(gru_second::kDH)),
        p(in(gru_second::kDHPrevGrad)),
        q(in(gru_second::kDGatesGrad)),
        to_h_prev(out(0)),
        to_gates(out(1)),
        to_dh(out(2)) {}
};

// Element `s` of the states, whose gates start at `x` and stand d apart.
template <class T>
constexpr void second_element(const GruSecond<T>& v, int64_t s, int64_t x, int64_t d) {
  const int64_t at_u = x + d, at_o = x + 2 * d;
  const Curve<T> u = sigmoid_curve(value_at(v.gates, at_u)), o = tanh_curve(value_at(v.gates, at_o));
  const T more = value_at(v.h_prev, s) - o.value, open = T(1) - u.value, dh = value_at(v.dh, s);
  const T p = value_at(v.p, s), qu = value_at(v.q, at_u), qo = value_at(v.q, at_o);
  put(v.to_dh, s, p * u.value + qu * more * u.slope + qo * open * o.slope);
  put(v.to_h_prev, s, qu * dh * u.slope);
  put(v.to_gates, x, T(0));
  put(v.to_gates, at_u, dh * (p * u.slope + qu * more * u.bend - qo * u.slope * o.slope));
  put(v.to_gates, at_o, dh * (qo * open * o.bend - qu * u.slope * o.slope));
}

}  // namespace stepnet
