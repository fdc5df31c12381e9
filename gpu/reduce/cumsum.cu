// CUDA kernel for Cumsum. Meaning and derivative: see operators/reduce/cumsum.cc.
#include "operators/reduce/cumsum.h"

#include "gpu/runtime/launch.h"
#include "operators/loops/one_axis.h"

namespace stepnet::gpu_cumsum {
namespace {

// Lines along the axis, in the direction in which they are added.
struct Lines {
  size_t count, size, inner;
  bool reverse, exclusive;

  // Element k of a line, from where adding begins.
  __host__ __device__ size_t at(size_t line, size_t k) const {
    const size_t place = reverse ? size - 1 - k : k;
    return (line / inner * size + place) * inner + line % inner;
  }
};

// A thread for each line: neighbours read neighbouring elements.
template <class T>
void add_up_each(const Call& call, const Lines& lines, gpu::In<T> x, gpu::Out<T> y) {
  gpu::each(call, lines.count, [=] __device__(size_t line) {
    T sum = 0;
    for (size_t k = 0; k < lines.size; ++k) {
      const size_t at = lines.at(line, k);
      const T before = sum;
      sum += x[at];
      y[at] = lines.exclusive ? before : sum;
    }
  });
}

// A team for each line: as many elements at a time as it has threads.
template <class T>
void add_up_together(const Call& call, const Lines& lines, gpu::In<T> x, gpu::Out<T> y) {
  gpu::each_team(call, lines.count, [=] __device__(size_t line, const gpu::Team& team) {
    T* const sums = reinterpret_cast<T*>(team.room);
    T before = 0;  // the sum of all elements before these
    for (size_t first = 0; first < lines.size; first += team.size) {
      const size_t k = first + team.thread;
      sums[team.thread] = k < lines.size ? x[lines.at(line, k)] : T(0);
      for (unsigned step = 1; step < team.size; step *= 2) {
        team.sync();
        const T left = team.thread >= step ? sums[team.thread - step] : T(0);
        team.sync();
        sums[team.thread] += left;
      }
      team.sync();
      const T up_to = lines.exclusive ? (team.thread > 0 ? sums[team.thread - 1] : T(0)) : sums[team.thread];
      if (k < lines.size) y[lines.at(line, k)] = before + up_to;
      before += sums[team.size - 1];
      team.sync();
    }
  });
}

template <class T>
void forward(const CumsumArgs& a, gpu::In<T> x, gpu::Out<T> y, Call& call) {
  if (x.size == 0) return;
  const OneAxis axis = one_axis(a, call.in(0).shape());
  const Lines lines{static_cast<size_t>(axis.lines()), static_cast<size_t>(axis.size), static_cast<size_t>(axis.inner),
                    a.reverse, a.exclusive};
  if (lines.inner >= gpu::kTile) return add_up_each(call, lines, x, y);
  add_up_together(call, lines, x, y);
}

REGISTER(cumsum_cuda) { return cuda<CumsumArgs>("Cumsum", forward<float>, forward<double>); }

}  // namespace
}  // namespace stepnet::gpu_cumsum
