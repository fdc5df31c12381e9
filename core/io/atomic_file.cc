// The temporary name carries the process number, so that two processes that save to one name do not meet.
#include "core/io/atomic_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "core/error.h"
#include "core/io/file_io.h"

namespace stepnet {
namespace {

// Of a link, too, wherever it leads.
bool exists(const PlaceFolder& folder) {
  struct stat info {};
  return ::fstatat(folder.fd(), folder.name().c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0;
}

}  // namespace

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

FilePlace unused_sibling(const FilePlace& place) {
  for (int i = 0;; ++i) {
    FilePlace sibling = place.with_ending(fmt::format(".part-{}-{}", ::getpid(), i));
    if (!exists(PlaceFolder(sibling))) return sibling;
  }
}

// Nobody is told of what cannot be removed: an error is on its way already.
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

}  // namespace stepnet
