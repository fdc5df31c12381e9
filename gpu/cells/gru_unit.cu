// CUDA kernels for GRUUnit and its gradient. Meaning and derivatives: see operators/cells/gru_unit.cc.
#include "operators/cells/gru_unit.h"

#include "gpu/loops/unit_rows.h"

namespace stepnet::gpu_gru_unit {
namespace {

// Everything of an element is read before any of it is written, so that outputs may be inputs.
template <class T>
struct Step {
  bool drop;
  const T *h_prev, *gates;
  T *h, *update, *candidate;

  // Element s of the states, whose gates start at x and stand d apart.
  __device__ void run(size_t s, size_t x, size_t d) const {
    const gpu::Accumulate<T> u = gpu::sigmoid(gates[x + d]), sum = gates[x + 2 * d], o = std::tanh(sum);
    h[s] = u * (h_prev[s] - o) + o;
    if (update) update[s] = u;
    if (candidate) candidate[s] = o;
  }

  // The same of a row that is over.
  __device__ void hold(size_t s, size_t, size_t) const {
    if (update) update[s] = T(drop ? 0 : 1);
    if (candidate) candidate[s] = T(1);
    gpu::hold(drop, h_prev, h, s);
  }
};

constexpr size_t kGates = 3;

// As a part of a kernel for all timesteps.
template <class T>
void record(int device, const gpu::UnitRows& rows, const Step<T>& step) {
  const auto d = static_cast<int64_t>(rows.d);
  gpu::ChainWriter w;
  const gpu::ChainRows in_chain(w, rows);
  const int u = w.value(FusedCode::sigmoid, w.read(step.gates + d, 3 * d));
  const int o = w.value(FusedCode::tanh, w.read(step.gates + 2 * d, 3 * d));
  const int h_prev = w.read(step.h_prev, d);
  const int h = w.sum(w.product(u, w.value(FusedCode::sub, h_prev, o)), o);
  const int one = in_chain.may_be_over() ? w.one_minus(w.zero_like(o)) : -1;
  w.write(in_chain.value(h, step.drop ? -1 : h_prev), step.h, d);
  w.write(in_chain.value(u, step.drop ? -1 : one), step.update, d);
  w.write(in_chain.value(o, one), step.candidate, d);
  in_chain.record_as(dtype_of<T>(), device,
                     gpu::QueueAlone([device, rows, step] { gpu::run_unit_rows(device, rows, kGates, step); }));
}

template <class T>
void forward(const UnitArgs& a, gpu::Out<T> h, gpu::Out<T> update, gpu::Out<T> candidates, Call& call) {
  const gpu::UnitRows rows(a, call, 0);
  const Step<T> step{a.drop_states, gpu::in_data<T>(call, 0), gpu::in_data<T>(call, 1), h.data,
                     update.data,   candidates.data};
  const int device = gpu::device_of(call);
  if (gpu::recording() && rows.fit_chain()) return record(device, rows, step);
  gpu::run_unit_rows(device, rows, kGates, step);
}

// Null where a tensor is missing or not wanted. The gates are sums, or `update` and `candidate` are what became of
// them.
template <class T>
struct Slopes {
  bool drop;
  const T *h_prev, *gates, *update, *candidate, *dh;
  T *dh_prev, *dgates;

  __device__ void run(size_t s, size_t x, size_t d) const {
    using Wide = gpu::Accumulate<T>;
    const Wide u = update ? Wide(update[s]) : gpu::sigmoid(gates[x + d]), e = dh[s];
    if (dgates) {
      const Wide value = candidate ? candidate[s] : gates[x + 2 * d], o = candidate ? value : std::tanh(value);
      const Wide before = h_prev[s];
      dgates[x] = T(0);
      dgates[x + d] = e * (before - o) * u * (1 - u);
      dgates[x + 2 * d] = e * (1 - u) * (1 - o * o);
    }
    if (dh_prev) dh_prev[s] = e * u;
  }

  // Of a row that is over.
  __device__ void hold(size_t s, size_t x, size_t d) const {
    gpu::hold(drop, dh, dh_prev, s);
    gpu::hold_zeros(dgates, x, d, 3);
  }
};

// As a part of a kernel for all timesteps.
template <class T>
void record(int device, const gpu::UnitRows& rows, const Slopes<T>& s) {
  const auto d = static_cast<int64_t>(rows.d);
  gpu::ChainWriter w;
  const gpu::ChainRows in_chain(w, rows);
  const int u = s.update ? w.read(s.update, d) : w.value(FusedCode::sigmoid, w.read(s.gates + d, 3 * d));
  const int e = w.read(s.dh, d);
  if (s.dgates) {
    const int o = s.candidate ? w.read(s.candidate, d) : w.value(FusedCode::tanh, w.read(s.gates + 2 * d, 3 * d));
    const int rest = w.one_minus(u), between = w.value(FusedCode::sub, w.read(s.h_prev, d), o);
    w.write(w.zero_like(e), s.dgates, 3 * d);
    w.write(in_chain.value(w.product(w.product(e, between), u, rest), -1), s.dgates + d, 3 * d);
    w.write(in_chain.value(w.product(e, rest, w.one_minus(w.product(o, o))), -1), s.dgates + 2 * d, 3 * d);
  }
  w.write(in_chain.value(w.product(e, u), s.drop ? -1 : e), s.dh_prev, d);
  in_chain.record_as(dtype_of<T>(), device,
                     gpu::QueueAlone([device, rows, s] { gpu::run_unit_rows(device, rows, kGates, s); }));
}

template <class T>
void run_slopes(const gpu::UnitRows& rows, const Slopes<T>& slopes, Call& call) {
  const int device = gpu::device_of(call);
  if (gpu::recording() && rows.fit_chain()) return record(device, rows, slopes);
  gpu::run_unit_rows(device, rows, kGates, slopes);
}

template <class T>
void gradient(const UnitArgs& a, gpu::Out<T> dh_prev, gpu::Out<T> dgates, Call& call) {
  const T* dh = gpu::in_data<T>(call, gru_gradient_dh(a));
  run_slopes<T>(gpu::UnitRows(a, call, 0),
                {a.drop_states, gpu::in_data<T>(call, 0), gpu::in_data<T>(call, 1), nullptr, nullptr, dh, dh_prev.data,
                 dgates.data},
                call);
}

template <class T>
void activated_gradient(const UnitArgs& a, gpu::Out<T> dh_prev, gpu::Out<T> dgates, Call& call) {
  run_slopes<T>(gpu::UnitRows(a, call, 0, 5),
                {a.drop_states, gpu::in_data<T>(call, 0), nullptr, gpu::in_data<T>(call, 2), gpu::in_data<T>(call, 3),
                 gpu::in_data<T>(call, 4), dh_prev.data, dgates.data},
                call);
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
