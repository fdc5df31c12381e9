// GRUUnitGradientGradient: the derivatives of GRUUnit's gradient, given p of dH_prev and q of dgates.
//
// With u the update gate's and o the candidate's value, u', u'', o', o'' their derivatives by their sums, the
// derivatives of p dH_prev + q dgates in a row within its sequence are
//   by dH: p u + q_u (H_prev - o) u' + q_o (1 - u) o',  by H_prev: q_u dH u',
//   by the gates' sums: 0, dH (p u' + q_u (H_prev - o) u'' - q_o u' o'), dH (q_o (1 - u) o'' - q_u u' o').
// In a row that is over, p goes to dH, or nothing with drop_states; all else is zero.

#include "operators/cells/gru_unit_second.h"
#include "core/operator/flops.h"
#include "operators/cells/unit_second.h"

namespace stepnet {
namespace {

using namespace gru_second;

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

template <class T>
void second(const UnitArgs& a, Call& call) {
  const GruSecond<T> v([&](int i) { return call.in_span<T>(i).data(); },
                       [&](int o) { return call.out_span<T>(o).data(); });
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
