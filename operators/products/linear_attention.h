// The arguments and sizes of LinearAttention and LinearAttentionDecay; see linear_attention.cc and
// linear_attention_decay.cc. Threads: pure functions.
#pragma once

#include "stepnet/operator.h"

namespace stepnet {

struct LinearAttentionArgs {
  bool reverse = false;
  bool leaving = false;
};

// A pair is an element of the batch and one of its heads, which has a state of its own, [keys, values].
struct LinearAttentionSizes {
  explicit LinearAttentionSizes(const Call& call)
      : steps(call.in(0).shape()[0]),
        pairs(call.in(0).shape()[1] * call.in(0).shape()[2]),
        keys(call.in(0).shape()[3]),
        values(call.in(2).shape()[3]) {}

  constexpr int64_t state() const { return keys * values; }

  int64_t steps, pairs, keys, values;
};

template <class T>
struct LinearAttentionPointers {
  const T *q, *k, *v, *g, *first;  // g and first are null if they are not there
  T *y, *last;                     // null if they are not wanted
};

// The timesteps of LinearAttentionDecay in the order of time. With `leaving` there is one more, of zeros, behind them,
// and a factor belongs to the timestep after its own, before which the state is multiplied by it.
struct LinearAttentionOrder {
  constexpr LinearAttentionOrder(const LinearAttentionArgs& args, const LinearAttentionSizes& s)
      : steps(s.steps), reverse(args.reverse), leaving(args.leaving) {}

  constexpr int64_t count() const { return leaving ? steps + 1 : steps; }
  // Where the n-th one's rows are, and its factor; -1: nowhere.
  constexpr int64_t row(int64_t n) const { return n == steps ? -1 : reverse ? steps - 1 - n : n; }
  constexpr int64_t factor(int64_t n) const { return !leaving ? row(n) : n == 0 ? -1 : row(n - 1); }

  int64_t steps;
  bool reverse, leaving;
};

template <class T>
struct LinearAttentionDecayPointers {
  const T *q, *k, *v, *g, *dy, *first, *dlast;  // the last two are null if they are not there
  T* out;
};

// On a GPU a thread keeps a column of the state before each of so many timesteps, and of those of the chunk it is at,
// beside one of the state, one of its gradient, and its part of each timestep's number.
inline constexpr int64_t kDecayChunkOnGpu = 32;
constexpr int64_t decay_elements_on_gpu(const LinearAttentionArgs& args, const LinearAttentionSizes& s) {
  const int64_t chunks = (LinearAttentionOrder(args, s).count() + kDecayChunkOnGpu - 1) / kDecayChunkOnGpu;
  return s.pairs * ((chunks + kDecayChunkOnGpu + 2) * s.state() + s.steps * s.values);
}

// What derivatives of LinearAttention are taken of; undefined values are not there.
struct LinearAttentionValues {
  bool reverse, leaving;
  Value q = {}, k = {}, v = {}, g = {}, first = {}, dy = {}, dlast = {};
};
// Which are wanted, and the gradients with respect to those; undefined where they are not, or are zero.
struct LinearAttentionWants {
  bool q, k, v, g, first;
};
struct LinearAttentionGradients {
  Value q, k, v, g, first;
};
LinearAttentionGradients differentiate_attention(Formula& f, const LinearAttentionValues& x,
                                                 const LinearAttentionWants& wants);
// y and last, as far as they are wanted; with `other` in the other direction, and leaving if x is not.
std::vector<Value> attend_by_formula(Formula& f, const LinearAttentionValues& x, bool other,
                                     const std::vector<Value>& inputs, const std::vector<bool>& wanted);
Value transposed_states(Formula& f, Value states);

}  // namespace stepnet
