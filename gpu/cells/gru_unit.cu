// CUDA kernels for GRUUnit and its gradient. Meaning and derivatives: see operators/cells/gru_unit.cc.
#include "operators/cells/gru_unit.h"

#include "gpu/loops/unit_rows.h"

namespace stepnet::gpu_gru_unit {
namespace {

template <class T>
void forward(const UnitArgs& a, gpu::Out<T> h, gpu::Out<T> update, gpu::Out<T> candidates, Call& call) {
  const gpu::UnitRows rows(a, call, 0);
  const T *h_prev = gpu::in_data<T>(call, 0), *gates = gpu::in_data<T>(call, 1);
  const bool drop = a.drop_states;
  gpu::each(call, rows.count * rows.d, [=] __device__(size_t s) {
    const size_t n = s / rows.d, x = 3 * n * rows.d + s % rows.d;
    if (!rows.valid(n)) {
      if (update.data) update[s] = T(drop ? 0 : 1);
      if (candidates.data) candidates[s] = T(1);
      return gpu::hold(drop, h_prev, h.data, s);
    }
    const gpu::Accumulate<T> u = gpu::sigmoid(gates[x + rows.d]), candidate = gates[x + 2 * rows.d],
                             o = std::tanh(candidate);
    h[s] = u * (h_prev[s] - o) + o;
    if (update.data) update[s] = u;
    if (candidates.data) candidates[s] = o;
  });
}

// Everything of an element is read before any of it is written, so that dgates may be the gates.
template <class T>
void gradient(const UnitArgs& a, gpu::Out<T> dh_prev, gpu::Out<T> dgates, Call& call) {
  const gpu::UnitRows rows(a, call, 0);
  const T *h_prev = gpu::in_data<T>(call, 0), *gates = gpu::in_data<T>(call, 1);
  const T* dh = gpu::in_data<T>(call, gru_gradient_dh(a));
  const bool drop = a.drop_states;
  gpu::each(call, rows.count * rows.d, [=] __device__(size_t s) {
    const size_t n = s / rows.d, d = rows.d, x = 3 * n * d + s % d;
    if (!rows.valid(n)) {
      gpu::hold(drop, dh, dh_prev.data, s);
      return gpu::hold_zeros(dgates.data, x, d, 3);
    }
    const gpu::Accumulate<T> u = gpu::sigmoid(gates[x + d]), e = dh[s];
    if (dgates.data) {
      const gpu::Accumulate<T> candidate = gates[x + 2 * d], o = std::tanh(candidate), before = h_prev[s];
      dgates[x] = T(0);
      dgates[x + d] = e * (before - o) * u * (1 - u);
      dgates[x + 2 * d] = e * (1 - u) * (1 - o * o);
    }
    if (dh_prev.data) dh_prev[s] = e * u;
  });
}

template <class T>
void activated_gradient(const UnitArgs& a, gpu::Out<T> dh_prev, gpu::Out<T> dgates, Call& call) {
  const gpu::UnitRows rows(a, call, 0, 5);
  const T *h_prev = gpu::in_data<T>(call, 0), *update = gpu::in_data<T>(call, 2), *candidate = gpu::in_data<T>(call, 3),
          *dh = gpu::in_data<T>(call, 4);
  const bool drop = a.drop_states;
  gpu::each(call, rows.count * rows.d, [=] __device__(size_t s) {
    const size_t n = s / rows.d, d = rows.d, x = 3 * n * d + s % d;
    if (!rows.valid(n)) {
      gpu::hold(drop, dh, dh_prev.data, s);
      return gpu::hold_zeros(dgates.data, x, d, 3);
    }
    const gpu::Accumulate<T> u = update[s], e = dh[s];
    if (dgates.data) {
      const gpu::Accumulate<T> o = candidate[s], before = h_prev[s];
      dgates[x] = T(0);
      dgates[x + d] = e * (before - o) * u * (1 - u);
      dgates[x + 2 * d] = e * (1 - u) * (1 - o * o);
    }
    if (dh_prev.data) dh_prev[s] = e * u;
  });
}

REGISTER(gru_unit_cuda) {
  return cuda<UnitArgs>("GRUUnit", forward<float>, forward<double>, forward<float16>, forward<bfloat16>);
}
REGISTER(gru_unit_gradient_cuda) {
  return cuda<UnitArgs>("GRUUnitGradient", gradient<float>, gradient<double>, gradient<float16>, gradient<bfloat16>);
}

REGISTER(gru_unit_activated_gradient_cuda) {
  return cuda<UnitArgs>("GRUUnitActivatedGradient", activated_gradient<float>, activated_gradient<double>,
                        activated_gradient<float16>, activated_gradient<bfloat16>);
}

}  // namespace
}  // namespace stepnet::gpu_gru_unit
