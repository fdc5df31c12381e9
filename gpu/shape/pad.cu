// CUDA kernels for Pad and its gradient. Meaning and derivatives: see operators/shape/pad.cc.
#include "operators/shape/pad.h"

#include "gpu/runtime/launch.h"

namespace stepnet::gpu_pad {
namespace {

struct Padding {
  PadMode mode = PadMode::constant;
  int rank = 0;
  int64_t begin[Shape::kMaxRank] = {};
  int64_t inner[Shape::kMaxRank] = {}, outer[Shape::kMaxRank] = {};  // sizes of the tensor, and of the padded one
  gpu::Divider by_inner[Shape::kMaxRank], by_outer[Shape::kMaxRank];

  Padding(const PadArgs& a, const Shape& x, const Shape& y) : mode(a.kind()), rank(x.rank()) {
    for (int d = 0; d < rank; ++d) {
      begin[d] = a.begin(d);
      inner[d] = x[d];
      outer[d] = y[d];
      by_inner[d] = gpu::Divider(static_cast<size_t>(x[d]));
      by_outer[d] = gpu::Divider(static_cast<size_t>(y[d]));
    }
  }

  // The element that the padded one comes from; -1 if there is none.
  __device__ int64_t source(size_t i) const {
    int64_t at = 0, stride = 1;
    for (int d = rank - 1; d >= 0; --d) {
      const auto [rest, index] = by_outer[d].split(i);
      const int64_t from = pad_source(mode, static_cast<int64_t>(index) - begin[d], inner[d]);
      if (from < 0) return -1;
      at += from * stride;
      stride *= inner[d];
      i = rest;
    }
    return at;
  }
};

// The places along one dimension that come from place i: [first, first + count), or, reflected, those of the three
// candidates at[0] < at[1] < at[2] that there are.
struct Copies {
  int64_t first = 0, count = 0;
  int64_t at[3] = {};
  bool listed = false;

  __device__ Copies(const Padding& p, int d, int64_t i) : listed(p.mode == PadMode::reflect) {
    const int64_t begin = p.begin[d], size = p.inner[d], outer = p.outer[d], same = i + begin;
    if (listed) {
      const int64_t candidates[3] = {i > 0 ? begin - i : -1, same, i < size - 1 ? begin + 2 * (size - 1) - i : -1};
      for (int c = 0; c < 3; ++c)
        if (candidates[c] >= 0 && candidates[c] < outer) at[count++] = candidates[c];
      return;
    }
    const bool edge = p.mode == PadMode::edge;
    first = edge && i == 0 ? 0 : same > 0 ? same : 0;
    int64_t last = edge && i == size - 1 ? outer - 1 : same;
    if (last > outer - 1) last = outer - 1;
    count = last >= first ? last - first + 1 : 0;
  }
  __device__ int64_t operator[](int64_t c) const { return listed ? at[c] : first + c; }
};

// The sum over all elements of the padded tensor that come from element i: a loop over the dimensions within which
// `turn` counts the places of each.
template <class T>
__device__ T sum_of_copies(const Padding& p, size_t i, const T* dy) {
  int64_t place[Shape::kMaxRank] = {}, turn[Shape::kMaxRank] = {};
  for (int d = p.rank - 1; d >= 0; --d) {
    const auto [rest, index] = p.by_inner[d].split(i);
    place[d] = static_cast<int64_t>(index);
    i = rest;
    if (Copies(p, d, place[d]).count == 0) return 0;
  }
  T sum = 0;
  for (int d = 0; d >= 0;) {
    int64_t at = 0;
    for (int e = 0; e < p.rank; ++e) at = at * p.outer[e] + Copies(p, e, place[e])[turn[e]];
    sum += dy[at];
    for (d = p.rank - 1; d >= 0 && ++turn[d] == Copies(p, d, place[d]).count; --d) turn[d] = 0;
  }
  return sum;
}

template <class T>
void pad(const PadArgs& a, gpu::In<T> x, gpu::Out<T> y, Call& call) {
  const T value = pad_value<T>(a);
  const Padding padding(a, call.in(0).shape(), call.out(0).shape());
  gpu::each(call, y.size, [=] __device__(size_t i) {
    const int64_t from = padding.source(i);
    y[i] = from < 0 ? value : x[static_cast<size_t>(from)];
  });
}

template <class T>
void pad_gradient(const PadArgs& a, gpu::In<T> dy, gpu::Out<T> dx, Call& call) {
  const Padding padding(a, call.out(0).shape(), call.in(0).shape());
  gpu::each(call, dx.size, [=] __device__(size_t i) { dx[i] = sum_of_copies(padding, i, dy.data); });
}

REGISTER(pad_cuda) { return cuda<PadArgs>("Pad", pad<float>, pad<double>, pad<int32_t>, pad<int64_t>); }
REGISTER(pad_gradient_cuda) { return cuda<PadArgs>("PadGradient", pad_gradient<float>, pad_gradient<double>); }

}  // namespace
}  // namespace stepnet::gpu_pad
