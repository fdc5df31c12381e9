// Where a product writes to: its output is of the type T of its inputs, or if that is a half type and the output is a
// sum, float32. Threads: pure functions.
#pragma once

#include "stepnet/half.h"
#include "stepnet/operator.h"

namespace stepnet {

// Calls fn with the output's first element.
template <class T, class Fn>
void with_result(Call& call, int output, const Fn& fn) {
  if constexpr (is_half(dtype_of<T>()))
    if (call.out(output).dtype() == DType::float32) return fn(call.out_span<float>(output).data());
  fn(call.out_span<T>(output).data());
}

}  // namespace stepnet
