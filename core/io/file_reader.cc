// See the header.
#include "core/io/file_reader.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "core/error.h"
#include "core/io/file_io.h"

namespace stepnet {

FileReader::FileReader(const FilePlace& place) : path_(place.str()), fd_(open_regular(place, O_RDONLY)) {
  struct stat info {};
  if (::fstat(fd_, &info) != 0) {
    const int reason = errno;
    ::close(fd_);
    fail("cannot read {}: {}", path_, system_text(reason));
  }
  size_ = static_cast<uint64_t>(info.st_size);
}

FileReader::~FileReader() { ::close(fd_); }

void FileReader::read_at(uint64_t offset, void* to, size_t bytes) const {
  require(offset <= size_ && bytes <= size_ - offset, "{} ends at byte {}, but {} bytes are needed from byte {} on",
          path_, size_, bytes, offset);
  require(read_whole(fd_, offset, to, bytes, path_) == bytes, "{} became shorter while it was read", path_);
}

std::string FileReader::text_at(uint64_t offset, size_t bytes) const {
  require(offset <= size_ && bytes <= size_ - offset, "{} ends at byte {}, but {} bytes are needed from byte {} on",
          path_, size_, bytes, offset);
  std::string text(bytes, '\0');
  read_at(offset, text.data(), bytes);
  return text;
}

}  // namespace stepnet
