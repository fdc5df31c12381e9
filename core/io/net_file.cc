// See the header.
#include "core/io/net_file.h"

#include <unistd.h>

#include <cerrno>

#include "core/io/file_reader.h"

namespace stepnet {

FilePlace net_file(const Workspace& workspace, const std::string& path, PathStart start) {
  require(!path.empty(), "the name of a file is empty");
  if (FileRootPtr root = workspace.file_root()) return {std::move(root), path};
  return start == PathStart::as_it_is ? path : workspace.root_folder + "/" + path;
}

void append_line(const FilePlace& place, const std::string& line, bool anew) {
  const int flags = O_WRONLY | O_APPEND | O_CREAT | (anew ? O_TRUNC : 0);
  const int fd = place.confined() ? open_regular(place, flags) : PlaceFolder(place).open(flags, 0666);
  require(fd >= 0, "cannot write {}: {}", place, system_text(errno));
  const off_t before = ::lseek(fd, 0, SEEK_END);
  const bool written = ::write(fd, line.data(), line.size()) == static_cast<ssize_t>(line.size());
  const bool restored = written || before < 0 || ::ftruncate(fd, before) == 0;
  ::close(fd);
  require(written, "cannot write {}{}", place, restored ? "" : ", whose last line is broken");
}

}  // namespace stepnet
