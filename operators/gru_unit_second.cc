// GRUUnitGradientGradient: the derivatives of GRUUnit's gradient, given p of dH_prev and q of dgates.
//
// With u the update gate's and o the candidate's value, u', u'', o', o'' their derivatives by their sums, the
// derivatives of p dH_prev + q dgates in a row within its sequence are
//   by dH: p u + q_u (H_prev - o) u' + q_o (1 - u) o',  by H_prev: q_u dH u',
//   by the gates' sums: 0, dH (p u' + q_u (H_prev - o) u'' - q_o u' o'), dH (q_o (1 - u) o'' - q_u u' o').
// In a row that is over, p goes to dH, or nothing with drop_states; all else is zero.

#include "operators/flops.h"
#include "operators/unit_second.h"

namespace stepnet {
namespace {

// Where the inputs stand.
constexpr int kHPrev = 0, kDH = 4, kDHPrevGrad = 5, kDGatesGrad = 6;

void infer(const UnitArgs& a, ShapeCall& call) {
  check_second_lengths(a, call);
  check_unit_states(a, call, kHPrev, "H_prev", 3, "three");
  require_input(call, kDH, "dH");
  check_alike(call, kDH, "dH", kHPrev, "H_prev");
  check_alike(call, kDHPrevGrad, "dH_prev_grad", kHPrev, "H_prev");
  check_alike(call, kDGatesGrad, "dgates_grad", kGates, "gates");
  call.set_like(0, kHPrev);
  call.set_like(1, kGates);
  call.set_like(2, kDH);
}

// All null where they are missing, not wanted or not read.
template <class T>
struct SecondTensors {
  const T *h_prev, *gates, *dh, *p, *q;
  T *to_h_prev, *to_gates, *to_dh;

  explicit SecondTensors(Call& call)
      : h_prev(call.in_span<T>(kHPrev).data()),
        gates(call.in_span<T>(kGates).data()),
        dh(call.in_span<T>(kDH).data()),
        p(call.in_span<T>(kDHPrevGrad).data()),
        q(call.in_span<T>(kDGatesGrad).data()),
        to_h_prev(call.out_span<T>(0).data()),
        to_gates(call.out_span<T>(1).data()),
        to_dh(call.out_span<T>(2).data()) {}
};

// Element `s` of the states, whose gates start at `x` and stand d apart.
template <class T>
void second_element(const SecondTensors<T>& v, int64_t s, int64_t x, int64_t d) {
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

template <class T>
void second(const UnitArgs& a, Call& call) {
  const SecondTensors<T> v(call);
  const UnitRows rows(a, call, kHPrev);
  constexpr double kNanosecondsPerElement = 40;
  rows.each(
      kNanosecondsPerElement * static_cast<double>(rows.d),
      [&, d = rows.d](int64_t n) {
        for (int64_t j = 0; j < d; ++j) second_element(v, n * d + j, n * 3 * d + j, d);
      },
      [&, d = rows.d](int64_t n) {
        hold_row(a.drop_states, d, row_of(v.p, n, d), row_of(v.to_dh, n, d));
        hold_row<T>(true, d, nullptr, row_of(v.to_h_prev, n, d));
        hold_row<T>(true, 3 * d, nullptr, row_of(v.to_gates, n, 3 * d));
      });
}

int leading_rows(const UnitArgs& a, const ShapeCall& c) { return unit_leading_rows(a, c, kHPrev); }

double flops(const UnitArgs&, const ShapeCall& c) { return 37 * input_size(c, kHPrev); }

REGISTER(gru_unit_gradient_gradient) {
  auto builder = op<UnitArgs>("GRUUnitGradientGradient");
  builder
      .doc("Gradients of GRUUnitGradient, which are second derivatives of GRUUnit. A missing gradient counts as zeros.")
      .ignored_args({"forget_bias"});
  declare_unit_args(builder);
  return declare_second_inputs(builder, "GRUUnit", "H_prev", 3)
      .input("dH", "GRUUnitGradient's")
      .input("dH_prev_grad", "the gradient of GRUUnitGradient's dH_prev")
      .optional()
      .input("dgates_grad", "of its dgates")
      .optional()
      .output("H_prev_grad", "like H_prev")
      .optional()
      .uses({"gates", "seq_lengths", "timestep", "dH", "dgates_grad"})
      .output("gates_grad", "like gates")
      .optional()
      .uses({"H_prev", "gates", "seq_lengths", "timestep", "dH", "dH_prev_grad", "dgates_grad"})
      .output("dH_grad", "like dH")
      .optional()
      .uses({"H_prev", "gates", "seq_lengths", "timestep", "dH_prev_grad", "dgates_grad"})
      .shape(infer)
      .flops(flops)
      .rowwise(leading_rows)
      .cpu_for<float>(second<float>)
      .cpu_for<double>(second<double>)
      .no_gradient("third derivatives of GRUUnit are not written");
}

}  // namespace
}  // namespace stepnet
