// The arguments of ConstantFill and DiagonalFill, and the value that they say; see constant_fill.cc.
#pragma once

#include "operators/loops/fill_shape.h"
#include "stepnet/half.h"

namespace stepnet {

struct ConstantArgs : FillShape {
  std::optional<Argument> value;
  std::optional<int64_t> dtype;
  std::optional<Argument> values;  // ConstantFill's
};

// Throws Error if the argument is of another type, or does not fit.
template <class T>
T read_constant(const std::optional<Argument>& value) {
  if (!value) return T{};
  if constexpr (std::is_same_v<T, std::string>) {
    std::string text;
    read_value(*value, text);
    return text;
  } else if constexpr (is_floating(dtype_of<T>())) {
    float number = 0;
    read_value(*value, number);
    return static_cast<T>(number);
  } else {
    int64_t number = 0;
    read_value(*value, number);
    return to_element<T>(number);
  }
}

// How many elements lie from one of the diagonal to the next.
inline int64_t diagonal_step(const Shape& shape) {
  int64_t step = 0;
  for (int i = 1; i <= shape.rank(); ++i) step += shape.size_between(i, shape.rank());
  return step;
}

}  // namespace stepnet
