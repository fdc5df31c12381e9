// CUDA kernels for CosineSimilarity and its gradient. Meaning and derivatives: see
// operators/reduce/cosine_similarity.cc.
#include "operators/reduce/cosine_similarity.h"

#include "gpu/loops/pair_rows.h"

namespace stepnet::gpu_cosine_similarity {
namespace {

// The sum of a row's products, in double.
template <class T>
__device__ double dot(const gpu::Team& team, const T* x, const T* y, size_t size) {
  double sum = 0;
  for (size_t i = team.thread; i < size; i += team.size) sum += static_cast<double>(x[i]) * static_cast<double>(y[i]);
  return team.sum(sum);
}
template <class T>
__device__ CosineSums<T> sums_of(const gpu::Team& team, const T* x, const T* y, size_t size) {
  const double xx = dot(team, x, x, size), yy = dot(team, y, y, size);
  return {xx, yy, dot(team, x, y, size)};
}

template <class T>
void forward(Call& call, gpu::In<T> x, gpu::In<T> y, gpu::Out<T> z) {
  const size_t size = static_cast<size_t>(pair_rows(call.in(0).shape()).size);
  gpu::each_team(call, z.size, [=] __device__(size_t n, const gpu::Team& team) {
    const CosineSums<T> p = sums_of(team, x.data + n * size, y.data + n * size, size);
    if (team.thread == 0) z[n] = static_cast<T>(p.cosine());
  });
}

// d = (b scale - a along) dz
template <class T>
__device__ T slope(T a, T b, double scale, double along, double dz) {
  return static_cast<T>((static_cast<double>(b) * scale - static_cast<double>(a) * along) * dz);
}

template <class T>
void gradient(Call& call, gpu::In<T> x, gpu::In<T> y, gpu::In<T> dz, gpu::Out<T> dx, gpu::Out<T> dy) {
  const size_t size = static_cast<size_t>(pair_rows(call.in(0).shape()).size);
  gpu::each_team(call, dz.size, [=] __device__(size_t n, const gpu::Team& team) {
    const CosineSums<T> p = sums_of(team, x.data + n * size, y.data + n * size, size);
    const double given = static_cast<double>(dz[n]);
    for (size_t i = n * size + team.thread; i < (n + 1) * size; i += team.size) {
      if (dx.data) dx[i] = slope(x[i], y[i], p.scale, p.along_x(), given);
      if (dy.data) dy[i] = slope(y[i], x[i], p.scale, p.along_y(), given);
    }
  });
}

REGISTER(cosine_similarity_cuda) { return cuda("CosineSimilarity", forward<float>, forward<double>); }
REGISTER(cosine_similarity_gradient_cuda) {
  return cuda("CosineSimilarityGradient", gradient<float>, gradient<double>);
}
}  // namespace
}  // namespace stepnet::gpu_cosine_similarity
