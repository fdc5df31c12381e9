#include "core/io/files.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>

#include "stepnet/error.h"

namespace stepnet {
namespace {

constexpr size_t kMostAtOnce = size_t{1} << 30;  // Linux takes no more than 2 GiB in one call

// Some files and file systems cannot be synced and say so; there is nothing more to be done there.
int sync(int fd) { return ::fsync(fd) == 0 || errno == EINVAL ? 0 : errno; }

// True for a link, too, wherever it leads.
bool exists(const PlaceFolder& folder) {
  struct stat info {};
  return ::fstatat(folder.fd(), folder.name().c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0;
}

}  // namespace

std::string system_text(int error_number) { return std::generic_category().message(error_number); }

int open_to_write(const FilePlace& place, int flags, const std::string& name) {
  if (place.confined()) return open_regular(place, flags, " for writing");
  const int fd = PlaceFolder(place).open(flags, 0666);
  if (fd < 0) fail("cannot write {}: {}", name, system_text(errno));
  return fd;
}

void write_whole(int fd, const void* data, size_t bytes, const std::string& name) {
  const auto* from = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t put = ::write(fd, from, std::min(bytes, kMostAtOnce));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) fail("cannot write {}: {}", name, system_text(errno));
    from += put;
    bytes -= static_cast<size_t>(put);
  }
}

size_t read_whole(int fd, uint64_t offset, void* to, size_t bytes, const std::string& name) {
  auto* place = static_cast<char*>(to);
  size_t done = 0;
  while (done < bytes) {
    const ssize_t got =
        ::pread(fd, place + done, std::min(bytes - done, kMostAtOnce), static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail("cannot read {}: {}", name, system_text(errno));
    if (got == 0) break;
    done += static_cast<size_t>(got);
  }
  return done;
}

void sync_file(int fd, const std::string& name) {
  if (const int reason = sync(fd); reason != 0) fail("cannot write {}: {}", name, system_text(reason));
}

void sync_folder(const FilePlace& folder) {
  const int fd = PlaceFolder(folder).open(O_RDONLY | O_DIRECTORY);
  if (fd < 0) fail("cannot open the folder {}: {}", folder, system_text(errno));
  const int reason = sync(fd);
  ::close(fd);
  if (reason != 0) fail("cannot sync the folder {}: {}", folder, system_text(reason));
}

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

AtomicFile::AtomicFile(const FilePlace& place) : place_(place), name_(place.str()) {
  require(!place.path().empty(), "the file name is empty");
  struct stat info {};
  require(!look_at(place, info) || S_ISREG(info.st_mode), "{} exists and is not a regular file", place);
  require_writable_folder_of(place);
  aside_ = unused_sibling(place);
  fd_ = PlaceFolder(aside_).open(O_WRONLY | O_CREAT | O_EXCL, 0666);
  if (fd_ < 0) fail("cannot create {}: {}", aside_, system_text(errno));
}

AtomicFile::~AtomicFile() {
  if (fd_ < 0) return;
  ::close(fd_);
  remove_aside(aside_);
}

void AtomicFile::write(const void* data, size_t bytes) { write_whole(fd_, data, bytes, name_); }

void AtomicFile::commit() {
  sync_file(fd_, name_);
  rename_into_place(aside_, place_, IfExists::replace);
  ::close(fd_);
  fd_ = -1;
}

void write_file(const FilePlace& place, std::string_view content) {
  AtomicFile file(place);
  file.write(content);
  file.commit();
}

void require_writable_folder(const std::string& folder) {
  struct stat info {};
  if (::stat(folder.c_str(), &info) != 0) fail("the folder {} cannot be used: {}", folder, system_text(errno));
  require(S_ISDIR(info.st_mode), "{} is not a folder", folder);
  if (::access(folder.c_str(), W_OK | X_OK) != 0) fail("the folder {} is not writable: {}", folder, system_text(errno));
}

void require_writable_folder_of(const FilePlace& place) {
  if (!place.confined()) return require_writable_folder(place.folder().path());
  const PlaceFolder folder(place);
  if (::faccessat(folder.fd(), ".", W_OK | X_OK, 0) != 0)
    fail("the folder of {} is not writable: {}", place, system_text(errno));
}

void append_line(const FilePlace& place, const std::string& line, bool anew) {
  const int flags = O_WRONLY | O_APPEND | O_CREAT | (anew ? O_TRUNC : 0);
  const int fd = open_to_write(place, flags, place.str());
  const off_t before = ::lseek(fd, 0, SEEK_END);
  try {
    write_whole(fd, line, place.str());
  } catch (Error& e) {
    const bool restored = before < 0 || ::ftruncate(fd, before) == 0;
    ::close(fd);
    if (!restored) e.add("in", "a file whose last line is broken now");
    throw;
  }
  ::close(fd);
}

// The temporary name carries the process number, so that two processes that save to one name do not meet.
FilePlace unused_sibling(const FilePlace& place) {
  for (int i = 0;; ++i) {
    FilePlace sibling = place.with_ending(fmt::format(".part-{}-{}", ::getpid(), i));
    if (!exists(PlaceFolder(sibling))) return sibling;
  }
}

// Says nothing of what cannot be removed: an error is on its way already.
void remove_aside(const FilePlace& aside) {
  try {
    const PlaceFolder folder(aside);
    if (::unlinkat(folder.fd(), folder.name().c_str(), 0) == 0 || errno != EISDIR) return;
    for (const std::string& name : names_in(aside)) {
      const PlaceFolder inside(aside.in_folder(name));
      ::unlinkat(inside.fd(), inside.name().c_str(), 0);
    }
    ::unlinkat(folder.fd(), folder.name().c_str(), AT_REMOVEDIR);
  } catch (const Error&) {
    return;
  }
}

void rename_into_place(const FilePlace& aside, const FilePlace& place, IfExists rule) {
  const PlaceFolder folder(place.with_ending("")), from(aside);
  const char* target = folder.name().c_str();
  const auto rename = [&](unsigned flags) {
    return ::renameat2(from.fd(), from.name().c_str(), folder.fd(), target, flags);
  };
  int failed = 0;
  if (rule == IfExists::replace) {
    failed = rename(0);
  } else {
    failed = rename(RENAME_NOREPLACE);
    if (failed != 0 && (errno == EINVAL || errno == ENOSYS)) {  // a file system without this kind of rename
      require(!exists(folder), "{} already exists", place);
      failed = rename(0);
    }
    require(failed == 0 || errno != EEXIST, "{} already exists", place);
  }
  if (failed != 0) fail("cannot write {}: {}", place, system_text(errno));
  sync_folder(place.folder());
}

TemporaryFolder::TemporaryFolder() {
  const std::filesystem::path parent = std::filesystem::temp_directory_path();
  path_ = (parent / "stepnet-XXXXXX").string();
  require(mkdtemp(path_.data()) != nullptr, "no folder for files can be made in {}", parent.string());
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

uint32_t crc32_of(const void* data, size_t bytes, uint32_t start) {
  return static_cast<uint32_t>(::crc32_z(start, static_cast<const Bytef*>(data), bytes));
}

}  // namespace stepnet
