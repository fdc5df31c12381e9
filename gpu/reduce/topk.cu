// CUDA kernels for TopK, its gradients and ArgMax. Meaning and derivatives: see operators/reduce/topk.cc. A line is
// searched once for each of its k elements.
#include "operators/reduce/topk.h"

#include "gpu/loops/greatest.h"
#include "gpu/loops/scalar.h"

namespace stepnet::gpu_topk {
namespace {

template <class T>
struct GreatestOfLine {
  OneAxis from, to;
  gpu::In<T> x;
  gpu::Out<T> values;
  gpu::Out<int64_t> indices, flat;

  template <class Worker>
  __device__ void operator()(size_t n, const Worker& worker) const {
    const auto line = static_cast<int64_t>(n);
    const int64_t first = from.first(line);
    gpu::Candidate<T> last;
    for (int64_t k = 0; k < to.size; ++k) {
      const bool there = k < from.size;
      if (there)
        last = gpu::next_greatest(x.data + first, static_cast<size_t>(from.size), static_cast<size_t>(from.inner), last,
                                  worker);
      if (worker.thread > 0) continue;
      const int64_t at = to.first(line) + k * to.inner;
      if (values.data) values[at] = there ? last.value : T(0);
      if (indices.data) indices[at] = there ? last.index : -1;
      if (flat.data) flat[at] = there ? first + last.index * from.inner : -1;
    }
  }
};

template <class T>
void forward(const TopKArgs& a, gpu::In<T> x, gpu::Out<T> values, gpu::Out<int64_t> indices, gpu::Out<int64_t> flat,
             Call& call) {
  const OneAxis from = one_axis(a, call.in(0).shape()), to{from.outer, a.k, from.inner};
  gpu::each_line(call, from, GreatestOfLine<T>{from, to, x, values, indices, flat});
}

// Whether an index stands for no element, which it may where there are fewer than k.
__host__ __device__ bool is_missing(int64_t place, int64_t k, int64_t size) { return place == -1 && k > size; }

// Indices of a line may be equal if they are not TopK's own, so one thread adds a line's gradients in order.
template <class T>
void gradient(const TopKArgs& a, gpu::In<T> dvalues, const Tensor& indices, gpu::Out<T> dx, Call& call) {
  const OneAxis to = one_axis(a, call.in(2).shape()), from{to.outer, a.k, to.inner};
  const gpu::Indices places(indices);
  const gpu::Bounds bounds = gpu::bounds(call, "an index");
  gpu::each(call, dx.size, [=] __device__(size_t i) { dx[i] = T(0); });
  gpu::each(call, static_cast<size_t>(from.lines()), [=] __device__(size_t n) {
    const auto line = static_cast<int64_t>(n);
    for (int64_t k = 0; k < from.size; ++k) {
      const int64_t at = from.first(line) + k * from.inner, place = places[at];
      if (is_missing(place, from.size, to.size)) continue;
      if (bounds.inside(place, to.size)) dx[to.first(line) + place * to.inner] += dvalues[at];
    }
  });
}

template <class T>
void second_gradient(const TopKArgs& a, gpu::In<T> ddx, const Tensor& indices, gpu::Out<T> y, Call& call) {
  const OneAxis from = one_axis(a, call.in(0).shape()), to{from.outer, a.k, from.inner};
  const gpu::Indices places(indices);
  const gpu::Bounds bounds = gpu::bounds(call, "an index");
  gpu::each(call, y.size, [=] __device__(size_t i) {
    const auto at = static_cast<int64_t>(i);
    const int64_t line = at / (to.size * to.inner) * to.inner + at % to.inner, place = places[i];
    const bool there = !is_missing(place, to.size, from.size) && bounds.inside(place, from.size);
    y[i] = there ? ddx[from.first(line) + place * from.inner] : T(0);
  });
}

REGISTER(topk_cuda) {
  return cuda<TopKArgs>("TopK", forward<float>, forward<double>, forward<int32_t>, forward<int64_t>);
}
REGISTER(topk_gradient_cuda) { return cuda<TopKArgs>("TopKGradient", gradient<float>, gradient<double>); }
REGISTER(topk_second_gradient_cuda) {
  return cuda<TopKArgs>("TopKSecondGradient", second_gradient<float>, second_gradient<double>);
}

template <class T>
struct PlaceOfGreatest {
  OneAxis axis;
  gpu::In<T> x;
  gpu::Out<int64_t> y;

  template <class Worker>
  __device__ void operator()(size_t line, const Worker& worker) const {
    const T* const first = x.data + axis.first(static_cast<int64_t>(line));
    const gpu::Candidate<T> best = gpu::next_greatest(first, static_cast<size_t>(axis.size),
                                                      static_cast<size_t>(axis.inner), gpu::Candidate<T>(), worker);
    if (worker.thread == 0) y[line] = best.index;
  }
};

template <class T>
void argmax_forward(const ArgMaxArgs& a, gpu::In<T> x, gpu::Out<int64_t> y, Call& call) {
  const OneAxis axis = one_axis(a, call.in(0).shape());
  gpu::each_line(call, axis, PlaceOfGreatest<T>{axis, x, y});
}

REGISTER(argmax_cuda) {
  return cuda<ArgMaxArgs>("ArgMax", argmax_forward<float>, argmax_forward<double>, argmax_forward<int32_t>,
                          argmax_forward<int64_t>);
}

}  // namespace
}  // namespace stepnet::gpu_topk
