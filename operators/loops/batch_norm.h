// What BatchNorm, its gradient, and both of them over several ranks share: their arguments, the channels of their X,
// and the loops over these. Both BatchNorm and SpatialBN, its name in the public format, are these operators. Threads:
// pure functions.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "core/compute/threads.h"
#include "stepnet/operator.h"

namespace stepnet {

struct BatchNormArgs {
  bool is_test = false;
  float epsilon = 1e-5F;
  float momentum = 0.9F;
  std::string order = "NCHW";

  bool channels_last() const { return order == "NHWC"; }
};

// X is `outer` blocks of `count` channels of `inner` elements each.
struct Channels {
  int64_t outer = 1, count = 1, inner = 1;

  Channels(const BatchNormArgs& a, const Shape& x) {
    require(x.rank() >= 2, "X is {}, but must have a batch and channels, so two dimensions or more", x);
    const int axis = a.channels_last() ? x.rank() - 1 : 1;
    outer = x.size_between(0, axis);
    count = x[axis];
    inner = x.size_between(axis + 1, x.rank());
  }

  int64_t size() const { return outer * inner; }  // of one channel

  // Calls fn(begin, end) for ranges of channels, on several threads if there is enough to do. fn must not throw.
  template <class Fn>
  void each_range(double cost_per_element, Fn fn) const {
    parallel_for(count, 10.0 + cost_per_element * static_cast<double>(size()),
                 [&fn](int64_t begin, int64_t end) { fn(begin, end); });
  }

  // Calls fn(c, i) for each element i of the channels [begin, end), where c is its channel, counted from `begin`.
  template <class Fn>
  void each_element(int64_t begin, int64_t end, Fn fn) const {
    for (int64_t o = 0; o < outer; ++o)
      for (int64_t c = begin; c < end; ++c) {
        const int64_t first = (o * count + c) * inner;
        for (int64_t i = first; i < first + inner; ++i) fn(c - begin, i);
      }
  }
};

// What the running variance gets of a batch's, of m elements: SpatialBN's is divided by m - 1 in place of m.
constexpr double running_share(bool unbiased, int64_t m) {
  return unbiased && m > 1 ? static_cast<double>(m) / static_cast<double>(m - 1) : 1.0;
}

// One number per channel of a range.
using PerChannel = std::vector<double>;
inline PerChannel zeros_for(int64_t begin, int64_t end) { return PerChannel(static_cast<size_t>(end - begin), 0.0); }

// Of the channels [begin, end) the means, and the sums of squares of what is left when these are taken off: before the
// squares are summed, so that none of it is lost.
template <class T>
void measure(const Channels& channels, int64_t begin, int64_t end, In<T> x, PerChannel& mean, PerChannel& squares) {
  const double m = static_cast<double>(channels.size());
  channels.each_element(begin, end, [&](int64_t c, int64_t i) { mean[c] += static_cast<double>(x[i]); });
  for (double& value : mean) value /= m;
  channels.each_element(begin, end, [&](int64_t c, int64_t i) {
    const double off = static_cast<double>(x[i]) - mean[c];
    squares[c] += off * off;
  });
}

template <class T>
void normalize(const Channels& channels, int64_t begin, int64_t end, In<T> x, In<T> scale, In<T> bias,
               const PerChannel& mean, const PerChannel& inv, Out<T> y) {
  channels.each_element(begin, end, [&](int64_t c, int64_t i) {
    const double u = (static_cast<double>(x[i]) - mean[c]) * inv[c];
    y[i] = static_cast<T>(u * static_cast<double>(scale[begin + c]) + static_cast<double>(bias[begin + c]));
  });
}

// What the gradient reads, by element; an empty dY is zeros.
template <class T>
struct NormalizedX {
  In<T> x, dy, means, invs;

  double u(int64_t c, int64_t i) const {
    return (static_cast<double>(x[i]) - static_cast<double>(means[c])) * static_cast<double>(invs[c]);
  }
  double slope(int64_t i) const { return dy.empty() ? 0.0 : static_cast<double>(dy[i]); }
};

// sum(dY) and sum(dY u).
template <class T>
void sum_slopes(const Channels& channels, int64_t begin, int64_t end, const NormalizedX<T>& n, PerChannel& sum,
                PerChannel& along) {
  channels.each_element(begin, end, [&](int64_t c, int64_t i) {
    sum[c] += n.slope(i);
    along[c] += n.slope(i) * n.u(begin + c, i);
  });
}

// dX = scale inv dY + constant + slope u.
template <class T>
void put_slopes(const Channels& channels, int64_t begin, int64_t end, const NormalizedX<T>& n, In<T> scale,
                const PerChannel& constant, const PerChannel& slope, Out<T> dx) {
  channels.each_element(begin, end, [&](int64_t c, int64_t i) {
    const double factor = static_cast<double>(scale[begin + c]) * static_cast<double>(n.invs[begin + c]);
    dx[i] = static_cast<T>(factor * n.slope(i) + constant[c] + slope[c] * n.u(begin + c, i));
  });
}

// Inputs of one number per channel, each by its index and name; `x` is the index of X.
inline void check_channels(const ShapeCall& c, int x, const Channels& channels,
                           std::initializer_list<std::pair<int, const char*>> inputs) {
  for (const auto& [i, name] : inputs)
    if (c.known(i))
      require(c.shape(i) == Shape{channels.count}, "{} is {}, but X {} has {} channels", name, c.shape(i), c.shape(x),
              channels.count);
}

inline OpBuilder<BatchNormArgs>& add_batch_norm_args(OpBuilder<BatchNormArgs>& builder) {
  using A = BatchNormArgs;
  return builder.arg("is_test", &A::is_test, false, "normalize by est_mean and est_var, and leave them as they are")
      .arg("epsilon", &A::epsilon, 1e-5F, "added to variances", float_at_least(0))
      .arg("momentum", &A::momentum, 0.9F, "how much of the running statistics stays with each run",
           float_between(0, 1))
      .arg("order", &A::order, std::string("NCHW"), "NCHW: channels are dimension 1; NHWC: the last one",
           one_of({"NCHW", "NHWC"}))
      .refuses("num_batches", 1, "would take sums over several batches from two more inputs");
}

}  // namespace stepnet
