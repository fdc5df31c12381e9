// CUDA kernels for LSTMUnit and its gradient. Meaning and derivatives: see operators/cells/lstm_unit.cc.
#include "operators/cells/lstm_unit.h"

#include "gpu/loops/unit_rows.h"

namespace stepnet::gpu_lstm_unit {
namespace {

// Everything of an element is read before any of it is written, so that outputs may be inputs.
template <class T>
struct Step {
  using Wide = gpu::Accumulate<T>;
  Wide forget_bias;
  const T *c_prev, *gates;
  T *h, *c, *active;

  // Element s of the states, whose gates start at x and stand d apart.
  __device__ void run(size_t s, size_t x, size_t d) const {
    const Wide i = gpu::sigmoid(gates[x]), f = gpu::sigmoid(gates[x + d] + forget_bias);
    const Wide o = gpu::sigmoid(gates[x + 2 * d]), g = std::tanh(static_cast<Wide>(gates[x + 3 * d]));
    const Wide state = f * c_prev[s] + i * g;
    if (c) c[s] = state;
    if (h) h[s] = o * std::tanh(state);
    if (!active) return;
    active[x] = i;
    active[x + d] = f;
    active[x + 2 * d] = o;
    active[x + 3 * d] = g;
  }
};

template <class T>
void forward(const LstmArgs& a, gpu::Out<T> h, gpu::Out<T> c, gpu::Out<T> active, Call& call) {
  const gpu::UnitRows rows(a, call, 1);
  const T *h_prev = gpu::in_data<T>(call, 0), *c_prev = gpu::in_data<T>(call, 1), *gates = gpu::in_data<T>(call, 2);
  const Step<T> step{a.forget_bias, c_prev, gates, h.data, c.data, active.data};
  const bool drop = a.drop_states;
  gpu::each(call, rows.count * rows.d, [=] __device__(size_t s) {
    const size_t n = s / rows.d;
    if (rows.valid(n)) return step.run(s, 4 * n * rows.d + s % rows.d, rows.d);
    gpu::hold(drop, h_prev, h.data, s);
    gpu::hold(drop, c_prev, c.data, s);
  });
}

// Null where a tensor is missing or not wanted.
template <class T>
struct Slopes {
  using Wide = gpu::Accumulate<T>;
  Wide forget_bias;
  bool active;  // gates are i, f, o and g themselves
  const T *c_prev, *gates, *c, *dh, *dc;
  T *dc_prev, *dgates;

  __device__ Wide gate(size_t at, Wide bias) const {
    const Wide v = gates[at];
    return active ? v : gpu::sigmoid(v + bias);
  }

  __device__ void run(size_t s, size_t x, size_t d) const {
    const Wide i = gate(x, 0), f = gate(x + d, forget_bias), o = gate(x + 2 * d, 0), at_g = gates[x + 3 * d];
    const Wide g = active ? at_g : std::tanh(at_g), t = std::tanh(static_cast<Wide>(c[s]));
    const Wide from_h = dh ? dh[s] : T(0), from_c = dc ? dc[s] : T(0), e = from_c + from_h * o * (1 - t * t);
    const Wide before = dgates ? c_prev[s] : T(0);
    if (dc_prev) dc_prev[s] = e * f;
    if (!dgates) return;
    dgates[x] = e * g * i * (1 - i);
    dgates[x + d] = e * before * f * (1 - f);
    dgates[x + 2 * d] = from_h * t * o * (1 - o);
    dgates[x + 3 * d] = e * i * (1 - g * g);
  }
};

template <class T>
void gradient(const LstmArgs& a, gpu::Out<T> dh_prev, gpu::Out<T> dc_prev, gpu::Out<T> dgates, Call& call) {
  const LstmGradientInputs in(a);
  const gpu::UnitRows rows(a, call, 1);
  const T *dh = gpu::in_data<T>(call, in.dh), *dc = gpu::in_data<T>(call, in.dc);
  const Slopes<T> slopes{a.forget_bias,
                         a.activated_gates,
                         gpu::in_data<T>(call, 1),
                         gpu::in_data<T>(call, 2),
                         gpu::in_data<T>(call, in.c),
                         dh,
                         dc,
                         dc_prev.data,
                         dgates.data};
  const bool drop = a.drop_states;
  gpu::each(call, rows.count * rows.d, [=] __device__(size_t s) {
    const size_t n = s / rows.d, x = 4 * n * rows.d + s % rows.d;
    const bool valid = rows.valid(n);
    if (valid && (dc_prev.data || dgates.data)) slopes.run(s, x, rows.d);
    gpu::hold(drop || valid, dh, dh_prev.data, s);
    if (valid) return;
    gpu::hold(drop, dc, dc_prev.data, s);
    gpu::hold_zeros(dgates.data, x, rows.d, 4);
  });
}

REGISTER(lstm_unit_cuda) {
  return cuda<LstmArgs>("LSTMUnit", forward<float>, forward<double>, forward<float16>, forward<bfloat16>);
}
REGISTER(lstm_unit_gradient_cuda) {
  return cuda<LstmArgs>("LSTMUnitGradient", gradient<float>, gradient<double>, gradient<float16>, gradient<bfloat16>);
}

}  // namespace
}  // namespace stepnet::gpu_lstm_unit
