// CUDA kernels for GRUUnit and its gradient. Meaning and derivatives: see operators/cells/gru_unit.cc.
#include "operators/cells/gru_unit.h"

#include "gpu/loops/unit_rows.h"
#include "gpu/runtime/chain_writer.h"

namespace stepnet::gpu_gru_unit {
namespace {

// Everything of an element is read before any of it is written, so that outputs may be inputs.
template <class T>
struct Step {
  const T *h_prev, *gates;
  T *h, *update, *candidate;

  // Element s of the states, whose gates start at x and stand d apart.
  __device__ void run(size_t s, size_t x, size_t d) const {
    const gpu::Accumulate<T> u = gpu::sigmoid(gates[x + d]), sum = gates[x + 2 * d], o = std::tanh(sum);
    h[s] = u * (h_prev[s] - o) + o;
    if (update) update[s] = u;
    if (candidate) candidate[s] = o;
  }
};

// Of rows that are all within their sequences.
template <class Work>
void run_all(int device, size_t rows, size_t d, const Work& work) {
  const gpu::Divider units(d);
  gpu::each(device, rows * d, [=] __device__(size_t s) { work.run(s, s + 2 * units.divide(s) * d, d); });
}

// As a part of a kernel for all timesteps.
template <class T>
void record_step(int device, const gpu::UnitRows& rows, const Step<T>& step) {
  const auto d = static_cast<int64_t>(rows.d);
  gpu::ChainWriter w;
  const int u = w.value(FusedCode::sigmoid, w.read(step.gates + d, 3 * d));
  const int o = w.value(FusedCode::tanh, w.read(step.gates + 2 * d, 3 * d));
  w.write(w.sum(w.product(u, w.value(FusedCode::sub, w.read(step.h_prev, d), o)), o), step.h, d);
  w.write(u, step.update, d);
  w.write(o, step.candidate, d);
  w.record_as(dtype_of<T>(), d, static_cast<int64_t>(rows.count),
              [device, rows = rows.count, width = rows.d, step] { run_all(device, rows, width, step); });
}

template <class T>
void forward(const UnitArgs& a, gpu::Out<T> h, gpu::Out<T> update, gpu::Out<T> candidates, Call& call) {
  const gpu::UnitRows rows(a, call, 0);
  const Step<T> step{gpu::in_data<T>(call, 0), gpu::in_data<T>(call, 1), h.data, update.data, candidates.data};
  const bool drop = a.drop_states;
  if (gpu::recording() && !rows.lengths) return record_step(gpu::device_of(call), rows, step);
  const gpu::Divider units(rows.d);
  gpu::each(call, rows.count * rows.d, [=] __device__(size_t s) {
    const size_t n = units.divide(s);
    if (rows.valid(n)) return step.run(s, s + 2 * n * rows.d, rows.d);
    if (step.update) step.update[s] = T(drop ? 0 : 1);
    if (step.candidate) step.candidate[s] = T(1);
    gpu::hold(drop, step.h_prev, step.h, s);
  });
}

// Null where a tensor is missing or not wanted. The gates are sums, or `update` and `candidate` are what became of
// them.
template <class T>
struct Slopes {
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
};

// As a part of a kernel for all timesteps.
template <class T>
void record_slopes(int device, const gpu::UnitRows& rows, const Slopes<T>& s) {
  const auto d = static_cast<int64_t>(rows.d);
  gpu::ChainWriter w;
  const int u = s.update ? w.read(s.update, d) : w.value(FusedCode::sigmoid, w.read(s.gates + d, 3 * d));
  const int e = w.read(s.dh, d);
  if (s.dgates) {
    const int o = s.candidate ? w.read(s.candidate, d) : w.value(FusedCode::tanh, w.read(s.gates + 2 * d, 3 * d));
    const int rest = w.one_minus(u), between = w.value(FusedCode::sub, w.read(s.h_prev, d), o);
    w.write(w.zero_like(e), s.dgates, 3 * d);
    w.write(w.product(w.product(e, between), u, rest), s.dgates + d, 3 * d);
    w.write(w.product(e, rest, w.one_minus(w.product(o, o))), s.dgates + 2 * d, 3 * d);
  }
  w.write(w.product(e, u), s.dh_prev, d);
  w.record_as(dtype_of<T>(), d, static_cast<int64_t>(rows.count),
              [device, rows = rows.count, width = rows.d, s] { run_all(device, rows, width, s); });
}

template <class T>
void run_slopes(const UnitArgs& a, const gpu::UnitRows& rows, const Slopes<T>& slopes, Call& call) {
  const bool drop = a.drop_states;
  if (gpu::recording() && !rows.lengths) return record_slopes(gpu::device_of(call), rows, slopes);
  const gpu::Divider units(rows.d);
  gpu::each(call, rows.count * rows.d, [=] __device__(size_t s) {
    const size_t n = units.divide(s), d = rows.d, x = s + 2 * n * d;
    if (rows.valid(n)) return slopes.run(s, x, d);
    gpu::hold(drop, slopes.dh, slopes.dh_prev, s);
    gpu::hold_zeros(slopes.dgates, x, d, 3);
  });
}

template <class T>
void gradient(const UnitArgs& a, gpu::Out<T> dh_prev, gpu::Out<T> dgates, Call& call) {
  const T* dh = gpu::in_data<T>(call, gru_gradient_dh(a));
  run_slopes<T>(a, gpu::UnitRows(a, call, 0),
                {gpu::in_data<T>(call, 0), gpu::in_data<T>(call, 1), nullptr, nullptr, dh, dh_prev.data, dgates.data},
                call);
}

template <class T>
void activated_gradient(const UnitArgs& a, gpu::Out<T> dh_prev, gpu::Out<T> dgates, Call& call) {
  run_slopes<T>(a, gpu::UnitRows(a, call, 0, 5),
                {gpu::in_data<T>(call, 0), nullptr, gpu::in_data<T>(call, 2), gpu::in_data<T>(call, 3),
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
