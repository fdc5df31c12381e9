// The temporary name carries the process number, so that two processes that save to one name do not meet.
#include "core/io/atomic_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>

#include "core/error.h"
#include "core/io/file_reader.h"

namespace stepnet {
namespace {

bool exists(const std::string& path) {
  struct stat info {};
  return ::lstat(path.c_str(), &info) == 0;
}

std::string without_end_slashes(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

}  // namespace

AtomicFile::AtomicFile(std::string path) : path_(std::move(path)) {
  require(!path_.empty(), "the file name is empty");
  struct stat info {};
  const bool there = ::stat(path_.c_str(), &info) == 0;
  require(!there || S_ISREG(info.st_mode), "{} exists and is not a regular file", path_);
  require_writable_folder(folder_of(path_));
  aside_ = unused_sibling(path_);
  fd_ = ::open(aside_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  require(fd_ >= 0, "cannot create {}: {}", aside_, system_text(errno));
}

AtomicFile::~AtomicFile() {
  if (fd_ < 0) return;
  ::close(fd_);
  ::unlink(aside_.c_str());
}

void AtomicFile::write(const void* data, size_t bytes) {
  const auto* from = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t put = ::write(fd_, from, std::min<size_t>(bytes, 1 << 30));
    if (put < 0 && errno == EINTR) continue;
    require(put >= 0, "cannot write {}: {}", path_, system_text(errno));
    from += put;
    bytes -= static_cast<size_t>(put);
  }
}

void AtomicFile::commit() {
  require(::fsync(fd_) == 0, "cannot write {}: {}", path_, system_text(errno));
  rename_into_place(aside_, path_, IfExists::replace);
  ::close(fd_);
  fd_ = -1;
}

void write_file(const std::string& path, std::string_view content) {
  AtomicFile file(path);
  file.write(content);
  file.commit();
}

std::string folder_of(const std::string& path) {
  const std::string bare = without_end_slashes(path);
  const size_t slash = bare.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : bare.substr(0, slash);
}

void require_writable_folder(const std::string& folder) {
  struct stat info {};
  require(::stat(folder.c_str(), &info) == 0, "the folder {} cannot be used: {}", folder, system_text(errno));
  require(S_ISDIR(info.st_mode), "{} is not a folder", folder);
  require(::access(folder.c_str(), W_OK | X_OK) == 0, "the folder {} is not writable: {}", folder, system_text(errno));
}

std::string unused_sibling(const std::string& path) {
  const std::string bare = without_end_slashes(path);
  for (int i = 0;; ++i) {
    std::string name = fmt::format("{}.part-{}-{}", bare, ::getpid(), i);
    if (!exists(name)) return name;
  }
}

void rename_into_place(const std::string& aside, const std::string& path, IfExists rule) {
  const std::string target = without_end_slashes(path);
  int failed = 0;
  if (rule == IfExists::replace) {
    failed = ::rename(aside.c_str(), target.c_str());
  } else {
    failed = ::renameat2(AT_FDCWD, aside.c_str(), AT_FDCWD, target.c_str(), RENAME_NOREPLACE);
    if (failed != 0 && (errno == EINVAL || errno == ENOSYS)) {  // a file system without this kind of rename
      require(!exists(target), "{} already exists", path);
      failed = ::rename(aside.c_str(), target.c_str());
    }
    require(failed == 0 || errno != EEXIST, "{} already exists", path);
  }
  require(failed == 0, "cannot write {}: {}", path, system_text(errno));
  sync_folder(folder_of(path));
}

void sync_folder(const std::string& folder) {
  const int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  require(fd >= 0, "cannot open the folder {}: {}", folder, system_text(errno));
  const int failed = ::fsync(fd);
  const int reason = errno;
  ::close(fd);
  // Some file systems cannot sync a folder and say so; there is nothing more to be done there.
  require(failed == 0 || reason == EINVAL, "cannot sync the folder {}: {}", folder, system_text(reason));
}

}  // namespace stepnet
