#include "core/io/folder_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <utility>

#include "core/io/files.h"
#include "stepnet/error.h"

namespace stepnet {
namespace {

// The number in the file of whoever has the lock; 0 if there is none yet.
pid_t owner(int fd) {
  std::array<char, 16> text;
  const ssize_t got = ::pread(fd, text.data(), text.size(), 0);
  pid_t process = 0;
  if (got > 0) std::from_chars(text.data(), text.data() + got, process);
  return process;
}

[[noreturn]] void refuse(const std::string& folder, pid_t process) {
  if (process <= 0)
    throw Error(fmt::format("another run is writing to the folder \"{}\"", folder),
                "wait for its end, or give another folder");
  throw Error(fmt::format("another run, process {}, is writing to the folder \"{}\"", process, folder),
              fmt::format("wait for its end, stop it (kill {} lets it save first), or give another folder", process));
}

// Whether the open file still has its name: whoever had the lock before may have removed it.
bool has_name(int fd, const FilePlace& file) {
  struct stat open {
  }, named{};
  if (::fstat(fd, &open) != 0) fail("cannot look at {}: {}", file, system_text(errno));
  return look_at(file, named) && open.st_ino == named.st_ino && open.st_dev == named.st_dev;
}

std::string folder_of(const FilePlace& file) {
  return file.confined() ? file.root()->path() : std::filesystem::path(file.path()).parent_path().string();
}

}  // namespace

FolderLock::FolderLock(FilePlace file) : file_(std::move(file)) {
  try {
    while (!try_lock()) {
    }
  } catch (const Error&) {
    if (fd_ >= 0) ::close(fd_);
    throw;
  }
}

// False: the file was gone when its lock was there.
bool FolderLock::try_lock() {
  fd_ = open_regular(file_, O_RDWR | O_CREAT, " for writing");
  int failed = 0;
  do failed = ::flock(fd_, LOCK_EX | LOCK_NB);
  while (failed != 0 && errno == EINTR);
  const int reason = errno;
  if (failed != 0 && reason == EWOULDBLOCK) refuse(folder_of(file_), owner(fd_));
  if (failed != 0) {
    note_ = fmt::format("the file system of \"{}\" has no locks ({}), so nothing keeps a second run out of it",
                        folder_of(file_), system_text(reason));
  } else if (!has_name(fd_, file_)) {
    ::close(std::exchange(fd_, -1));
    return false;
  }
  const std::string text = fmt::format("{}\n", ::getpid());
  // The number is for messages; the lock holds without it.
  if (::ftruncate(fd_, 0) != 0 || ::pwrite(fd_, text.data(), text.size(), 0) < 0) errno = 0;
  return true;
}

// Before the lock goes, so that nobody removes another's file.
FolderLock::~FolderLock() {
  try {
    const PlaceFolder folder(file_);
    ::unlinkat(folder.fd(), folder.name().c_str(), 0);
  } catch (const Error&) {
    errno = 0;  // the file stays, which is no lock
  }
  ::close(fd_);
}

}  // namespace stepnet
