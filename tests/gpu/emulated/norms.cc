// BatchNorm and Softmax of the imitated device, by the formulas of the real library's handbook. It refuses 13 channels,
// and rows of 13.
#include "gpu/loops/norms.h"

#include <cmath>
#include <cstring>

#include "gpu/runtime/stream.h"

namespace stepnet::gpu {
namespace {

constexpr size_t kWorkspace = 48;
constexpr int64_t kRefused = 13;
constexpr uint8_t kSpoiled = 0xEE;

template <class Fn>
void with_element_type(DType dtype, Fn fn) {
  dtype == DType::float64 ? fn(double()) : fn(float());
}

template <class T>
T* elements(void* data) {
  return static_cast<T*>(data);
}
template <class T>
const T* elements(const void* data) {
  return static_cast<const T*>(data);
}

struct Sums {
  double first = 0, second = 0;
};

// Of value(i) over the elements i of channel c.
template <class Fn>
Sums sums_of(const VendorChannels& c, int64_t channel, Fn value) {
  Sums all;
  for (int64_t o = 0; o < c.outer; ++o)
    for (int64_t i = 0; i < c.inner; ++i) {
      const Sums one = value((o * c.count + channel) * c.inner + i);
      all.first += one.first;
      all.second += one.second;
    }
  return all;
}
int64_t channel_of(const VendorChannels& c, int64_t i) { return i / c.inner % c.count; }
int64_t elements_of(const VendorChannels& c) { return c.outer * c.count * c.inner; }

// The averaging factor is 1, but what was there before is multiplied by 0, not forgotten.
template <class T>
void statistics(const VendorChannels& c, const T* x, const VendorStatistics& out) {
  const double m = static_cast<double>(c.outer * c.inner);
  for (int64_t at = 0; at < c.count; ++at) {
    const double mean = sums_of(c, at, [&](int64_t i) { return Sums{static_cast<double>(x[i]), 0}; }).first / m;
    const double squares = sums_of(c, at, [&](int64_t i) {
                             const double off = static_cast<double>(x[i]) - mean;
                             return Sums{off * off, 0};
                           }).first;
    T &running_mean = elements<T>(out.mean)[at], &running_variance = elements<T>(out.variance)[at];
    running_mean = 0 * running_mean + static_cast<T>(mean);
    running_variance = 0 * running_variance + static_cast<T>(squares / (m - 1));
    elements<T>(out.saved_mean)[at] = static_cast<T>(mean);
    elements<T>(out.saved_inverse)[at] = static_cast<T>(1 / std::sqrt(squares / m + c.epsilon));
  }
}

template <class T>
void normalize(const VendorChannels& c, const T* x, const T* scale, const T* bias, const T* mean, const T* inverse,
               T* y) {
  for (int64_t i = 0; i < elements_of(c); ++i) {
    const int64_t at = channel_of(c, i);
    y[i] = (x[i] - mean[at]) * inverse[at] * scale[at] + bias[at];
  }
}

template <class T>
void backward(const VendorChannels& c, const T* x, const T* scale, const T* dy, const T* mean, const T* inverse, T* dx,
              T* dscale, T* dbias) {
  const double m = static_cast<double>(c.outer * c.inner);
  const auto u = [&](int64_t at, int64_t i) { return static_cast<double>((x[i] - mean[at]) * inverse[at]); };
  std::vector<Sums> sums;
  for (int64_t at = 0; at < c.count; ++at) {
    sums.push_back(sums_of(c, at, [&](int64_t i) {
      const double given = static_cast<double>(dy[i]);
      return Sums{given, given * u(at, i)};
    }));
    dbias[at] = static_cast<T>(sums.back().first);
    dscale[at] = static_cast<T>(sums.back().second);
  }
  for (int64_t i = 0; i < elements_of(c); ++i) {
    const int64_t at = channel_of(c, i);
    const Sums& sum = sums[static_cast<size_t>(at)];
    dx[i] = static_cast<T>(static_cast<double>(scale[at] * inverse[at]) *
                           (static_cast<double>(dy[i]) - sum.first / m - u(at, i) * sum.second / m));
  }
}

template <class T>
void softmax(const VendorRows& rows, const T* x, T* y) {
  for (int64_t r = 0; r < rows.count; ++r, x += rows.size, y += rows.size) {
    T most = x[0];
    for (int64_t i = 1; i < rows.size; ++i) most = x[i] > most ? x[i] : most;
    double sum = 0;
    for (int64_t i = 0; i < rows.size; ++i) sum += static_cast<double>(std::exp(x[i] - most));
    for (int64_t i = 0; i < rows.size; ++i)
      y[i] = rows.log ? x[i] - most - static_cast<T>(std::log(sum)) : std::exp(x[i] - most) / static_cast<T>(sum);
  }
}

template <class T>
void softmax_backward(const VendorRows& rows, const T* y, const T* dy, T* dx) {
  for (int64_t r = 0; r < rows.count; ++r, y += rows.size, dy += rows.size, dx += rows.size) {
    double sum = 0;
    for (int64_t i = 0; i < rows.size; ++i) sum += static_cast<double>(rows.log ? dy[i] : y[i] * dy[i]);
    const T all = static_cast<T>(sum);
    for (int64_t i = 0; i < rows.size; ++i) dx[i] = rows.log ? dy[i] - std::exp(y[i]) * all : y[i] * (dy[i] - all);
  }
}

}  // namespace

const VendorNorms& vendor_norms() {
  static const VendorNorms imitated{true, 1e-9, INT32_MAX};
  return imitated;
}

std::optional<size_t> vendor_norm_workspace(int, const VendorChannels&, bool) { return kWorkspace; }

bool run_vendor_norm(int device, const VendorChannels& c, const void* x, const void* scale, const void* bias, void* y,
                     const VendorStatistics& out, void* workspace, size_t bytes) {
  if (c.count == kRefused) return false;
  emulated::enqueue(current_stream(device), [=] {
    std::memset(workspace, kSpoiled, bytes);
    with_element_type(c.dtype, [&](auto zero) {
      using T = decltype(zero);
      statistics(c, elements<T>(x), out);
      normalize(c, elements<T>(x), elements<T>(scale), elements<T>(bias),
                elements<T>(static_cast<const void*>(out.saved_mean)),
                elements<T>(static_cast<const void*>(out.saved_inverse)), elements<T>(y));
    });
  });
  return true;
}

bool run_vendor_norm_evaluation(int device, const VendorChannels& c, const void* x, const void* scale, const void* bias,
                                const void* mean, const void* variance, void* y) {
  if (c.count == kRefused) return false;
  emulated::enqueue(current_stream(device), [=] {
    with_element_type(c.dtype, [&](auto zero) {
      using T = decltype(zero);
      std::vector<T> inverse;
      for (int64_t at = 0; at < c.count; ++at)
        inverse.push_back(static_cast<T>(1 / std::sqrt(static_cast<double>(elements<T>(variance)[at]) + c.epsilon)));
      normalize(c, elements<T>(x), elements<T>(scale), elements<T>(bias), elements<T>(mean),
                static_cast<const T*>(inverse.data()), elements<T>(y));
    });
  });
  return true;
}

bool run_vendor_norm_backward(int device, const VendorChannels& c, const void* x, const void* scale, const void* dy,
                              const void* saved_mean, const void* saved_inverse, const VendorNormGradients& out,
                              void* workspace, size_t bytes) {
  if (c.count == kRefused) return false;
  emulated::enqueue(current_stream(device), [=] {
    std::memset(workspace, kSpoiled, bytes);
    with_element_type(c.dtype, [&](auto zero) {
      using T = decltype(zero);
      backward(c, elements<T>(x), elements<T>(scale), elements<T>(dy), elements<T>(saved_mean),
               elements<T>(saved_inverse), elements<T>(out.dx), elements<T>(out.dscale), elements<T>(out.dbias));
    });
  });
  return true;
}

bool run_vendor_softmax(int device, const VendorRows& rows, const void* x, void* y) {
  if (rows.size == kRefused) return false;
  emulated::enqueue(current_stream(device), [=] {
    with_element_type(rows.dtype, [&](auto zero) {
      using T = decltype(zero);
      softmax(rows, elements<T>(x), elements<T>(y));
    });
  });
  return true;
}

bool run_vendor_softmax_backward(int device, const VendorRows& rows, const void* y, const void* dy, void* dx) {
  if (rows.size == kRefused) return false;
  emulated::enqueue(current_stream(device), [=] {
    with_element_type(rows.dtype, [&](auto zero) {
      using T = decltype(zero);
      softmax_backward(rows, elements<T>(y), elements<T>(dy), elements<T>(dx));
    });
  });
  return true;
}

}  // namespace stepnet::gpu
