// CUDA kernel for LinearAttention. Meaning and derivatives: see operators/products/linear_attention.cc.
#include "operators/products/linear_attention.h"

#include "gpu/loops/temporary.h"
#include "gpu/runtime/launch.h"

namespace stepnet::gpu_linear_attention {
namespace {

// One column of a pair's state, timestep by timestep; `state` points to its first element, and is last itself if that
// is wanted.
template <class T>
__device__ void attend(const LinearAttentionArgs& args, const LinearAttentionSizes& s,
                       const LinearAttentionPointers<T>& p, T* state, int64_t pair, int64_t column) {
  const int64_t begin = pair * s.state() + column;
  for (int64_t i = 0; i < s.keys; ++i) state[i * s.values] = p.first ? p.first[begin + i * s.values] : T(0);
  T leaving = 1;
  for (int64_t n = 0; n < s.steps; ++n) {
    const int64_t at = (args.reverse ? s.steps - 1 - n : n) * s.pairs + pair;
    const T own = p.g ? exp(p.g[at]) : T(1), factor = args.leaving ? leaving : own, v = p.v[at * s.values + column];
    const T *q = p.q + at * s.keys, *k = p.k + at * s.keys;
    T y = 0;
    for (int64_t i = 0; i < s.keys; ++i) {
      const T next = factor * state[i * s.values] + k[i] * v;
      state[i * s.values] = next;
      y += q[i] * next;
    }
    if (p.y) p.y[at * s.values + column] = y;
    leaving = own;
  }
  for (int64_t i = 0; args.leaving && p.last && i < s.keys; ++i) state[i * s.values] *= leaving;
}

// A thread for each column: neighbours read neighbouring elements.
template <class T>
void forward(const LinearAttentionArgs& args, gpu::In<T> q, gpu::In<T> k, gpu::In<T> v, gpu::In<T> g, gpu::In<T> first,
             gpu::Out<T> y, gpu::Out<T> last, Call& call) {
  const LinearAttentionSizes s(call);
  const LinearAttentionPointers<T> p{q.data, k.data, v.data, g.data, first.data, y.data, last.data};
  const gpu::Temporary<T> room(call, last.data ? 0 : s.pairs * s.state());
  T* const states = last.data ? last.data : room.data;
  gpu::each(call, static_cast<size_t>(s.pairs * s.values), [=] __device__(size_t i) {
    const auto pair = static_cast<int64_t>(i) / s.values, column = static_cast<int64_t>(i) % s.values;
    attend(args, s, p, states + pair * s.state() + column, pair, column);
  });
}

REGISTER(linear_attention_cuda) {
  return cuda<LinearAttentionArgs>("LinearAttention", forward<float>, forward<double>);
}

}  // namespace
}  // namespace stepnet::gpu_linear_attention
