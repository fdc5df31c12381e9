// ByteSource: where the bytes of something that is read lie: a file, a part of one, or memory.
//
// Threads: immutable; reading from several threads is safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "stepnet/file_place.h"

namespace stepnet {

class ByteSource {
 public:
  virtual ~ByteSource() = default;
  virtual const std::string& name() const = 0;  // for messages
  virtual uint64_t size() const = 0;
  // Exactly these bytes; throws Error if it does not have them.
  virtual void read_at(uint64_t offset, void* to, size_t bytes) const = 0;

  template <class T>
  T value_at(uint64_t offset) const {
    T value;
    read_at(offset, &value, sizeof(T));
    return value;
  }
  std::string text_at(uint64_t offset, size_t bytes) const;
};

using ByteSourcePtr = std::shared_ptr<const ByteSource>;

ByteSourcePtr file_bytes(const FilePlace& place);
// `size` bytes of another from `begin` on; throws Error if it does not have them.
ByteSourcePtr part_of(ByteSourcePtr whole, uint64_t begin, uint64_t size, const std::string& name);
ByteSourcePtr memory_bytes(std::vector<std::byte> bytes, const std::string& name);

}  // namespace stepnet
