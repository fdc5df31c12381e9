// CUDA kernels for LayerNorm and its gradient. Meaning and derivatives: see operators/norm/layer_norm.cc.
#include "operators/norm/layer_norm.h"

#include <cmath>

#include "gpu/loops/teams.h"
#include "gpu/runtime/accumulate.h"
#include "gpu/runtime/timesteps.h"
#include "operators/loops/axis_rows.h"

namespace stepnet::gpu_layer_norm {
namespace {

// As a part of a kernel for all timesteps.
gpu::QueuedRows queued(gpu::RowKind kind, DType dtype, const AxisRows& rows) {
  return {.kind = kind, .dtype = dtype, .rows = rows.count, .size = rows.size};
}

// The mean is taken off before squares are summed, so that none of it is lost. A row without elements has a mean of 0.
template <class T>
void normalize(int device, const AxisRows& rows, double epsilon, gpu::In<T> x, gpu::In<T> gamma, gpu::In<T> beta,
               gpu::Out<T> y, gpu::Out<T> means, gpu::Out<T> deviations) {
  using Wide = gpu::Accumulate<T>;
  const size_t size = static_cast<size_t>(rows.size);
  const double n = size > 0 ? static_cast<double>(size) : 1;
  const bool affine = gamma.data;
  gpu::each_team(device, static_cast<size_t>(rows.count), [=] __device__(size_t r, const gpu::Team& team) {
    const size_t first = r * size;
    Wide sum = 0, squares = 0;
    for (size_t i = team.thread; i < size; i += team.size) sum += x[first + i];
    const Wide mean = team.sum(sum) / static_cast<Wide>(n);
    for (size_t i = team.thread; i < size; i += team.size) squares += (x[first + i] - mean) * (x[first + i] - mean);
    const auto deviation = static_cast<Wide>(std::sqrt(static_cast<double>(team.sum(squares)) / n + epsilon));
    const Wide scale = 1 / deviation;
    for (size_t i = team.thread; i < size; i += team.size) {
      const Wide u = (x[first + i] - mean) * scale;
      y[first + i] = affine ? u * gamma[i] + beta[i] : u;
    }
    if (team.thread > 0) return;
    if (means.data) means[r] = mean;
    if (deviations.data) deviations[r] = deviation;
  });
}

template <class T>
void forward(const LayerNormArgs& a, gpu::In<T> x, gpu::In<T> gamma, gpu::In<T> beta, gpu::Out<T> y, gpu::Out<T> means,
             gpu::Out<T> deviations, Call& call) {
  using gpu::RowTensor;
  const AxisRows rows = rows_of(a, call.in(0).shape());
  const int device = gpu::device_of(call);
  const double epsilon = static_cast<double>(a.epsilon);
  if (!gpu::recording() || x.size == 0) return normalize(device, rows, epsilon, x, gamma, beta, y, means, deviations);
  gpu::QueuedRows work = queued(gpu::RowKind::layer_norm, dtype_of<T>(), rows);
  work.number = epsilon;
  work.scale = gamma.data;
  work.bias = beta.data;
  work.tensors[RowTensor::x] = x.data;
  work.tensors[RowTensor::y] = y.data;
  work.tensors[RowTensor::first_number] = means.data;
  work.tensors[RowTensor::second_number] = deviations.data;
  gpu::record(work, gpu::QueueAlone([device, rows, epsilon, x, gamma, beta, y, means, deviations] {
                normalize(device, rows, epsilon, x, gamma, beta, y, means, deviations);
              }));
}

// The gradient's inputs: dY, Y, mean, std, X, gamma, dmean, dstd. Absent ones are null.
template <class T>
struct Inputs {
  using Wide = gpu::Accumulate<T>;
  size_t size;
  gpu::In<T> dy, mean, deviation, x, gamma, dmean, dstd;

  Inputs(const Call& c, const AxisRows& rows)
      : size(static_cast<size_t>(rows.size)),
        dy(in(c, 0)),
        mean(in(c, 2)),
        deviation(in(c, 3)),
        x(in(c, 4)),
        gamma(in(c, 5)),
        dmean(in(c, 6)),
        dstd(in(c, 7)) {}
  static gpu::In<T> in(const Call& c, int i) { return c.has(i) ? gpu::in_span<T>(c.in(i)) : gpu::In<T>{}; }

  // dY gamma
  __device__ Wide e(size_t r, size_t i) const {
    const Wide d = dy.data ? dy[r * size + i] : T(0);
    return gamma.data ? d * gamma[i] : d;
  }
  __device__ Wide u(size_t r, size_t i) const { return (x[r * size + i] - mean[r]) * (1 / Wide(deviation[r])); }

  __device__ void put_row(size_t r, const gpu::Team& team, T* dx) const {
    const Wide scale = 1 / Wide(deviation[r]), n = static_cast<Wide>(size);
    Wide sum = 0, dot = 0;
    for (size_t i = team.thread; i < size; i += team.size) {
      sum += e(r, i);
      dot += e(r, i) * u(r, i);
    }
    sum = team.sum(sum);
    dot = team.sum(dot);
    const Wide constant = ((dmean.data ? dmean[r] : T(0)) - sum * scale) / n;
    const Wide slope = ((dstd.data ? dstd[r] : T(0)) - dot * scale) / n;
    for (size_t i = team.thread; i < size; i += team.size)
      dx[r * size + i] = e(r, i) * scale + (constant + slope * u(r, i));
  }
};

// The sums over rows, or what they come to.
template <class T>
void sum_gradients(const Call& call, const AxisRows& rows, const Inputs<T>& in, gpu::Out<T> dgamma, gpu::Out<T> dbeta) {
  using Wide = gpu::Accumulate<T>;
  const gpu::Axis axis{1, in.dy.data ? rows.count : 0, rows.size};
  const bool adds_gamma = call.accumulates(1), adds_beta = call.accumulates(2);
  const size_t size = in.size;
  if (dgamma.data)
    gpu::reduce_axis(
        call, axis, Wide(0), [=] __device__(size_t, size_t r, size_t i) { return in.dy[r * size + i] * in.u(r, i); },
        std::plus<Wide>(),
        [=] __device__(size_t, size_t i, Wide sum) { dgamma[i] = adds_gamma ? dgamma[i] + sum : sum; });
  if (dbeta.data)
    gpu::reduce_axis(
        call, axis, Wide(0), [=] __device__(size_t, size_t r, size_t i) { return Wide(in.dy[r * size + i]); },
        std::plus<Wide>(), [=] __device__(size_t, size_t i, Wide sum) { dbeta[i] = adds_beta ? dbeta[i] + sum : sum; });
}

template <class T>
void put_rows(int device, const AxisRows& rows, const Inputs<T>& in, T* dx) {
  gpu::each_team(device, static_cast<size_t>(rows.count),
                 [=] __device__(size_t r, const gpu::Team& team) { in.put_row(r, team, dx); });
}

template <class T>
void record_gradient(int device, const AxisRows& rows, const Inputs<T>& in, T* dx) {
  using gpu::RowTensor;
  gpu::QueuedRows work = queued(gpu::RowKind::layer_norm_gradient, dtype_of<T>(), rows);
  work.scale = in.gamma.data;
  work.tensors[RowTensor::x] = in.x.data;
  work.tensors[RowTensor::dy] = in.dy.data;
  work.tensors[RowTensor::mean] = in.mean.data;
  work.tensors[RowTensor::deviation] = in.deviation.data;
  work.tensors[RowTensor::dmean] = in.dmean.data;
  work.tensors[RowTensor::ddeviation] = in.dstd.data;
  work.tensors[RowTensor::y] = dx;
  gpu::record(work, gpu::QueueAlone([device, rows, in, dx] { put_rows(device, rows, in, dx); }));
}

template <class T>
void gradient(const LayerNormArgs& a, gpu::Out<T> dx, gpu::Out<T> dgamma, gpu::Out<T> dbeta, Call& call) {
  const AxisRows rows = rows_of(a, call.in(4).shape());
  const Inputs<T> in(call, rows);
  const int device = gpu::device_of(call);
  if (dgamma.data || dbeta.data)  // as a rule passes leave them to what comes behind the timesteps
    gpu::end_recording("sums the gradients of its factors or summands in each timestep");
  if (dx.data && gpu::recording() && in.dy.data && dx.size > 0)
    record_gradient(device, rows, in, dx.data);
  else if (dx.data)
    put_rows(device, rows, in, dx.data);
  sum_gradients(call, rows, in, dgamma, dbeta);
}

REGISTER(layer_norm_cuda) {
  return cuda<LayerNormArgs>("LayerNorm", forward<float>, forward<double>, forward<float16>, forward<bfloat16>);
}
REGISTER(layer_norm_gradient_cuda) {
  return cuda<LayerNormArgs>("LayerNormGradient", gradient<float>, gradient<double>, gradient<float16>,
                             gradient<bfloat16>);
}

}  // namespace
}  // namespace stepnet::gpu_layer_norm
