// CUDA kernel for GRUUnitGradientGradient. Meaning: see operators/cells/gru_unit_second.cc.
#include "operators/cells/gru_unit_second.h"

#include "gpu/loops/unit_rows.h"

namespace stepnet::gpu_gru_unit_second {
namespace {

template <class T>
void second(const UnitArgs& a, gpu::Out<T>, Call& call) {
  const GruSecond<T> v([&](int i) { return gpu::in_data<T>(call, i); },
                       [&](int o) { return gpu::out_data<T>(call, o); });
  const gpu::UnitRows rows(a, call, gru_second::kHPrev);
  const bool drop = a.drop_states;
  gpu::each(call, rows.count * rows.d, [=] __device__(size_t s) {
    const size_t n = s / rows.d, x = 3 * n * rows.d + s % rows.d;
    const auto at = static_cast<int64_t>(s), gates = static_cast<int64_t>(x), d = static_cast<int64_t>(rows.d);
    if (rows.valid(n)) return second_element(v, at, gates, d);
    gpu::hold(drop, v.p, v.to_dh, s);
    gpu::hold_zeros(v.to_h_prev, s, 0, 1);
    gpu::hold_zeros(v.to_gates, x, rows.d, 3);
  });
}

REGISTER(gru_unit_gradient_gradient_cuda) {
  return cuda<UnitArgs>("GRUUnitGradientGradient", second<float>, second<double>);
}

}  // namespace
}  // namespace stepnet::gpu_gru_unit_second
