// Sums over the channels of BatchNorm's X on a GPU; see operators/loops/batch_norm.h. Threads: as gpu/runtime/launch.h.
#pragma once

#include "gpu/loops/reduce.h"
#include "operators/loops/batch_norm.h"

namespace stepnet::gpu {

// The channel of element i.
struct ChannelOf {
  Divider count, inner;
  explicit ChannelOf(const Channels& c) : count(static_cast<size_t>(c.count)), inner(static_cast<size_t>(c.inner)) {}
  __device__ size_t operator()(size_t i) const { return count.split(inner.divide(i)).remainder; }
};

// store(c, sum of value(c, i) over the elements i of channel c), for every channel; value gives a Pair. Where channels
// are neighbours, these are read together.
template <class Value, class Store>
void sum_channels(const Call& call, const Channels& channels, Value value, Store store) {
  const size_t count = static_cast<size_t>(channels.count), inner = static_cast<size_t>(channels.inner);
  if (inner == 1)
    return reduce(
        call, {1, channels.outer, channels.count}, Pair(),
        [=] __device__(size_t, size_t o, size_t c) { return value(c, o * count + c); }, std::plus<Pair>(),
        [=] __device__(size_t, size_t c, Pair sum) { store(c, sum); });
  const Divider lines(inner);
  reduce(
      call, {channels.count, channels.size(), 1}, Pair(),
      [=] __device__(size_t c, size_t m, size_t) {
        const auto [line, place] = lines.split(m);
        return value(c, (line * count + c) * inner + place);
      },
      std::plus<Pair>(), [=] __device__(size_t c, size_t, Pair sum) { store(c, sum); });
}

}  // namespace stepnet::gpu
