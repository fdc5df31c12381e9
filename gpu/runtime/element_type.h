// The element type that a kernel is for, where none of its other parameters says it. Threads: pure functions.
#pragma once

#include "gpu/runtime/launch.h"

namespace stepnet {
namespace gpu {
template <class T>
struct ElementType {};
}  // namespace gpu

template <class T>
struct KernelParam<gpu::ElementType<T>> {
  static constexpr DType dtype = dtype_of<T>();
  static gpu::ElementType<T> take(CallCursor&) { return {}; }
};

}  // namespace stepnet
