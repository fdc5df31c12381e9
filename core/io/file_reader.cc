// Opening with O_NONBLOCK keeps a pipe from blocking before its type can be checked; regular files ignore it.
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

FileReader::FileReader(std::string path) : path_(std::move(path)) {
  fd_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  require(fd_ >= 0, "cannot open {}: {}", path_, system_text(errno));
  struct stat info {};
  if (::fstat(fd_, &info) != 0 || !S_ISREG(info.st_mode)) {
    ::close(fd_);
    fail("{} is not a regular file", path_);
  }
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
    require(got >= 0, "cannot read {}: {}", path_, system_text(errno));
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
