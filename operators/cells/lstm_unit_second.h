// The arguments of LSTMUnitGradientGradient, its tensors and one element of it; see lstm_unit_second.cc.
#pragma once

#include "operators/cells/unit_second.h"

namespace stepnet {

struct LstmSecondArgs : UnitArgs {
  float forget_bias = 0;
};

// Where the inputs stand.
namespace lstm_second {
constexpr int kCPrev = 0, kC = 4, kDH = 5, kDC = 6, kDHPrevGrad = 7, kDCPrevGrad = 8, kDGatesGrad = 9;
}  // namespace lstm_second

// The tensors' elements, which in(i) and out(o) give, all null where they are missing, not wanted or not read.
template <class T>
struct LstmSecond {
  const T *c_prev, *gates, *c, *dh, *dc, *r, *p, *q;
  T *to_c_prev, *to_gates, *to_c, *to_dh, *to_dc;

  template <class In, class Out>
  LstmSecond(const In& in, const Out& out)
      : c_prev(in(lstm_second::kCPrev)),
        gates(in(kGates)),
        c(in(lstm_second::kC)),
        dh(in(lstm_second::kDH)),
        dc(in(lstm_second::kDC)),
        r(in(lstm_second::kDHPrevGrad)),
        p(in(lstm_second::kDCPrevGrad)),
        q(in(lstm_second::kDGatesGrad)),
        to_c_prev(out(0)),
        to_gates(out(1)),
        to_c(out(2)),
        to_dh(out(3)),
        to_dc(out(4)) {}
};

// Element `s` of the states, whose gates start at `x` and stand d apart.
template <class T>
constexpr void second_element(const LstmSecond<T>& v, T forget_bias, int64_t s, int64_t x, int64_t d) {
  const int64_t at_f = x + d, at_o = x + 2 * d, at_g = x + 3 * d;
  const Curve<T> i = sigmoid_curve(value_at(v.gates, x)), f = sigmoid_curve(value_at(v.gates, at_f) + forget_bias);
  const Curve<T> o = sigmoid_curve(value_at(v.gates, at_o)), g = tanh_curve(value_at(v.gates, at_g));
  const Curve<T> t = tanh_curve(value_at(v.c, s));
  const T c_prev = value_at(v.c_prev, s), dh = value_at(v.dh, s), e = value_at(v.dc, s) + dh * o.value * t.slope;
  const T p = value_at(v.p, s), qi = value_at(v.q, x), qf = value_at(v.q, at_f);
  const T qo = value_at(v.q, at_o), qg = value_at(v.q, at_g);
  const T by_e = p * f.value + qi * i.slope * g.value + qf * f.slope * c_prev + qg * i.value * g.slope;
  put(v.to_dc, s, by_e);
  put(v.to_dh, s, by_e * o.value * t.slope + qo * o.slope * t.value);
  put(v.to_c, s, dh * (by_e * o.value * t.bend + qo * o.slope * t.slope));
  put(v.to_c_prev, s, qf * e * f.slope);
  put(v.to_gates, x, e * (qi * i.bend * g.value + qg * i.slope * g.slope));
  put(v.to_gates, at_f, e * (p * f.slope + qf * f.bend * c_prev));
  put(v.to_gates, at_o, dh * (by_e * o.slope * t.slope + qo * o.bend * t.value));
  put(v.to_gates, at_g, e * (qi * i.slope * g.slope + qg * i.value * g.bend));
}

}  // namespace stepnet
