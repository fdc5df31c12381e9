// CUDA kernels for BatchNorm, SpatialBN and their gradients. Meaning and derivatives: see operators/norm/batch_norm.cc.
#include "operators/loops/batch_norm.h"

#include <cmath>

#include "gpu/loops/channels.h"
#include "gpu/loops/norms.h"

namespace stepnet::gpu_batch_norm {
namespace {

template <class T>
gpu::VendorChannels vendor_channels(const BatchNormArgs& a, const Channels& c) {
  return {dtype_of<T>(), c.outer, c.count, c.inner, static_cast<double>(a.epsilon)};
}

// Numbers for each channel: where they are wanted, else in `room`.
template <class T>
void* or_room(gpu::Out<T> wanted, T* room) {
  return wanted.data ? wanted.data : room;
}

// What a run gives; absent where nobody wants it.
template <class T>
struct NormOutputs {
  gpu::Out<T> y, running_mean, running_var, saved_mean, saved_inv;
};

// The running statistics, from the variance divided by m - 1.
template <bool kUnbiased, class T>
void update_running(const BatchNormArgs& a, const Channels& channels, const T* mean, const T* variance,
                    gpu::In<T> est_mean, gpu::In<T> est_var, const NormOutputs<T>& out, const Call& call) {
  const double keep = static_cast<double>(a.momentum), add = static_cast<double>(1.0F - a.momentum);
  const double m = static_cast<double>(channels.size()), share = running_share(kUnbiased, channels.size());
  const gpu::Out<T> running_mean = out.running_mean, running_var = out.running_var;
  gpu::each(call, static_cast<size_t>(channels.count), [=] __device__(size_t c) {
    const double spread = static_cast<double>(variance[c]) * ((m - 1) / m) * share;
    running_mean[c] = static_cast<T>(keep * static_cast<double>(est_mean[c]) + add * static_cast<double>(mean[c]));
    running_var[c] = static_cast<T>(keep * static_cast<double>(est_var[c]) + add * spread);
  });
}

// Both return whether the device's library did it.
template <bool kUnbiased, class T>
bool train_by_vendor(const BatchNormArgs& a, const Channels& channels, gpu::In<T> x, gpu::In<T> scale, gpu::In<T> bias,
                     gpu::In<T> est_mean, gpu::In<T> est_var, const NormOutputs<T>& out, const Call& call) {
  const auto sizes = vendor_channels<T>(a, channels);
  if (!vendor_takes(sizes, gpu::NormRun::training) || x.data == out.y.data) return false;
  const int device = gpu::device_of(call);
  const std::optional<size_t> bytes = gpu::vendor_norm_workspace(device, sizes, false);
  if (!bytes) return false;
  const gpu::Temporary<std::byte> workspace(call, static_cast<int64_t>(*bytes));
  const int64_t count = channels.count;
  const gpu::Temporary<T> room(call, 4 * count);
  Tensor batch = room.bytes.reshaped({4, count * static_cast<int64_t>(sizeof(T))}).rows(0, 2);
  batch.fill_zero();
  const gpu::VendorStatistics statistics{room.data, room.data + count, or_room(out.saved_mean, room.data + 2 * count),
                                         or_room(out.saved_inv, room.data + 3 * count)};
  if (!run_vendor_norm(device, sizes, x.data, scale.data, bias.data, out.y.data, statistics, workspace.data, *bytes))
    return false;
  update_running<kUnbiased, T>(a, channels, room.data, room.data + count, est_mean, est_var, out, call);
  return true;
}

template <class T>
bool evaluate_by_vendor(const BatchNormArgs& a, const Channels& channels, gpu::In<T> x, gpu::In<T> scale,
                        gpu::In<T> bias, gpu::In<T> est_mean, gpu::In<T> est_var, gpu::Out<T> y, const Call& call) {
  const auto sizes = vendor_channels<T>(a, channels);
  return vendor_takes(sizes, gpu::NormRun::evaluation) && x.data != y.data &&
         run_vendor_norm_evaluation(gpu::device_of(call), sizes, x.data, scale.data, bias.data, est_mean.data,
                                    est_var.data, y.data);
}

// What is done once for each channel. `stats` gets its mean and 1 / sqrt(variance + epsilon).
template <class T>
struct Statistics {
  double keep, add, add_variance, epsilon;
  bool is_test;
  gpu::In<T> est_mean, est_var;
  gpu::Out<T> running_mean, running_var, saved_mean, saved_inv;
  gpu::Pair* stats;

  __device__ void put(size_t c, double mean, double variance) const {
    if (!is_test) {
      running_mean[c] = static_cast<T>(keep * static_cast<double>(est_mean[c]) + add * mean);
      running_var[c] = static_cast<T>(keep * static_cast<double>(est_var[c]) + add_variance * variance);
    }
    const double inv = 1 / std::sqrt(variance + epsilon);
    stats[c] = {mean, inv};
    if (saved_mean.data) saved_mean[c] = static_cast<T>(mean);
    if (saved_inv.data) saved_inv[c] = static_cast<T>(inv);
  }
};

// The mean is taken off before squares are summed, so that none of it is lost.
template <class T>
void measure(const Call& call, const Channels& channels, gpu::In<T> x, const Statistics<T>& statistics) {
  const double m = static_cast<double>(channels.size());
  gpu::Pair* const stats = statistics.stats;
  gpu::sum_channels(
      call, channels,
      [=] __device__(size_t, size_t i) {
        return gpu::Pair{static_cast<double>(x[i]), 0};
      },
      [=] __device__(size_t c, gpu::Pair sum) { stats[c].first = sum.first / m; });
  gpu::sum_channels(
      call, channels,
      [=] __device__(size_t c, size_t i) {
        const double off = static_cast<double>(x[i]) - stats[c].first;
        return gpu::Pair{off * off, 0};
      },
      [=] __device__(size_t c, gpu::Pair sum) { statistics.put(c, stats[c].first, sum.first / m); });
}

template <bool kUnbiased, class T>
void forward(const BatchNormArgs& a, gpu::In<T> x, gpu::In<T> scale, gpu::In<T> bias, gpu::In<T> est_mean,
             gpu::In<T> est_var, gpu::Out<T> y, gpu::Out<T> running_mean, gpu::Out<T> running_var,
             gpu::Out<T> saved_mean, gpu::Out<T> saved_inv, Call& call) {
  const Channels channels(a, call.in(0).shape());
  if (a.is_test) {
    if (evaluate_by_vendor(a, channels, x, scale, bias, est_mean, est_var, y, call)) return;
  } else if (train_by_vendor<kUnbiased, T>(a, channels, x, scale, bias, est_mean, est_var,
                                           {y, running_mean, running_var, saved_mean, saved_inv}, call)) {
    return;
  }
  const gpu::Temporary<gpu::Pair> room(call, channels.count);
  const gpu::Pair* const stats = room.data;
  const double add = static_cast<double>(1.0F - a.momentum);
  const Statistics<T> statistics{static_cast<double>(a.momentum),
                                 add,
                                 add * running_share(kUnbiased, channels.size()),
                                 static_cast<double>(a.epsilon),
                                 a.is_test,
                                 est_mean,
                                 est_var,
                                 running_mean,
                                 running_var,
                                 saved_mean,
                                 saved_inv,
                                 room.data};
  if (a.is_test)
    gpu::each(call, static_cast<size_t>(channels.count), [=] __device__(size_t c) {
      statistics.put(c, static_cast<double>(est_mean[c]), static_cast<double>(est_var[c]));
    });
  else
    measure(call, channels, x, statistics);
  const gpu::ChannelOf channel(channels);
  gpu::each(call, y.size, [=] __device__(size_t i) {
    const size_t c = channel(i);
    const double u = (static_cast<double>(x[i]) - stats[c].first) * stats[c].second;
    y[i] = static_cast<T>(u * static_cast<double>(scale[c]) + static_cast<double>(bias[c]));
  });
}

// Null where a gradient is missing or not wanted.
template <class T>
struct Slopes {
  gpu::In<T> x, scale, dy, means, invs, dmean, dinv;
  double m;

  __device__ double at(gpu::In<T> values, size_t i) const { return values.data ? static_cast<double>(values[i]) : 0; }
  __device__ double inv(size_t c) const { return static_cast<double>(invs[c]); }
  __device__ double factor(size_t c) const { return static_cast<double>(scale[c]) * inv(c); }
  __device__ double u(size_t c, size_t i) const {
    return (static_cast<double>(x[i]) - static_cast<double>(means[c])) * inv(c);
  }
  // What all elements get, and what they get for each u.
  __device__ gpu::Pair common(size_t c, gpu::Pair sum) const {
    return {(at(dmean, c) - factor(c) * sum.first) / m, -(factor(c) * sum.second + at(dinv, c) * inv(c) * inv(c)) / m};
  }
};

// By the device's library, which knows no gradients of the statistics; whether it did it.
template <class T>
bool gradient_by_vendor(const BatchNormArgs& a, const Channels& channels, const Slopes<T>& s, gpu::Out<T> dx,
                        gpu::Out<T> dscale, gpu::Out<T> dbias, const Call& call) {
  const auto sizes = vendor_channels<T>(a, channels);
  if (!dx.data || !s.dy.data || s.dmean.data || s.dinv.data) return false;
  if (!vendor_takes(sizes, gpu::NormRun::training)) return false;
  const int device = gpu::device_of(call);
  const std::optional<size_t> bytes = gpu::vendor_norm_workspace(device, sizes, true);
  if (!bytes) return false;
  const gpu::Temporary<std::byte> workspace(call, static_cast<int64_t>(*bytes));
  const gpu::Temporary<T> room(call, 2 * channels.count);
  return run_vendor_norm_backward(device, sizes, s.x.data, s.scale.data, s.dy.data, s.means.data, s.invs.data,
                                  {dx.data, or_room(dscale, room.data), or_room(dbias, room.data + channels.count)},
                                  workspace.data, *bytes);
}

template <class T>
void gradient(const BatchNormArgs& a, gpu::In<T> x, gpu::In<T> scale, gpu::In<T> dy, gpu::In<T> means, gpu::In<T> invs,
              gpu::In<T> dmean, gpu::In<T> dinv, gpu::Out<T> dx, gpu::Out<T> dscale, gpu::Out<T> dbias, Call& call) {
  const Channels channels(a, call.in(0).shape());
  const Slopes<T> s{x, scale, dy, means, invs, dmean, dinv, static_cast<double>(channels.size())};
  if (gradient_by_vendor(a, channels, s, dx, dscale, dbias, call)) return;
  const gpu::Temporary<gpu::Pair> room(call, channels.count);
  gpu::Pair* const common = room.data;
  const bool needs_u = dx.data || dscale.data, needs_common = dx.data;  // what is read for others may be missing
  gpu::sum_channels(
      call, channels,
      [=] __device__(size_t c, size_t i) {
        const double given = s.at(dy, i);
        return gpu::Pair{given, needs_u ? given * s.u(c, i) : 0};
      },
      [=] __device__(size_t c, gpu::Pair sum) {
        if (dbias.data) dbias[c] = static_cast<T>(sum.first);
        if (dscale.data) dscale[c] = static_cast<T>(sum.second);
        if (needs_common) common[c] = s.common(c, sum);
      });
  if (!dx.data) return;
  const gpu::ChannelOf channel(channels);
  gpu::each(call, dx.size, [=] __device__(size_t i) {
    const size_t c = channel(i);
    dx[i] = static_cast<T>(s.factor(c) * s.at(dy, i) + common[c].first + common[c].second * s.u(c, i));
  });
}

REGISTER(batch_norm_cuda) { return cuda<BatchNormArgs>("BatchNorm", forward<false, float>, forward<false, double>); }
REGISTER(spatial_bn_cuda) { return cuda<BatchNormArgs>("SpatialBN", forward<true, float>, forward<true, double>); }
REGISTER(batch_norm_gradient_cuda) {
  return cuda<BatchNormArgs>("BatchNormGradient", gradient<float>, gradient<double>);
}
REGISTER(spatial_bn_gradient_cuda) {
  return cuda<BatchNormArgs>("SpatialBNGradient", gradient<float>, gradient<double>);
}

}  // namespace
}  // namespace stepnet::gpu_batch_norm
