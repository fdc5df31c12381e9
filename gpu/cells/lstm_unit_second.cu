// CUDA kernel for LSTMUnitGradientGradient. Meaning: see operators/cells/lstm_unit_second.cc.
#include "operators/cells/lstm_unit_second.h"

#include "gpu/loops/unit_rows.h"

namespace stepnet::gpu_lstm_unit_second {
namespace {

template <class T>
void second(const LstmSecondArgs& a, gpu::Out<T>, Call& call) {
  const LstmSecond<T> v([&](int i) { return gpu::in_data<T>(call, i); },
                        [&](int o) { return gpu::out_data<T>(call, o); });
  const gpu::UnitRows rows(a, call, lstm_second::kCPrev);
  const bool drop = a.drop_states;
  const T bias = static_cast<T>(a.forget_bias);
  gpu::each(call, rows.count * rows.d, [=] __device__(size_t s) {
    const size_t n = s / rows.d, x = 4 * n * rows.d + s % rows.d;
    const auto at = static_cast<int64_t>(s), gates = static_cast<int64_t>(x), d = static_cast<int64_t>(rows.d);
    if (rows.valid(n)) return second_element(v, bias, at, gates, d);
    gpu::hold(drop, v.r, v.to_dh, s);
    gpu::hold(drop, v.p, v.to_dc, s);
    gpu::hold_zeros(v.to_c_prev, s, 0, 1);
    gpu::hold_zeros(v.to_c, s, 0, 1);
    gpu::hold_zeros(v.to_gates, x, rows.d, 4);
  });
}

REGISTER(lstm_unit_gradient_gradient_cuda) {
  return cuda<LstmSecondArgs>("LSTMUnitGradientGradient", second<float>, second<double>);
}

}  // namespace
}  // namespace stepnet::gpu_lstm_unit_second
