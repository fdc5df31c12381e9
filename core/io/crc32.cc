#include "core/io/crc32.h"

#include <zlib.h>

namespace stepnet {

uint32_t crc32_of(const void* data, size_t bytes, uint32_t start) {
  return static_cast<uint32_t>(::crc32_z(start, static_cast<const Bytef*>(data), bytes));
}

}  // namespace stepnet
