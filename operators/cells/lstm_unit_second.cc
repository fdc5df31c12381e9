// LSTMUnitGradientGradient: the derivatives of LSTMUnit's gradient, given p of dC_prev, q of dgates and r of dH_prev.
//
// With the gates' values i, f, o, g and t = tanh(C), their first derivatives i', ... and second ones i'', ... by their
// sums (t', t'' by C), e = dC + dH o t', and
//   E = p f + q_i i' g + q_f f' C_prev + q_g i g', the derivative by e,
// the derivatives of p dC_prev + q dgates in a row within its sequence are
//   by dC: E,  by dH: E o t' + q_o o' t,  by C: dH (E o t'' + q_o o' t'),  by C_prev: q_f e f',
//   by the gates' sums: e (q_i i'' g + q_g i' g'), e (p f' + q_f f'' C_prev), dH (E o' t' + q_o o'' t),
//                       e (q_i i' g' + q_g i g'').
// In a row that is over, the gradients passed through: r goes to dH and p to dC, or nothing with drop_states; all else
// is zero. C counts as an input of its own here; that it is made of the others is LSTMUnit's derivative to know.

#include "operators/cells/lstm_unit_second.h"
#include "core/operator/flops.h"
#include "operators/cells/unit_second.h"

namespace stepnet {
namespace {

using namespace lstm_second;

void infer(const LstmSecondArgs& a, ShapeCall& call) {
  check_second_lengths(a, call);
  check_unit_states(a, call, kCPrev, "C_prev", 4, "four");
  require_input(call, kC, "C");
  check_alike(call, kC, "C", kCPrev, "C_prev");
  check_alike(call, kDH, "dH", kCPrev, "C_prev");
  check_alike(call, kDC, "dC", kCPrev, "C_prev");
  check_alike(call, kDHPrevGrad, "dH_prev_grad", kCPrev, "C_prev");
  check_alike(call, kDCPrevGrad, "dC_prev_grad", kCPrev, "C_prev");
  check_alike(call, kDGatesGrad, "dgates_grad", kGates, "gates");
  call.set_like(0, kCPrev);
  call.set_like(1, kGates);
  call.set_like(2, kC);
  call.set_like(3, call.has(kDH) ? kDH : kCPrev);
  call.set_like(4, call.has(kDC) ? kDC : kCPrev);
}

template <class T>
void second(const LstmSecondArgs& a, Call& call) {
  const LstmSecond<T> v([&](int i) { return call.in_span<T>(i).data(); },
                        [&](int o) { return call.out_span<T>(o).data(); });
  const UnitRows rows(a, call, kCPrev);
  constexpr double kNanosecondsPerElement = 80;
  rows.each(
      kNanosecondsPerElement * static_cast<double>(rows.d),
      [&, d = rows.d](int64_t n) {
        for (int64_t j = 0; j < d; ++j) second_element(v, static_cast<T>(a.forget_bias), n * d + j, n * 4 * d + j, d);
      },
      [&, d = rows.d](int64_t n) {
        hold_row(a.drop_states, d, row_of(v.r, n, d), row_of(v.to_dh, n, d));
        hold_row(a.drop_states, d, row_of(v.p, n, d), row_of(v.to_dc, n, d));
        for (T* zero : {v.to_c_prev, v.to_c}) hold_row<T>(true, d, nullptr, row_of(zero, n, d));
        hold_row<T>(true, 4 * d, nullptr, row_of(v.to_gates, n, 4 * d));
      });
}

int leading_rows(const LstmSecondArgs& a, const ShapeCall& c) { return unit_leading_rows(a, c, kCPrev); }

double flops(const LstmSecondArgs&, const ShapeCall& c) { return 84 * input_size(c, kCPrev); }

void declare_inputs(OpBuilder<LstmSecondArgs>& b) {
  declare_second_inputs(b, "LSTMUnit", "C_prev", 4)
      .input("C", "LSTMUnit's output")
      .input("dH", "LSTMUnitGradient's; missing, it counts as zeros")
      .optional()
      .input("dC", "LSTMUnitGradient's; missing, it counts as zeros")
      .optional()
      .input("dH_prev_grad", "the gradient of LSTMUnitGradient's dH_prev")
      .optional()
      .input("dC_prev_grad", "of its dC_prev")
      .optional()
      .input("dgates_grad", "of its dgates")
      .optional();
}

void declare_outputs(OpBuilder<LstmSecondArgs>& b) {
  b.output("C_prev_grad", "like C_prev")
      .optional()
      .uses({"gates", "seq_lengths", "timestep", "C", "dH", "dC", "dgates_grad"})
      .output("gates_grad", "like gates")
      .optional()
      .uses({"C_prev", "gates", "seq_lengths", "timestep", "C", "dH", "dC", "dC_prev_grad", "dgates_grad"})
      .output("C_grad", "like C")
      .optional()
      .uses({"C_prev", "gates", "seq_lengths", "timestep", "C", "dH", "dC_prev_grad", "dgates_grad"})
      .output("dH_grad", "like dH, or like C_prev without it")
      .optional()
      .uses({"C_prev", "gates", "seq_lengths", "timestep", "C", "dH_prev_grad", "dC_prev_grad", "dgates_grad"})
      .output("dC_grad", "like dC, or like C_prev without it")
      .optional()
      .uses({"C_prev", "gates", "seq_lengths", "timestep", "dC_prev_grad", "dgates_grad"});
}

REGISTER(lstm_unit_gradient_gradient) {
  auto builder = op<LstmSecondArgs>("LSTMUnitGradientGradient");
  builder
      .doc(
          "Gradients of LSTMUnitGradient, which are second derivatives of LSTMUnit. C counts as an input of its own. A "
          "missing gradient counts as zeros.")
      .arg("forget_bias", &LstmSecondArgs::forget_bias, 0.0F, "LSTMUnit's")
      .ignored_args({"activated_gates"});
  declare_unit_args(builder);
  declare_inputs(builder);
  declare_outputs(builder);
  return builder.shape(infer)
      .flops(flops)
      .rowwise(leading_rows)
      .cpu_for<float>(second<float>)
      .cpu_for<double>(second<double>)
      .no_gradient("third derivatives of LSTMUnit are not written");
}

}  // namespace
}  // namespace stepnet
