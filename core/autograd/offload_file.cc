#include "core/autograd/offload_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "core/error.h"
#include "core/io/atomic_file.h"
#include "core/io/crc32.h"
#include "core/io/file_reader.h"

namespace stepnet::autograd {
namespace {

constexpr size_t kPiece = 1 << 20;  // bytes between two looks at whether to go on

// An open file that is gone again unless it is kept.
class NewFile {
 public:
  explicit NewFile(const std::string& path) : path_(path) {
    fd_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd_ < 0) fail("cannot create {}: {}", path, system_text(errno));
  }
  ~NewFile() {
    if (fd_ >= 0) ::close(fd_);
    if (!kept_) ::unlink(path_.c_str());
  }
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  void write(const std::byte* from, size_t bytes) {
    while (bytes > 0) {
      const ssize_t put = ::write(fd_, from, bytes);
      if (put < 0 && errno == EINTR) continue;
      if (put < 0) fail("cannot write {}: {}", path_, system_text(errno));
      from += put;
      bytes -= static_cast<size_t>(put);
    }
  }
  void keep() {
    const int closed = ::close(std::exchange(fd_, -1));
    if (closed != 0) fail("cannot write {}: {}", path_, system_text(errno));
    kept_ = true;
  }

 private:
  const std::string& path_;
  int fd_ = -1;
  bool kept_ = false;
};

}  // namespace

uint32_t write_offload_file(const std::string& path, const std::byte* data, size_t bytes,
                            const std::atomic<bool>& given_up) {
  NewFile file(path);
  uint32_t checksum = 0;
  for (size_t at = 0; at < bytes && !given_up; at += kPiece) {
    const size_t piece = std::min(kPiece, bytes - at);
    checksum = crc32_of(data + at, piece, checksum);
    file.write(data + at, piece);
  }
  file.keep();
  return checksum;
}

void read_offload_file(const std::string& path, std::byte* to, size_t bytes, uint32_t checksum) {
  const FileReader file(path);
  require(file.size() == bytes, "{} was written with {} bytes, and has {} now", path, bytes, file.size());
  file.read_at(0, to, bytes);
  require(crc32_of(to, bytes) == checksum, "{} is damaged: its bytes are not those that were written", path);
}

void remove_offload_file(const std::string& path) noexcept { ::unlink(path.c_str()); }

bool prepare_offload_folder(const std::string& folder) {
  std::error_code problem;
  const bool made = std::filesystem::create_directories(folder, problem);
  if (problem) fail("cannot make the folder {}: {}", folder, problem.message());
  require_writable_folder(folder);
  return made;
}

}  // namespace stepnet::autograd
