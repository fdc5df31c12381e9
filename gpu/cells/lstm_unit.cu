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
  bool given;  // gates are i, f, o and g themselves
  bool drop;
  const T *h_prev, *c_prev, *gates;
  T *h, *c, *active;

  __device__ Wide gate(size_t at, Wide bias) const {
    const Wide v = gates[at];
    return given ? v : gpu::sigmoid(v + bias);
  }

  // Element s of the states, whose gates start at x and stand d apart.
  __device__ void run(size_t s, size_t x, size_t d) const {
    const Wide i = gate(x, 0), f = gate(x + d, forget_bias), o = gate(x + 2 * d, 0), at_g = gates[x + 3 * d];
    const Wide g = given ? at_g : std::tanh(at_g);
    const Wide state = f * c_prev[s] + i * g;
    if (c) c[s] = state;
    if (h) h[s] = o * std::tanh(state);
    if (!active) return;
    active[x] = i;
    active[x + d] = f;
    active[x + 2 * d] = o;
    active[x + 3 * d] = g;
  }

  // The same of a row that is over.
  __device__ void hold(size_t s, size_t, size_t) const {
    gpu::hold(drop, h_prev, h, s);
    gpu::hold(drop, c_prev, c, s);
  }
};

constexpr size_t kGates = 4;

// As a part of a kernel for all timesteps.
template <class T>
void record(int device, const gpu::UnitRows& rows, const Step<T>& step) {
  const auto d = static_cast<int64_t>(rows.d);
  gpu::ChainWriter w;
  const gpu::ChainRows in_chain(w, rows);
  const auto gate = [&](int number) { return w.read(step.gates + number * d, 4 * d); };
  const auto active = [&](FusedCode code, int value) { return step.given ? value : w.value(code, value); };
  const int in = active(FusedCode::sigmoid, gate(0)), at_forget = gate(1);
  const int forget = active(FusedCode::sigmoid,
                            step.given ? at_forget : w.value(FusedCode::add_value, at_forget, 0, step.forget_bias));
  const int out = active(FusedCode::sigmoid, gate(2)), candidate = active(FusedCode::tanh, gate(3));
  const int c_prev = w.read(step.c_prev, d);
  const bool holds = in_chain.may_be_over() && !step.drop;
  const int h_prev = holds && step.h ? w.read(step.h_prev, d) : -1;
  const int c = w.sum(w.product(forget, c_prev), w.product(in, candidate));
  w.write(in_chain.value(c, holds ? c_prev : -1), step.c, d);
  w.write(in_chain.value(w.product(out, w.value(FusedCode::tanh, c)), h_prev), step.h, d);
  for (const auto& [number, value] : {std::pair{0, in}, {1, forget}, {2, out}, {3, candidate}})
    w.write(value, step.active ? step.active + number * d : nullptr, 4 * d);
  in_chain.record_as(dtype_of<T>(), device,
                     gpu::QueueAlone([device, rows, step] { gpu::run_unit_rows(device, rows, kGates, step); }));
}

template <class T>
void forward(const LstmArgs& a, gpu::Out<T> h, gpu::Out<T> c, gpu::Out<T> active, Call& call) {
  const gpu::UnitRows rows(a, call, 1);
  const Step<T> step{a.forget_bias,
                     a.from_activated,
                     a.drop_states,
                     gpu::in_data<T>(call, 0),
                     gpu::in_data<T>(call, 1),
                     gpu::in_data<T>(call, 2),
                     h.data,
                     c.data,
                     active.data};
  const int device = gpu::device_of(call);
  if (gpu::recording() && rows.fit_chain()) return record(device, rows, step);
  gpu::run_unit_rows(device, rows, kGates, step);
}

// Null where a tensor is missing or not wanted.
template <class T>
struct Slopes {
  using Wide = gpu::Accumulate<T>;
  Wide forget_bias;
  bool active;  // gates are i, f, o and g themselves
  bool drop;
  const T *c_prev, *gates, *c, *dh, *dc;
  T *dh_prev, *dc_prev, *dgates;

  __device__ Wide gate(size_t at, Wide bias) const {
    const Wide v = gates[at];
    return active ? v : gpu::sigmoid(v + bias);
  }

  __device__ void run(size_t s, size_t x, size_t d) const {
    if (dc_prev || dgates) run_slopes(s, x, d);
    gpu::hold(true, dh, dh_prev, s);
  }

  // Of a row that is over.
  __device__ void hold(size_t s, size_t x, size_t d) const {
    gpu::hold(drop, dh, dh_prev, s);
    gpu::hold(drop, dc, dc_prev, s);
    gpu::hold_zeros(dgates, x, d, 4);
  }

  __device__ void run_slopes(size_t s, size_t x, size_t d) const {
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

// As a part of a kernel for all timesteps.
template <class T>
void record(int device, const gpu::UnitRows& rows, const Slopes<T>& s) {
  const auto d = static_cast<int64_t>(rows.d);
  gpu::ChainWriter w;
  const gpu::ChainRows in_chain(w, rows);
  const auto gate = [&](int number, FusedCode code, float bias) {
    const int value = w.read(s.gates + number * d, 4 * d);
    if (s.active) return value;
    return w.value(code, bias == 0 ? value : w.value(FusedCode::add_value, value, 0, bias));
  };
  const int in = gate(0, FusedCode::sigmoid, 0), out = gate(2, FusedCode::sigmoid, 0);
  const int forget = gate(1, FusedCode::sigmoid, static_cast<float>(s.forget_bias)), g = gate(3, FusedCode::tanh, 0);
  const int t = w.value(FusedCode::tanh, w.read(s.c, d)), from_h = w.read(s.dh, d), from_c = w.read(s.dc, d);
  const int e = w.sum(from_c, w.product(w.product(from_h, out), w.one_minus(w.product(t, t))));
  const bool holds = in_chain.may_be_over() && !s.drop;
  w.write(in_chain.value(w.product(e, forget), holds ? from_c : -1), s.dc_prev, d);
  if (s.dgates) {
    const int before = w.read(s.c_prev, d);
    const auto slope = [&](int number, int value) { w.write(in_chain.value(value, -1), s.dgates + number * d, 4 * d); };
    slope(0, w.product(w.product(e, g), in, w.one_minus(in)));
    slope(1, w.product(w.product(e, before), forget, w.one_minus(forget)));
    slope(2, w.product(w.product(from_h, t), out, w.one_minus(out)));
    slope(3, w.product(e, in, w.one_minus(w.product(g, g))));
  }
  if (s.dh_prev) w.write(holds ? in_chain.value(w.zero_like(from_h), from_h) : w.zero_like(from_h), s.dh_prev, d);
  in_chain.record_as(dtype_of<T>(), device,
                     gpu::QueueAlone([device, rows, s] { gpu::run_unit_rows(device, rows, kGates, s); }));
}

template <class T>
void gradient(const LstmArgs& a, gpu::Out<T> dh_prev, gpu::Out<T> dc_prev, gpu::Out<T> dgates, Call& call) {
  const LstmGradientInputs in(a);
  const gpu::UnitRows rows(a, call, 1);
  const Slopes<T> slopes{a.forget_bias,
                         a.activated_gates,
                         a.drop_states,
                         gpu::in_data<T>(call, 1),
                         gpu::in_data<T>(call, 2),
                         gpu::in_data<T>(call, in.c),
                         gpu::in_data<T>(call, in.dh),
                         gpu::in_data<T>(call, in.dc),
                         dh_prev.data,
                         dc_prev.data,
                         dgates.data};
  const int device = gpu::device_of(call);
  if (gpu::recording() && rows.fit_chain() && slopes.dh && slopes.dc) return record(device, rows, slopes);
  gpu::run_unit_rows(device, rows, kGates, slopes);
}

REGISTER(lstm_unit_cuda) {
  return cuda<LstmArgs>("LSTMUnit", forward<float>, forward<double>, forward<float16>, forward<bfloat16>);
}
REGISTER(lstm_unit_gradient_cuda) {
  return cuda<LstmArgs>("LSTMUnitGradient", gradient<float>, gradient<double>, gradient<float16>, gradient<bfloat16>);
}

}  // namespace
}  // namespace stepnet::gpu_lstm_unit
