// What matrix products on a GPU take beside their results, for those who run them and for those who estimate them.
#pragma once

#include <cstdint>

namespace stepnet {

// Bytes that cuBLASLt works on, for each stream that runs products.
constexpr int64_t kDeviceProductWorkspace = int64_t{32} << 20;

}  // namespace stepnet
