// What the kernels of SequenceMask and MaskByLength share: their arguments, and which columns of a row SequenceMask
// keeps; see masks.cc. Threads: pure functions.
#pragma once

#include <algorithm>
#include <optional>
#include <string>

#include "stepnet/operator.h"

namespace stepnet {

struct SequenceMaskArgs {
  std::string mode;
  int64_t axis = 1, radius = 10;
  std::optional<int64_t> batch, repeat_from_axis;
  bool grad = false;
  float fill_val = 0;
};

struct MaskLayout {
  int64_t matrices = 1, rows = 1, columns = 1, repeats = 1;
};

inline MaskLayout mask_layout(const SequenceMaskArgs& a, const Shape& x) {
  const int axis = canonical_axis(a.axis, x.rank());
  int first_row = 0, repeat = x.rank();
  if (a.batch) {
    const int batch = canonical_axis(*a.batch, x.rank());
    require(batch < axis, "argument \"batch\" is dimension {}, which must come before \"axis\", dimension {}", batch,
            axis);
    first_row = batch + 1;
  }
  if (a.repeat_from_axis) {
    require(a.mode == "sequence", "argument \"repeat_from_axis\" goes with mode \"sequence\", not \"{}\"", a.mode);
    repeat = canonical_axis(*a.repeat_from_axis, x.rank());
    require(repeat >= axis, "argument \"repeat_from_axis\" is dimension {}, which comes before \"axis\", dimension {}",
            repeat, axis);
  }
  return {x.size_between(0, first_row), x.size_between(first_row, axis), x.size_between(axis, repeat),
          x.size_between(repeat, x.rank())};
}

struct KeptColumns {
  int64_t begin = 0, end = 0;
};

enum class MaskMode { sequence, window, upper, lower, upperdiag, lowerdiag };

inline MaskMode mask_mode(const std::string& name) {
  if (name == "sequence") return MaskMode::sequence;
  if (name == "window") return MaskMode::window;
  if (name == "upper") return MaskMode::upper;
  if (name == "lower") return MaskMode::lower;
  return name == "upperdiag" ? MaskMode::upperdiag : MaskMode::lowerdiag;
}

// The columns of a row that are not masked. `value`: the row's length or centre, in modes that have one.
constexpr KeptColumns kept_columns(MaskMode mode, int64_t radius, int64_t value, int64_t row, int64_t columns) {
  KeptColumns kept{0, columns};
  switch (mode) {
    case MaskMode::sequence:
      kept.end = value;
      break;
    case MaskMode::window:
      // A radius of 2^32 reaches every column that a centre can be far from.
      radius = std::min(radius, int64_t{1} << 32);
      kept = {value - radius, value + radius + 1};
      break;
    case MaskMode::upper:
      kept.end = row + 1;
      break;
    case MaskMode::upperdiag:
      kept.end = row;
      break;
    case MaskMode::lower:
      kept.begin = row;
      break;
    case MaskMode::lowerdiag:
      kept.begin = row + 1;
      break;
  }
  kept.begin = std::clamp<int64_t>(kept.begin, 0, columns);
  kept.end = std::clamp<int64_t>(kept.end, kept.begin, columns);
  return kept;
}

struct MaskByLengthArgs {
  bool beyond = false;
};

}  // namespace stepnet
