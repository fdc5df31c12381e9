// A few integers that the host knows, such as sizes, written to a tensor on a device. They travel as a parameter of the
// kernel, so that nobody waits. Threads: as gpu/runtime/launch.h.
#pragma once

#include <span>

#include "gpu/runtime/launch.h"
#include "operators/loops/segment_lengths.h"

namespace stepnet::gpu {

struct FewIntegers {
  static constexpr size_t kMost = 16;  // a shape and more
  int64_t values[kMost] = {};
};

template <class T>
void write_few(const Call& call, const FewIntegers& few, T* to, size_t count) {
  each(call, count, [=] __device__(size_t i) { to[i] = static_cast<T>(few.values[i]); });
}

// out[first + i] = values[i]; out is int32 or int64. Throws Error on a number that does not fit, naming `what`.
inline void write_integers(const Call& call, Tensor& out, size_t first, std::span<const int64_t> values,
                           const char* what) {
  for (size_t begin = 0; begin < values.size(); begin += FewIntegers::kMost) {
    const size_t count = std::min(FewIntegers::kMost, values.size() - begin);
    FewIntegers few;
    std::copy_n(values.begin() + static_cast<std::ptrdiff_t>(begin), count, few.values);
    if (out.dtype() == DType::int64) {
      write_few(call, few, out_span<int64_t>(out).data + first + begin, count);
      continue;
    }
    for (size_t i = 0; i < count; ++i) to_int32(few.values[i], what);
    write_few(call, few, out_span<int32_t>(out).data + first + begin, count);
  }
}

}  // namespace stepnet::gpu
