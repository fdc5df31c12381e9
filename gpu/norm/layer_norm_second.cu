// CUDA kernels for LayerNormSecondGradient. Meaning: see operators/norm/layer_norm_second.cc.
#include "operators/norm/layer_norm_second.h"

#include "gpu/loops/temporary.h"
#include "operators/loops/axis_rows.h"

namespace stepnet::gpu_layer_norm_second {
namespace {

namespace at = layer_norm_second;

// Null where a tensor is missing or not wanted.
template <class T>
struct Tensors {
  size_t size;
  const T* in[at::kDdbeta + 1];
  T* out[at::kDstdGrad + 1];

  Tensors(const Call& c, const AxisRows& rows) : size(static_cast<size_t>(rows.size)) {
    for (int i = 0; i <= at::kDdbeta; ++i) in[i] = c.has(i) ? gpu::in_span<T>(c.in(i)).data : nullptr;
    for (int o = 0; o <= at::kDstdGrad; ++o) out[o] = c.wants(o) ? gpu::out_span<T>(c.out(o)).data : nullptr;
  }
  __device__ double value(int i, size_t r) const { return in[i] ? static_cast<double>(in[i][r]) : 0; }
  __device__ const T* row_at(int i, size_t r) const { return in[i] ? in[i] + r * size : nullptr; }
  __device__ void put(int o, size_t i, double value) const {
    if (out[o]) out[o][i] = static_cast<T>(value);
  }

  __device__ NormSecondRow<T> row(size_t r) const {
    NormSecondRow<T> row;
    row.n = static_cast<int64_t>(size);
    row.mean = value(at::kMean, r), row.deviation = value(at::kStd, r), row.dstd = value(at::kDstd, r);
    row.x = row_at(at::kX, r), row.dy = row_at(at::kDy, r), row.h = row_at(at::kDdx, r);
    row.gamma = in[at::kGamma], row.k = in[at::kDdgamma], row.b = in[at::kDdbeta];
    return row;
  }

  __device__ NormSecondMeans means(const NormSecondRow<T>& row, const gpu::Team& team) const {
    NormSecondMeans m;
    for (size_t i = team.thread; i < size; i += team.size) {
      const auto j = static_cast<int64_t>(i);
      const double u = row.u(j), h = row.at(row.h, j);
      m.h += h;
      m.hu += h * u;
      m.eu += row.e(j) * u;
    }
    const double n = size > 0 ? static_cast<double>(size) : 1;
    m.h = team.sum(m.h) / n;
    m.hu = team.sum(m.hu) / n;
    m.eu = team.sum(m.eu) / n;
    return m;
  }

  __device__ void run(size_t r, const gpu::Team& team, gpu::Pair* kept) const {
    const NormSecondRow<T> row = this->row(r);
    const NormSecondMeans m = means(row, team);
    double sum = 0, along = 0;
    for (size_t i = team.thread; i < size; i += team.size) {
      const auto j = static_cast<int64_t>(i);
      const double v = m.v(row, j);
      sum += v;
      along += v * row.u(j) + m.a(row, j) * row.e(j);
      put(at::kDyGrad, r * size + i, m.dy(row, j));
      put(at::kXGrad, r * size + i, v / row.deviation);
    }
    sum = team.sum(sum);
    along = team.sum(along);
    if (team.thread > 0) return;
    put(at::kMeanGrad, r, -sum / row.deviation);
    put(at::kStdGrad, r, -along / row.deviation);
    put(at::kDmeanGrad, r, m.h);
    put(at::kDstdGrad, r, m.hu);
    kept[r] = {m.h, m.hu};
  }
};

template <class T>
void second_gradient(const LayerNormSecondArgs& a, gpu::Out<T>, Call& call) {
  const AxisRows rows = rows_of(a, call.in(at::kX).shape());
  const Tensors<T> t(call, rows);
  const gpu::Temporary<gpu::Pair> room(call, rows.count);
  gpu::Pair* const kept = room.data;
  gpu::each_team(call, static_cast<size_t>(rows.count),
                 [=] __device__(size_t r, const gpu::Team& team) { t.run(r, team, kept); });
  if (!t.out[at::kGammaGrad]) return;
  gpu::reduce_axis(
      call, {1, rows.count, rows.size}, 0.0,
      [=] __device__(size_t, size_t r, size_t i) {
        const NormSecondRow<T> row = t.row(r);
        const NormSecondMeans m{kept[r].first, kept[r].second, 0};
        return row.at(row.dy, static_cast<int64_t>(i)) * m.a(row, static_cast<int64_t>(i));
      },
      std::plus<double>(), [=] __device__(size_t, size_t i, double sum) { t.put(at::kGammaGrad, i, sum); });
}

REGISTER(layer_norm_second_gradient_cuda) {
  return cuda<LayerNormSecondArgs>("LayerNormSecondGradient", second_gradient<float>, second_gradient<double>);
}

}  // namespace
}  // namespace stepnet::gpu_layer_norm_second
