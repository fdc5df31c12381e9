// On which devices an operator can run. Threads: pure functions.
#pragma once

#include <algorithm>

#include "stepnet/op_spec.h"

namespace stepnet {

inline bool has_kernel(const OpSpec& spec, DeviceKind device) {
  return std::ranges::any_of(spec.kernels, [device](const Kernel& k) { return k.device == device; });
}

// Of its own for elements of this type, or for any.
inline bool has_kernel(const OpSpec& spec, DeviceKind device, DType dtype) {
  return std::ranges::any_of(spec.kernels, [&](const Kernel& k) {
    return k.device == device && (k.dtype == dtype || k.dtype == DType::undefined);
  });
}

// One on blobs runs on the host, and may have what it makes brought to any device.
inline bool runs_on(const OpSpec& spec, DeviceKind device) {
  return device == DeviceKind::cpu || spec.blob_kernel || has_kernel(spec, device);
}

}  // namespace stepnet
