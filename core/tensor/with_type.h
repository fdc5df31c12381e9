// From an element type to the C++ type. Threads: pure functions.
#pragma once

#include "core/tensor/tensor.h"

namespace stepnet {

// Calls fn(T{}) with the type of numeric or bool elements; false, and no call, if they are of another type.
template <class Fn>
bool with_type(DType type, const Fn& fn) {
  switch (type) {
    case DType::float32:
      return fn(float{}), true;
    case DType::float64:
      return fn(double{}), true;
    case DType::int32:
      return fn(int32_t{}), true;
    case DType::int64:
      return fn(int64_t{}), true;
    case DType::boolean:
      return fn(bool{}), true;
    case DType::uint8:
      return fn(uint8_t{}), true;
    case DType::int8:
      return fn(int8_t{}), true;
    case DType::uint16:
      return fn(uint16_t{}), true;
    case DType::int16:
      return fn(int16_t{}), true;
    default:
      return false;
  }
}

}  // namespace stepnet
