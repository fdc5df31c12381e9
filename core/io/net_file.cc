// See the header.
#include "core/io/net_file.h"

#include <unistd.h>

#include "core/error.h"
#include "core/io/file_io.h"

namespace stepnet {

FilePlace net_file(const Workspace& workspace, const std::string& path, PathStart start) {
  require(!path.empty(), "the name of a file is empty");
  if (FileRootPtr root = workspace.file_root()) return {std::move(root), path};
  return start == PathStart::as_it_is ? path : workspace.root_folder + "/" + path;
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

}  // namespace stepnet
