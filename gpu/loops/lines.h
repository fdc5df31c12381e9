// Kernels on lines of a tensor, whose elements are read more than once: a long line is one team's, a short one a
// thread's, and so is one of lines that lie side by side.
//
//   struct Squares {
//     In<float> x;
//     Out<float> sums;
//     template <class Worker>
//     __device__ void operator()(size_t line, const Worker& worker) const {
//       float sum = 0;
//       for (size_t i = worker.thread; i < size; i += Worker::size) sum += ...
//       sum = worker.sum(sum);
//       if (worker.thread == 0) sums[line] = sum;
//
// Threads: as gpu/runtime/launch.h.
#pragma once

#include "gpu/runtime/launch.h"
#include "operators/loops/one_axis.h"

namespace stepnet::gpu {

// A thread that does a team's work by itself.
struct Alone {
  unsigned thread = 0;
  static constexpr unsigned size = 1;

  __device__ void sync() const {}
  template <class T, class Op>
  __device__ T reduce(T value, Op) const {
    return value;
  }
  template <class T>
  __device__ T sum(T value) const {
    return value;
  }
};

constexpr int64_t kShortLine = kTeam / 8;

// Calls fn(line, worker) for every line, on each of the worker's threads.
template <class Fn>
void each_line(const Call& call, const OneAxis& lines, Fn fn) {
  const auto count = static_cast<size_t>(lines.lines());
  if (lines.inner > 1 || lines.size <= kShortLine)
    return each(call, count, [=] __device__(size_t line) { fn(line, Alone()); });
  each_team(call, count, [=] __device__(size_t line, const Team& team) { fn(line, team); });
}

}  // namespace stepnet::gpu
