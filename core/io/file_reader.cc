// See the header.
#include "core/io/file_reader.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "core/error.h"

namespace stepnet {

std::string system_text(int error_number) { return std::generic_category().message(error_number); }

FileReader::FileReader(const FilePlace& place) : path_(place.str()), fd_(open_regular(place, O_RDONLY)) {
  struct stat info {};
  ::fstat(fd_, &info);
  size_ = static_cast<uint64_t>(info.st_size);
}

FileReader::~FileReader() { ::close(fd_); }

void FileReader::read_at(uint64_t offset, void* to, size_t bytes) const {
  require(offset <= size_ && bytes <= size_ - offset, "{} ends at byte {}, but {} bytes are needed from byte {} on",
          path_, size_, bytes, offset);
  auto* place = static_cast<char*>(to);
  while (bytes > 0) {
    const ssize_t got = ::pread(fd_, place, std::min<size_t>(bytes, 1 << 30), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail("cannot read {}: {}", path_, system_text(errno));
    require(got > 0, "{} became shorter while it was read", path_);
    place += got;
    offset += static_cast<uint64_t>(got);
    bytes -= static_cast<size_t>(got);
  }
}

std::string FileReader::text_at(uint64_t offset, size_t bytes) const {
  require(offset <= size_ && bytes <= size_ - offset, "{} ends at byte {}, but {} bytes are needed from byte {} on",
          path_, size_, bytes, offset);
  std::string text(bytes, '\0');
  read_at(offset, text.data(), bytes);
  return text;
}

}  // namespace stepnet
