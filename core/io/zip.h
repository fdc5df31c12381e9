// ZipFile: the members of a zip archive, such as the .npz files of NumPy.
//
// Read: members that are stored as they are, which stay in the file, and deflated ones, which are inflated into memory;
// archives and members of any size (zip64). Not read: encrypted members, archives in several parts.
// Nothing that an archive says of itself is believed: damage is an Error that names it.
// Threads: immutable; reading from several threads is safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/io/byte_source.h"

namespace stepnet {

class ZipFile {
 public:
  explicit ZipFile(const FilePlace& place);

  const std::string& path() const { return file_->name(); }  // for messages
  std::vector<std::string> names() const;                    // in the archive's order
  // The member of that name. Throws Error if there is none, or if its bytes are not those that its checksum is of; what
  // is stored as it is may be larger than memory, and is not checked.
  ByteSourcePtr open(const std::string& name) const;

 private:
  struct Member {
    std::string name;
    uint16_t flags = 0, method = 0;
    uint32_t crc = 0;
    uint64_t packed = 0, size = 0, header = 0;
  };
  void read_directory();
  Member read_member(uint64_t& at, uint64_t end) const;
  void read_wide_sizes(Member& member, const std::string& extra) const;
  uint64_t begin_of(const Member& member) const;

  ByteSourcePtr file_;
  std::vector<Member> members_;
};

}  // namespace stepnet
