// CUDA kernels for LSTMUnit and its gradient. Meaning and derivatives: see operators/cells/lstm_unit.cc.
#include "operators/cells/lstm_unit.h"

#include "gpu/loops/unit_rows.h"
#include "gpu/runtime/chain_writer.h"

namespace stepnet::gpu_lstm_unit {
namespace {

// Everything of an element is read before any of it is written, so that outputs may be inputs.
template <class T>
struct Step {
  using Wide = gpu::Accumulate<T>;
  Wide forget_bias;
  bool given;  // gates are i, f, o and g themselves
  const T *c_prev, *gates;
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
};

// Of rows that are all within their sequences.
template <class T>
void run_all(int device, size_t rows, size_t d, const Step<T>& step) {
  const gpu::Divider units(d);
  gpu::each(device, rows * d, [=] __device__(size_t s) { step.run(s, s + 3 * units.divide(s) * d, d); });
}

// As a part of a kernel for all timesteps.
template <class T>
void record_forward(const gpu::UnitRows& rows, const T* c_prev, const T* gates, const Step<T>& step,
                    std::function<void()> run) {
  const auto d = static_cast<int64_t>(rows.d);
  gpu::ChainWriter w;
  const auto gate = [&](int number) { return w.read(gates + number * d, 4 * d); };
  const auto active = [&](FusedCode code, int value) { return step.given ? value : w.value(code, value); };
  const int in = active(FusedCode::sigmoid, gate(0)), at_forget = gate(1);
  const int forget = active(FusedCode::sigmoid,
                            step.given ? at_forget : w.value(FusedCode::add_value, at_forget, 0, step.forget_bias));
  const int out = active(FusedCode::sigmoid, gate(2)), candidate = active(FusedCode::tanh, gate(3));
  const int c = w.sum(w.product(forget, w.read(c_prev, d)), w.product(in, candidate));
  w.write(c, step.c, d);
  w.write(w.product(out, w.value(FusedCode::tanh, c)), step.h, d);
  for (const auto& [number, value] : {std::pair{0, in}, {1, forget}, {2, out}, {3, candidate}})
    w.write(value, step.active ? step.active + number * d : nullptr, 4 * d);
  w.record_as(dtype_of<T>(), d, static_cast<int64_t>(rows.count), std::move(run));
}

template <class T>
void forward(const LstmArgs& a, gpu::Out<T> h, gpu::Out<T> c, gpu::Out<T> active, Call& call) {
  const gpu::UnitRows rows(a, call, 1);
  const T *h_prev = gpu::in_data<T>(call, 0), *c_prev = gpu::in_data<T>(call, 1), *gates = gpu::in_data<T>(call, 2);
  const Step<T> step{a.forget_bias, a.from_activated, c_prev, gates, h.data, c.data, active.data};
  const bool drop = a.drop_states;
  if (gpu::recording() && !rows.lengths)
    return record_forward(rows, c_prev, gates, step,
                          [device = gpu::device_of(call), rows, step] { run_all(device, rows.count, rows.d, step); });
  const gpu::Divider units(rows.d);
  gpu::each(call, rows.count * rows.d, [=] __device__(size_t s) {
    const size_t n = units.divide(s);
    if (rows.valid(n)) return step.run(s, s + 3 * n * rows.d, rows.d);
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

// Of rows that are all within their sequences.
template <class T>
void run_all(int device, size_t rows, size_t d, const Slopes<T>& slopes, T* dh_prev) {
  const gpu::Divider units(d);
  gpu::each(device, rows * d, [=] __device__(size_t s) {
    slopes.run(s, s + 3 * units.divide(s) * d, d);
    if (dh_prev) dh_prev[s] = T(0);
  });
}

// As a part of a kernel for all timesteps.
template <class T>
void record_gradient(const gpu::UnitRows& rows, const Slopes<T>& s, T* dh_prev, std::function<void()> run) {
  const auto d = static_cast<int64_t>(rows.d);
  gpu::ChainWriter w;
  const auto gate = [&](int number, FusedCode code, float bias) {
    const int value = w.read(s.gates + number * d, 4 * d);
    if (s.active) return value;
    return w.value(code, bias == 0 ? value : w.value(FusedCode::add_value, value, 0, bias));
  };
  const int in = gate(0, FusedCode::sigmoid, 0), out = gate(2, FusedCode::sigmoid, 0);
  const int forget = gate(1, FusedCode::sigmoid, static_cast<float>(s.forget_bias)), g = gate(3, FusedCode::tanh, 0);
  const int t = w.value(FusedCode::tanh, w.read(s.c, d)), from_h = w.read(s.dh, d), from_c = w.read(s.dc, d);
  const int e = w.sum(from_c, w.product(w.product(from_h, out), w.one_minus(w.product(t, t))));
  w.write(w.product(e, forget), s.dc_prev, d);
  if (s.dgates) {
    const int before = w.read(s.c_prev, d);
    const auto slope = [&](int number, int value) { w.write(value, s.dgates + number * d, 4 * d); };
    slope(0, w.product(w.product(e, g), in, w.one_minus(in)));
    slope(1, w.product(w.product(e, before), forget, w.one_minus(forget)));
    slope(2, w.product(w.product(from_h, t), out, w.one_minus(out)));
    slope(3, w.product(e, in, w.one_minus(w.product(g, g))));
  }
  if (dh_prev) w.write(w.zero_like(from_h), dh_prev, d);
  w.record_as(dtype_of<T>(), d, static_cast<int64_t>(rows.count), std::move(run));
}

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
  if (gpu::recording() && !rows.lengths && dh && dc)
    return record_gradient(rows, slopes, dh_prev.data,
                           [device = gpu::device_of(call), rows, slopes, dh_prev = dh_prev.data] {
                             run_all(device, rows.count, rows.d, slopes, dh_prev);
                           });
  const gpu::Divider units(rows.d);
  gpu::each(call, rows.count * rows.d, [=] __device__(size_t s) {
    const size_t n = units.divide(s), x = s + 3 * n * rows.d;
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
