// Calls that take a path: opening, and what changes or looks at names.
#include <dirent.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/faults/shim/shim.h"

using stepnet::testing::Call;
using stepnet::testing::CallKind;
using stepnet::testing::carry_out;
using stepnet::testing::name_file;
using stepnet::testing::next;

namespace {

bool is_there(int folder, const char* path) {
  const int before = errno;
  const bool there = next<int(int, const char*, int, int)>("faccessat")(folder, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
  errno = before;
  return there;
}

template <class Perform>
int open_at(int folder, const char* path, int flags, Perform perform) {
  Call call{.kind = CallKind::open, .flags = flags};
  name_file(call, folder, path);
  call.takes_room = call.counted && (flags & O_CREAT) != 0 && !is_there(folder, path);
  return static_cast<int>(carry_out(call, [&](size_t) {
    call.fd = perform();
    return static_cast<long>(call.fd);
  }));
}

int open_file(int folder, const char* path, int flags, mode_t mode) {
  return open_at(folder, path, flags,
                 [&] { return next<int(int, const char*, int, ...)>("openat")(folder, path, flags, mode); });
}

FILE* open_stream(const char* path, const char* mode) {
  Call call{.kind = CallKind::open, .flags = strchr(mode, 'r') ? O_RDONLY : O_WRONLY | O_CREAT, .failure = 0};
  name_file(call, AT_FDCWD, path);
  return reinterpret_cast<FILE*>(carry_out(call, [&](size_t) {
    FILE* stream = next<FILE*(const char*, const char*)>("fopen64")(path, mode);
    if (stream) call.fd = fileno(stream);
    return reinterpret_cast<long>(stream);
  }));
}

template <class Perform>
int change(CallKind kind, int folder, const char* path, int flags, Perform perform) {
  Call call{.kind = kind, .flags = flags, .takes_room = kind == CallKind::make_folder};
  name_file(call, folder, path);
  return static_cast<int>(carry_out(call, [&](size_t) { return static_cast<long>(perform()); }));
}

int rename_at(int from_folder, const char* from, int to_folder, const char* to, unsigned flags) {
  Call call{.kind = CallKind::rename, .flags = static_cast<int>(flags)};
  name_file(call, from_folder, from);
  name_file(call, to_folder, to);
  return static_cast<int>(carry_out(call, [&](size_t) {
    using Rename = int(int, const char*, int, const char*, unsigned);
    return static_cast<long>(next<Rename>("renameat2")(from_folder, from, to_folder, to, flags));
  }));
}

}  // namespace

extern "C" {

int open(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  return open_file(AT_FDCWD, path, flags, mode);
}

int open64(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  return open_file(AT_FDCWD, path, flags, mode);
}

int openat(int folder, const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  return open_file(folder, path, flags, mode);
}

int openat64(int folder, const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  return open_file(folder, path, flags, mode);
}

// Of all calls that are made by number only openat2 is one on files.
long syscall(long number, ...) noexcept {
  va_list rest;
  va_start(rest, number);
  long a[6];
  for (long& value : a) value = va_arg(rest, long);
  va_end(rest);
  const auto perform = [&] { return next<long(long, ...)>("syscall")(number, a[0], a[1], a[2], a[3], a[4], a[5]); };
  if (number != SYS_openat2) return perform();
  const auto* how = reinterpret_cast<const open_how*>(a[2]);
  return open_at(static_cast<int>(a[0]), reinterpret_cast<const char*>(a[1]), static_cast<int>(how->flags),
                 [&] { return static_cast<int>(perform()); });
}

FILE* fopen(const char* path, const char* mode) { return open_stream(path, mode); }
FILE* fopen64(const char* path, const char* mode) { return open_stream(path, mode); }

int rename(const char* from, const char* to) noexcept { return rename_at(AT_FDCWD, from, AT_FDCWD, to, 0); }
int renameat(int from_folder, const char* from, int to_folder, const char* to) noexcept {
  return rename_at(from_folder, from, to_folder, to, 0);
}
int renameat2(int from_folder, const char* from, int to_folder, const char* to, unsigned flags) noexcept {
  return rename_at(from_folder, from, to_folder, to, flags);
}

int unlinkat(int folder, const char* path, int flags) noexcept {
  return change(CallKind::remove, folder, path, flags,
                [&] { return next<int(int, const char*, int)>("unlinkat")(folder, path, flags); });
}
int unlink(const char* path) noexcept { return unlinkat(AT_FDCWD, path, 0); }
int rmdir(const char* path) noexcept { return unlinkat(AT_FDCWD, path, AT_REMOVEDIR); }

int mkdirat(int folder, const char* path, mode_t mode) noexcept {
  return change(CallKind::make_folder, folder, path, 0,
                [&] { return next<int(int, const char*, mode_t)>("mkdirat")(folder, path, mode); });
}
int mkdir(const char* path, mode_t mode) noexcept { return mkdirat(AT_FDCWD, path, mode); }

int fstatat(int folder, const char* path, struct stat* found, int flags) noexcept {
  return change(CallKind::look, folder, path, flags,
                [&] { return next<int(int, const char*, struct stat*, int)>("fstatat")(folder, path, found, flags); });
}
int stat(const char* path, struct stat* found) noexcept { return fstatat(AT_FDCWD, path, found, 0); }
int lstat(const char* path, struct stat* found) noexcept { return fstatat(AT_FDCWD, path, found, AT_SYMLINK_NOFOLLOW); }

int faccessat(int folder, const char* path, int rights, int flags) noexcept {
  return change(CallKind::look, folder, path, flags,
                [&] { return next<int(int, const char*, int, int)>("faccessat")(folder, path, rights, flags); });
}
int access(const char* path, int rights) noexcept { return faccessat(AT_FDCWD, path, rights, 0); }

DIR* opendir(const char* path) {
  Call call{.kind = CallKind::list, .failure = 0};
  name_file(call, AT_FDCWD, path);
  return reinterpret_cast<DIR*>(
      carry_out(call, [&](size_t) { return reinterpret_cast<long>(next<DIR*(const char*)>("opendir")(path)); }));
}

}  // extern "C"
