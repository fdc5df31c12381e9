// Checksums of what is written to files.
// Source: zlib's CRC-32. Threads: a pure function.
#pragma once

#include <cstddef>
#include <cstdint>

namespace stepnet {

// `start`: the checksum of the bytes before these.
uint32_t crc32_of(const void* data, size_t bytes, uint32_t start = 0);

}  // namespace stepnet
