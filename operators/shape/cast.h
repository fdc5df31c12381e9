// The arguments and the arithmetic of Cast; see cast.cc.
#pragma once

#include <limits>
#include <optional>
#include <type_traits>

#include "stepnet/half.h"
#include "stepnet/operator.h"
#include "stepnet/shape.h"

namespace stepnet {

struct CastArgs {
  Argument to;
  std::optional<Argument> from_type;
};

// To integers: of NaN, 0; of what does not fit, the nearest value that does. To half types: the nearest value, of
// double and of integers the nearest to their float32.
template <class From, class To>
constexpr To convert(From x) {
  if constexpr (is_half(dtype_of<From>()) && !std::is_same_v<From, To>) {
    return convert<float, To>(static_cast<float>(x));
  } else if constexpr (is_half(dtype_of<To>())) {
    return static_cast<To>(static_cast<float>(x));
  } else if constexpr (std::is_same_v<To, bool>) {
    return x != From{};
  } else if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
    if (x != x) return 0;  // NaN
    // The bounds as floating point; the upper one may round up to a value that no longer fits.
    if (x <= static_cast<From>(std::numeric_limits<To>::min())) return std::numeric_limits<To>::min();
    if (x >= static_cast<From>(std::numeric_limits<To>::max())) return std::numeric_limits<To>::max();
    return static_cast<To>(x);
  } else {
    return static_cast<To>(x);
  }
}

// Calls fn(From{}, To{}); throws Error if elements of one of the types cannot be cast.
template <class Fn>
void with_castable(DType from_type, DType to_type, const Fn& fn) {
  auto with = [](DType type, const auto& call) {
    if (!with_type(type, call) && !with_half(type, call)) fail("elements of type {} cannot be cast", dtype_name(type));
  };
  with(from_type, [&](auto from) { with(to_type, [&](auto to) { fn(from, to); }); });
}

}  // namespace stepnet
