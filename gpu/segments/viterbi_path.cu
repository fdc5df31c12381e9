// CUDA kernel for ViterbiPath. Meaning: see operators/segments/viterbi_path.cc. A step at a time, in which each label
// is a thread's; one thread follows the path back.
#include "gpu/loops/temporary.h"
#include "gpu/runtime/launch.h"

namespace stepnet::gpu_viterbi_path {
namespace {

template <class T>
void forward(gpu::In<T> predictions, gpu::In<T> transitions, gpu::Out<int32_t> path, Call& call) {
  const int64_t steps = call.in(0).dim(0), labels = call.in(0).dim(1);
  if (steps == 0) return;
  const gpu::Temporary<T> scores(call, steps * labels);
  const gpu::Temporary<int32_t> choices(call, steps * labels);
  T* const best = scores.data;
  int32_t* const from = choices.data;
  gpu::each(call, static_cast<size_t>(labels), [=] __device__(size_t j) { best[j] = predictions[j]; });
  for (int64_t n = 1; n < steps; ++n)
    gpu::each(call, static_cast<size_t>(labels), [=] __device__(size_t at) {
      const auto j = static_cast<int64_t>(at);
      const T* const before = best + (n - 1) * labels;
      int64_t chosen = 0;
      for (int64_t i = 1; i < labels; ++i)
        if (before[i] + transitions[i * labels + j] > before[chosen] + transitions[chosen * labels + j]) chosen = i;
      from[n * labels + j] = static_cast<int32_t>(chosen);
      best[n * labels + j] = before[chosen] + transitions[chosen * labels + j] + predictions[n * labels + j];
    });
  gpu::each(call, 1, [=] __device__(size_t) {
    const T* const last = best + (steps - 1) * labels;
    int32_t label = 0;
    for (int64_t j = 1; j < labels; ++j)
      if (last[j] > last[label]) label = static_cast<int32_t>(j);
    for (int64_t n = steps - 1; n >= 0; --n) {
      path[n] = label;
      if (n > 0) label = from[n * labels + label];
    }
  });
}

REGISTER(viterbi_path_cuda) { return cuda("ViterbiPath", forward<float>, forward<double>); }

}  // namespace
}  // namespace stepnet::gpu_viterbi_path
