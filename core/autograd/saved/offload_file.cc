#include "core/autograd/saved/offload_file.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "core/io/files.h"
#include "stepnet/error.h"

namespace stepnet::autograd {
namespace {

constexpr size_t kPiece = 1 << 20;  // bytes between two looks at whether to go on

// Numbers of open files go up one by one; the others are for the rest of the process.
bool may_stay_open(int fd) {
  rlimit limit{};
  return ::getrlimit(RLIMIT_NOFILE, &limit) == 0 && static_cast<rlim_t>(fd) < limit.rlim_cur / 2;
}

}  // namespace

OffloadFile::OffloadFile(std::string path) : path_(std::move(path)) {
  fd_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd_ < 0) fail("cannot create {}: {}", path_, system_text(errno));
  is_named_ = !may_stay_open(fd_) || ::unlink(path_.c_str()) != 0;
}

void OffloadFile::write(const std::byte* from, size_t bytes) const { write_whole(fd_, from, bytes, path_); }

void OffloadFile::rest() {
  if (!is_named_) return;
  if (::close(std::exchange(fd_, -1)) != 0) fail("cannot write {}: {}", path_, system_text(errno));
}

void OffloadFile::read(std::byte* to, size_t bytes, uint32_t checksum) const {
  if (is_named_) {
    const FileReader file(path_);
    require(file.size() == bytes, "{} was written with {} bytes, and has {} now", path_, bytes, file.size());
    file.read_at(0, to, bytes);
  } else {
    struct stat info {};
    if (::fstat(fd_, &info) != 0) fail("cannot read {}: {}", path_, system_text(errno));
    require(static_cast<size_t>(info.st_size) == bytes, "{} was written with {} bytes, and has {} now", path_, bytes,
            info.st_size);
    const size_t got = read_whole(fd_, 0, to, bytes, path_);
    require(got == bytes, "{} was written with {} bytes, and has {} now", path_, bytes, got);
  }
  require(crc32_of(to, bytes) == checksum, "{} is damaged: its bytes are not those that were written", path_);
}

void OffloadFile::close() noexcept {
  if (fd_ >= 0) ::close(fd_);
  if (is_named_) ::unlink(path_.c_str());
}

std::pair<OffloadFile, uint32_t> write_offload_file(const std::string& path, const std::byte* data, size_t bytes,
                                                    const std::atomic<bool>& given_up) {
  OffloadFile file(path);
  uint32_t checksum = 0;
  for (size_t at = 0; at < bytes && !given_up; at += kPiece) {
    const size_t piece = std::min(kPiece, bytes - at);
    checksum = crc32_of(data + at, piece, checksum);
    file.write(data + at, piece);
  }
  file.rest();
  return {std::move(file), checksum};
}

bool prepare_offload_folder(const std::string& folder) {
  std::error_code problem;
  const bool made = std::filesystem::create_directories(folder, problem);
  if (problem) fail("cannot make the folder {}: {}", folder, problem.message());
  require_writable_folder(folder);
  return made;
}

}  // namespace stepnet::autograd
