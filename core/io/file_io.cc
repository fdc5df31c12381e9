#include "core/io/file_io.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "core/error.h"

namespace stepnet {
namespace {

constexpr size_t kMostAtOnce = size_t{1} << 30;  // Linux takes no more than 2 GiB in one call

// Some files and file systems cannot be synced and say so; there is nothing more to be done there.
int sync(int fd) { return ::fsync(fd) == 0 || errno == EINVAL ? 0 : errno; }

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

}  // namespace stepnet
