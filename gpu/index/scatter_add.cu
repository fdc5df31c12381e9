// CUDA kernels for ScatterAdd and its gradient. Meaning and derivatives: see operators/index/scatter_add.cc.
#include "operators/index/scatter_add.h"

#include "gpu/loops/scalar.h"
#include "operators/loops/copy_elements.h"
#include "operators/loops/one_axis.h"

namespace stepnet::gpu_scatter_add {
namespace {

// Each sum has one thread, which goes through its line of SRC in order. A line has several threads if there are few
// lines: each takes the places that hash to its part.
template <class T>
void add_lines(const Call& call, const gpu::Indices& indices, const OneAxis& lines, const OneAxis& from,
               const T* source, T* y) {
  constexpr size_t kEnough = size_t{1} << 14;  // threads that keep a device busy
  const auto count = static_cast<size_t>(from.lines()), most = static_cast<size_t>(std::min(from.size, lines.size));
  size_t parts = 1;
  while (parts * count < kEnough && parts < most) parts *= 2;
  const gpu::Bounds bounds = gpu::bounds(call, "an index");
  const int64_t inner = from.inner;
  gpu::each(call, count * parts, [=] __device__(size_t i) {
    const auto line = static_cast<int64_t>(i % count);
    const size_t part = i / count;
    T* const to = y + lines.first(line);
    const int64_t first = from.first(line);
    for (int64_t k = 0; k < from.size; ++k) {
      const int64_t at = first + k * inner, index = indices[static_cast<size_t>(at)];
      if (bounds.inside(index, lines.size) && (static_cast<size_t>(index) & (parts - 1)) == part)
        to[index * inner] += source[at];
    }
  });
}

template <class T>
void forward(const ScatterAddArgs& args, gpu::In<T>, const Tensor& indices, gpu::In<T> source, gpu::Out<T> y,
             Call& call) {
  copy_values(call.in(0), call.out(0));
  const OneAxis lines = one_axis(args, call.in(0).shape()), from = one_axis(args, indices.shape());
  add_lines(call, gpu::Indices(indices), lines, from, source.data, y.data);
}

template <class T>
void gradient(const ScatterAddArgs& args, const Tensor& given, gpu::In<T> dy, gpu::Out<T> dsource, Call& call) {
  const OneAxis lines = one_axis(args, call.in(1).shape()), from = one_axis(args, given.shape());
  const gpu::Indices indices(given);
  const gpu::Bounds bounds = gpu::bounds(call, "an index");
  gpu::each(call, dsource.size, [=] __device__(size_t i) {
    const int64_t index = indices[i], at = static_cast<int64_t>(i);
    const int64_t line = at / (from.size * from.inner) * from.inner + at % from.inner;
    const bool good = bounds.inside(index, lines.size);
    dsource[i] = good ? dy[static_cast<size_t>(lines.first(line) + index * lines.inner)] : T(0);
  });
}

REGISTER(scatter_add_cuda) {
  return cuda<ScatterAddArgs>("ScatterAdd", forward<float>, forward<double>, forward<int32_t>, forward<int64_t>);
}
REGISTER(scatter_add_gradient_cuda) {
  return cuda<ScatterAddArgs>("ScatterAddGradient", gradient<float>, gradient<double>);
}

}  // namespace
}  // namespace stepnet::gpu_scatter_add
