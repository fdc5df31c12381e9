// Calls that take an open file: reading, writing, syncing, closing.
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>

#include "tests/faults/shim/shim.h"

using stepnet::testing::Call;
using stepnet::testing::CallKind;
using stepnet::testing::carry_out;
using stepnet::testing::name_open_file;
using stepnet::testing::next;

namespace {

// Where the next write goes.
off_t place_of(int fd) {
  const int before = errno;
  const int flags = fcntl(fd, F_GETFL);
  const off_t place = lseek(fd, 0, (flags & O_APPEND) != 0 ? SEEK_END : SEEK_CUR);
  errno = before;
  return place;
}

template <class Perform>
long use(Call call, int fd, Perform perform) {
  name_open_file(call, fd);
  if (call.counted && call.kind == CallKind::write && call.offset < 0) call.offset = place_of(fd);
  return carry_out(call, perform);
}

ssize_t write_at(int fd, const void* data, size_t bytes, off_t offset) {
  const Call call{.kind = CallKind::write, .offset = offset, .data = data, .bytes = bytes, .takes_room = true};
  return use(call, fd, [&](size_t some) -> long {
    if (offset < 0) return next<ssize_t(int, const void*, size_t)>("write")(fd, data, some);
    return next<ssize_t(int, const void*, size_t, off_t)>("pwrite")(fd, data, some, offset);
  });
}

ssize_t read_at(int fd, void* to, size_t bytes, off_t offset) {
  return use({.kind = CallKind::read, .bytes = bytes}, fd, [&](size_t some) -> long {
    if (offset < 0) return next<ssize_t(int, void*, size_t)>("read")(fd, to, some);
    return next<ssize_t(int, void*, size_t, off_t)>("pread")(fd, to, some, offset);
  });
}

int cut(int fd, off_t bytes) {
  return static_cast<int>(use({.kind = CallKind::truncate, .offset = bytes}, fd, [&](size_t) {
    return static_cast<long>(next<int(int, off_t)>("ftruncate")(fd, bytes));
  }));
}

int look(int fd, struct stat* found) {
  return static_cast<int>(use({.kind = CallKind::look}, fd, [&](size_t) {
    return static_cast<long>(next<int(int, struct stat*)>("fstat")(fd, found));
  }));
}

int sync(int fd) {
  return static_cast<int>(use({.kind = CallKind::sync}, fd, [](size_t) { return 0L; }));
}

dirent* next_entry(DIR* folder) {
  return reinterpret_cast<dirent*>(use({.kind = CallKind::list, .failure = 0}, dirfd(folder), [&](size_t) {
    return reinterpret_cast<long>(next<dirent*(DIR*)>("readdir")(folder));
  }));
}

}  // namespace

extern "C" {

ssize_t write(int fd, const void* data, size_t bytes) { return write_at(fd, data, bytes, -1); }
ssize_t pwrite(int fd, const void* data, size_t bytes, off_t offset) { return write_at(fd, data, bytes, offset); }
ssize_t pwrite64(int fd, const void* data, size_t bytes, off_t offset) { return write_at(fd, data, bytes, offset); }

// Of a file that is counted the parts are written one by one, as the system may do it.
ssize_t writev(int fd, const iovec* parts, int count) {
  Call call{.kind = CallKind::write};
  name_open_file(call, fd);
  if (!call.counted) return next<ssize_t(int, const iovec*, int)>("writev")(fd, parts, count);
  const auto* some = std::find_if(parts, parts + count, [](const iovec& part) { return part.iov_len > 0; });
  return some == parts + count ? 0 : write(fd, some->iov_base, some->iov_len);
}

ssize_t read(int fd, void* to, size_t bytes) { return read_at(fd, to, bytes, -1); }
ssize_t pread(int fd, void* to, size_t bytes, off_t offset) { return read_at(fd, to, bytes, offset); }
ssize_t pread64(int fd, void* to, size_t bytes, off_t offset) { return read_at(fd, to, bytes, offset); }

int ftruncate(int fd, off_t bytes) noexcept { return cut(fd, bytes); }
int ftruncate64(int fd, off_t bytes) noexcept { return cut(fd, bytes); }

int fsync(int fd) {
  Call call{.kind = CallKind::sync};
  name_open_file(call, fd);
  return call.counted ? sync(fd) : next<int(int)>("fsync")(fd);
}
int fdatasync(int fd) { return fsync(fd); }

int close(int fd) {
  return static_cast<int>(
      use({.kind = CallKind::close}, fd, [&](size_t) { return static_cast<long>(next<int(int)>("close")(fd)); }));
}
int fclose(FILE* stream) {
  return static_cast<int>(use({.kind = CallKind::close}, fileno(stream),
                              [&](size_t) { return static_cast<long>(next<int(FILE*)>("fclose")(stream)); }));
}

int fstat(int fd, struct stat* found) noexcept { return look(fd, found); }
int fstat64(int fd, struct stat64* found) noexcept { return look(fd, reinterpret_cast<struct stat*>(found)); }

int flock(int fd, int operation) noexcept {
  return static_cast<int>(use({.kind = CallKind::lock, .flags = operation}, fd,
                              [&](size_t) { return static_cast<long>(next<int(int, int)>("flock")(fd, operation)); }));
}

DIR* fdopendir(int fd) {
  return reinterpret_cast<DIR*>(use({.kind = CallKind::list, .failure = 0}, fd,
                                    [&](size_t) { return reinterpret_cast<long>(next<DIR*(int)>("fdopendir")(fd)); }));
}
dirent* readdir(DIR* folder) { return next_entry(folder); }
dirent64* readdir64(DIR* folder) { return reinterpret_cast<dirent64*>(next_entry(folder)); }
int closedir(DIR* folder) {
  return static_cast<int>(use({.kind = CallKind::close}, dirfd(folder),
                              [&](size_t) { return static_cast<long>(next<int(DIR*)>("closedir")(folder)); }));
}

void* mmap(void* at, size_t bytes, int rights, int flags, int fd, off_t offset) noexcept {
  const auto perform = [&](size_t) {
    return reinterpret_cast<long>(
        next<void*(void*, size_t, int, int, int, off_t)>("mmap")(at, bytes, rights, flags, fd, offset));
  };
  if (fd < 0) return reinterpret_cast<void*>(perform(0));
  return reinterpret_cast<void*>(use({.kind = CallKind::map}, fd, perform));
}

}  // extern "C"
