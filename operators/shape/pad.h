// The arguments of Pad and its gradient, and where its elements come from; see pad.cc. Threads: pure functions.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "stepnet/error.h"
#include "stepnet/shape.h"

namespace stepnet {

enum class PadMode { constant, edge, reflect };

struct PadArgs {
  std::vector<int64_t> pads;
  std::string mode;
  float value = 0;

  PadMode kind() const {
    return mode == "edge" ? PadMode::edge : mode == "reflect" ? PadMode::reflect : PadMode::constant;
  }
  int rank() const { return static_cast<int>(pads.size() / 2); }
  int64_t begin(int axis) const { return pads[axis]; }
  int64_t end(int axis) const { return pads[pads.size() / 2 + axis]; }
};

// The input's element at `i`, which may lie outside of 0 to size - 1; -1 if there is none.
constexpr int64_t pad_source(PadMode mode, int64_t i, int64_t size) {
  if (i >= 0 && i < size) return i;
  if (mode == PadMode::constant) return -1;
  if (mode == PadMode::edge) return i < 0 ? 0 : size - 1;
  return i < 0 ? -i : 2 * (size - 1) - i;
}

// Throws Error if the elements are integers and the value is none that they can hold.
template <class T>
T pad_value(const PadArgs& a) {
  if constexpr (std::is_integral_v<T>) {
    // A float holds whole numbers up to 2^24 exactly.
    require(a.value == std::trunc(a.value) && std::fabs(a.value) <= 16777216.0f,
            "argument \"value\" is {}, which is no whole number that fits the elements", a.value);
  }
  return static_cast<T>(a.value);
}

}  // namespace stepnet
