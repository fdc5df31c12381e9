// The arithmetic of Div; see div.cc.
#pragma once

#include <type_traits>

namespace stepnet {

template <class T>
struct Quotient {
  constexpr T operator()(T a, T b) const {
    if constexpr (std::is_integral_v<T>) {
      // The least integer has no negative: it stays.
      if (b == -1) return static_cast<T>(std::make_unsigned_t<T>(0) - static_cast<std::make_unsigned_t<T>>(a));
    }
    return a / b;
  }
};

}  // namespace stepnet
