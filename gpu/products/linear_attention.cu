// CUDA kernels for LinearAttention and LinearAttentionDecay. Meaning and derivatives: see
// operators/products/linear_attention.cc and linear_attention_decay.cc.
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

// Columns of states, of all pairs: element i of a column is `stride` behind the one before it.
template <class T>
struct Columns {
  T *before, *kept, *state, *gradient;
  T* parts;        // of dg, [T, pairs, V]
  int64_t states;  // elements of all pairs' states
};

// One column of a pair's state: timestep by timestep, and back again chunk by chunk.
template <class T>
__device__ void differentiate(const LinearAttentionOrder& order, const LinearAttentionSizes& s,
                              const LinearAttentionDecayPointers<T>& p, const Columns<T>& room, int64_t pair,
                              int64_t column) {
  const int64_t begin = pair * s.state() + column, stride = s.values;
  T *const state = room.state + begin, *const gradient = room.gradient + begin;
  const auto factor = [&](int64_t n) {
    const int64_t row = order.factor(n);
    return row < 0 ? T(1) : exp(p.g[row * s.pairs + pair]);
  };
  // Adds rows[n] * other[n][column], which are 0 behind the last timestep.
  const auto add = [&](int64_t n, const T* rows, const T* other, T* to) {
    const int64_t row = order.row(n);
    if (row < 0) return;
    const int64_t at = row * s.pairs + pair;
    const T x = other[at * s.values + column];
    for (int64_t i = 0; i < s.keys; ++i) to[i * stride] += rows[at * s.keys + i] * x;
  };
  for (int64_t i = 0; i < s.keys; ++i) {
    state[i * stride] = p.first ? p.first[begin + i * stride] : T(0);
    gradient[i * stride] = p.dlast ? p.dlast[begin + i * stride] : T(0);
  }
  for (int64_t n = 0; n < order.count(); ++n) {
    if (n % kDecayChunkOnGpu == 0) {
      T* const before = room.before + n / kDecayChunkOnGpu * room.states + begin;
      for (int64_t i = 0; i < s.keys; ++i) before[i * stride] = state[i * stride];
    }
    const T f = factor(n);
    for (int64_t i = 0; i < s.keys; ++i) state[i * stride] *= f;
    add(n, p.k, p.v, state);
  }
  for (int64_t chunk = (order.count() - 1) / kDecayChunkOnGpu; chunk >= 0; --chunk) {
    const int64_t first = chunk * kDecayChunkOnGpu;
    const int64_t end = first + kDecayChunkOnGpu < order.count() ? first + kDecayChunkOnGpu : order.count();
    const T* const before = room.before + chunk * room.states + begin;
    for (int64_t i = 0; i < s.keys; ++i) state[i * stride] = before[i * stride];
    for (int64_t n = first; n < end; ++n) {
      T* const kept = room.kept + (n - first) * room.states + begin;
      const T f = factor(n);
      for (int64_t i = 0; i < s.keys; ++i) state[i * stride] = kept[i * stride] = f * state[i * stride];
      add(n, p.k, p.v, state);
    }
    for (int64_t n = end - 1; n >= first; --n) {
      const T* const kept = room.kept + (n - first) * room.states + begin;
      add(n, p.q, p.dy, gradient);
      T sum = 0;
      for (int64_t i = 0; i < s.keys; ++i) sum += kept[i * stride] * gradient[i * stride];
      if (const int64_t row = order.factor(n); row >= 0) room.parts[(row * s.pairs + pair) * s.values + column] = sum;
      const T f = factor(n);
      for (int64_t i = 0; i < s.keys; ++i) gradient[i * stride] *= f;
    }
  }
}

// A thread for each column, and then one for each number.
template <class T>
void forward_decay(const LinearAttentionArgs& args, gpu::In<T> q, gpu::In<T> k, gpu::In<T> v, gpu::In<T> g,
                   gpu::In<T> dy, gpu::In<T> first, gpu::In<T> dlast, gpu::Out<T> out, Call& call) {
  const LinearAttentionSizes s(call);
  const LinearAttentionOrder order(args, s);
  const LinearAttentionDecayPointers<T> p{q.data, k.data, v.data, g.data, dy.data, first.data, dlast.data, out.data};
  const gpu::Temporary<T> room(call, decay_elements_on_gpu(args, s));
  const int64_t states = s.pairs * s.state();
  const int64_t chunks = (order.count() + kDecayChunkOnGpu - 1) / kDecayChunkOnGpu;
  T* const kept = room.data + chunks * states;
  T* const state = kept + kDecayChunkOnGpu * states;
  const Columns<T> columns{room.data, kept, state, state + states, state + 2 * states, states};
  if (s.steps > 0)
    gpu::each(call, static_cast<size_t>(s.pairs * s.values), [=] __device__(size_t i) {
      differentiate(order, s, p, columns, static_cast<int64_t>(i) / s.values, static_cast<int64_t>(i) % s.values);
    });
  gpu::each(call, static_cast<size_t>(s.steps * s.pairs), [=] __device__(size_t i) {
    T sum = 0;
    for (int64_t column = 0; column < s.values; ++column)
      sum += columns.parts[static_cast<int64_t>(i) * s.values + column];
    p.out[i] = sum;
  });
}

REGISTER(linear_attention_cuda) {
  return cuda<LinearAttentionArgs>("LinearAttention", forward<float>, forward<double>);
}
REGISTER(linear_attention_decay_cuda) {
  return cuda<LinearAttentionArgs>("LinearAttentionDecay", forward_decay<float>, forward_decay<double>);
}

}  // namespace
}  // namespace stepnet::gpu_linear_attention
