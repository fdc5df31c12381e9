// The numbers of Range; see range.cc.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "stepnet/error.h"

namespace stepnet {

template <class T>
struct NumberRange {
  T start = 0, stop = 0, step = 1;

  constexpr T operator[](size_t i) const {
    if constexpr (std::is_integral_v<T>) {
      // Between start and stop, but the product alone may be too large for a signed number.
      return static_cast<T>(static_cast<uint64_t>(start) + i * static_cast<uint64_t>(step));
    } else {
      return start + static_cast<T>(i) * step;
    }
  }
};

// `input(i)`: the tensor of input i, on the CPU.
template <class T, class GetInput>
NumberRange<T> read_range(int inputs, const GetInput& input) {
  NumberRange<T> b;
  if (inputs > 1) b.start = input(0).template item<T>();
  b.stop = input(inputs > 1 ? 1 : 0).template item<T>();
  if (inputs > 2) b.step = input(2).template item<T>();
  return b;
}

// How many numbers there are; throws Error if none of them is the last.
template <class T>
int64_t count_of(const NumberRange<T>& b) {
  require(b.step != 0, "step is 0, so that {} is never reached from {}", b.stop, b.start);
  if constexpr (std::is_integral_v<T>) {
    if (b.start == b.stop || (b.start < b.stop) != (b.step > 0)) return 0;
    // Without signs, in which the distance always fits.
    auto distance = [](int64_t from, int64_t to) { return static_cast<uint64_t>(to) - static_cast<uint64_t>(from); };
    const uint64_t way = b.step > 0 ? distance(b.start, b.stop) : distance(b.stop, b.start);
    const uint64_t step = b.step > 0 ? distance(0, b.step) : distance(b.step, 0);
    const uint64_t count = way / step + (way % step != 0 ? 1 : 0);
    require(count <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max()),
            "there are too many steps of {} from {} to {}", b.step, b.start, b.stop);
    return static_cast<int64_t>(count);
  } else {
    const double count = std::ceil((static_cast<double>(b.stop) - b.start) / b.step);
    require(count < 1e18, "there are too many steps of {} from {} to {}", b.step, b.start, b.stop);
    return count > 0 ? static_cast<int64_t>(count) : 0;
  }
}

}  // namespace stepnet
