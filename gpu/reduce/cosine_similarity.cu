// CUDA kernels for CosineSimilarity and its gradients. Meaning and derivatives: see
// operators/reduce/cosine_similarity.cc.
#include "operators/reduce/cosine_similarity.h"

#include "gpu/loops/pair_rows.h"

namespace stepnet::gpu_cosine_similarity {
namespace {

// The sum of a row's products, in double; 0 where one of the rows is missing.
template <class T>
__device__ double dot(const gpu::Team& team, const T* x, const T* y, size_t size) {
  double sum = 0;
  if (x && y)
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

template <class T>
struct Second {
  size_t size;
  gpu::In<T> x, y, dz, u, v;
  gpu::Out<T> gx, gy, gz;

  __device__ const T* row(gpu::In<T> values, size_t n) const { return values.data ? values.data + n * size : nullptr; }
  __device__ double at(gpu::In<T> values, size_t i) const { return values.data ? static_cast<double>(values[i]) : 0; }

  __device__ void run(size_t n, const gpu::Team& team) const {
    const T *x_n = row(x, n), *y_n = row(y, n), *u_n = row(u, n), *v_n = row(v, n);
    const CosineSums<T> sums = sums_of(team, x_n, y_n, size);
    const double ux = dot(team, u_n, x_n, size), vy = dot(team, v_n, y_n, size);
    const double uy = dot(team, u_n, y_n, size), vx = dot(team, v_n, x_n, size);
    const CosineSecond<T> p(sums, ux, vy, uy, vx);
    const double given = static_cast<double>(dz[n]);
    if (gz.data && team.thread == 0) gz[n] = static_cast<T>(p.g);
    for (size_t i = n * size + team.thread; i < (n + 1) * size; i += team.size) {
      const double here_u = at(u, i), here_v = at(v, i), here_x = at(x, i), here_y = at(y, i);
      const double by_x = p.s * here_v - p.cosine * p.by_xx * here_u - p.s * p.w * here_y + p.along_x * here_x;
      const double by_y = p.s * here_u - p.cosine * p.by_yy * here_v - p.s * p.w * here_x + p.along_y * here_y;
      if (gx.data) gx[i] = static_cast<T>(given * by_x);
      if (gy.data) gy[i] = static_cast<T>(given * by_y);
    }
  }
};

template <class T>
void second_gradient(Call& call, gpu::In<T> x, gpu::In<T> y, gpu::In<T> dz, gpu::In<T> u, gpu::In<T> v, gpu::Out<T> gx,
                     gpu::Out<T> gy, gpu::Out<T> gz) {
  const size_t size = static_cast<size_t>(pair_rows(call.in(0).shape()).size);
  const Second<T> second{size, x, y, dz, u, v, gx, gy, gz};
  gpu::each_team(call, dz.size, [=] __device__(size_t n, const gpu::Team& team) { second.run(n, team); });
}

REGISTER(cosine_similarity_cuda) { return cuda("CosineSimilarity", forward<float>, forward<double>); }
REGISTER(cosine_similarity_gradient_cuda) {
  return cuda("CosineSimilarityGradient", gradient<float>, gradient<double>);
}
REGISTER(cosine_similarity_second_gradient_cuda) {
  return cuda("CosineSimilaritySecondGradient", second_gradient<float>, second_gradient<double>);
}

}  // namespace
}  // namespace stepnet::gpu_cosine_similarity
