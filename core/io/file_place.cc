#include "stepnet/file_place.h"

#include <dirent.h>
#include <linux/openat2.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <string_view>

#include "core/io/files.h"
#include "stepnet/error.h"
#include "stepnet/workspace.h"

namespace stepnet {
namespace {

std::vector<std::string> components(std::string_view path) {
  std::vector<std::string> parts;
  while (!path.empty()) {
    const size_t slash = path.find('/');
    if (slash != 0) parts.emplace_back(path.substr(0, slash));
    if (slash == std::string_view::npos) break;
    path.remove_prefix(slash + 1);
  }
  return parts;
}

// What is wrong with a path below `root`. Where no link is followed, a component and the ".." behind it are nothing.
std::string path_below(const FileRoot& root, const std::string& path) {
  const auto refuse = [&](std::string_view why) {
    throw Error(
        fmt::format("the path \"{}\" {}, but nets may only open files below the folder {}", path, why, root.path()),
        "give the path from that folder on");
  };
  require(!path.empty(), "the name of a file is empty");
  if (root.fd() < 0)
    throw Error(fmt::format("the net may not open \"{}\": it comes from a file that need not be trusted", path),
                "if you trust it, say below which folder it may open files: --root DIR");
  require(path.find('\0') == std::string::npos, "the path \"{}\" has a zero byte", path);
  if (path.starts_with('/')) refuse("is absolute");
  std::string below;
  for (const std::string& part : components(path)) {
    if (part == ".") continue;
    if (part != "..") {
      below += (below.empty() ? "" : "/") + part;
      continue;
    }
    if (below.empty()) refuse("leads out of it");
    const size_t slash = below.rfind('/');
    below.resize(slash == std::string::npos ? 0 : slash);
  }
  return below.empty() ? "." : below;
}

}  // namespace

FileRoot::FileRoot(std::string path) : path_(std::move(path)) {
  fd_ = ::open(path_.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC);
  if (fd_ < 0) fail("the root folder \"{}\" cannot be opened: {}", path_, system_text(errno));
}

FileRoot::~FileRoot() {
  if (fd_ >= 0) ::close(fd_);
}

FilePlace::FilePlace(FileRootPtr root, const std::string& path)
    : path_(root ? path_below(*root, path) : path), root_(std::move(root)) {}

std::string FilePlace::str() const {
  if (!root_) return path_;
  return path_ == "." ? root_->path() : root_->path() + "/" + path_;
}

FilePlace FilePlace::in_folder(const std::string& name) const { return {root_, path_ + "/" + name}; }

FilePlace FilePlace::with_ending(const std::string& end) const {
  std::string bare = path_;
  while (bare.size() > 1 && bare.back() == '/') bare.pop_back();
  return {root_, bare + end};
}

FilePlace FilePlace::folder() const {
  const std::string bare = with_ending("").path_;
  const size_t slash = bare.rfind('/');
  if (slash == std::string::npos) return {root_, "."};
  return {root_, slash == 0 ? "/" : bare.substr(0, slash)};
}

PlaceFolder::PlaceFolder(const FilePlace& place) : confined_(place.confined()), name_(place.path()) {
  if (!confined_) return;
  const size_t slash = name_.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : name_.substr(0, slash);
  if (slash != std::string::npos) name_.erase(0, slash + 1);
  fd_ = open_folder_below(place.root()->fd(), folder);
  if (fd_ >= 0) return;
  if (errno == ELOOP)
    fail("cannot open {}: a link leads to it, and below {} links are not followed", place, place.root()->path());
  fail("cannot open the folder of {}: {}", place, system_text(errno));
}

PlaceFolder::~PlaceFolder() {
  if (confined_) ::close(fd_);
}

int PlaceFolder::open(int flags, mode_t mode) const {
  return ::openat(fd_, name_.c_str(), flags | O_CLOEXEC | (confined_ ? O_NOFOLLOW | O_NOCTTY : 0), mode);
}

int PlaceFolder::look(struct stat& found) const {
  return ::fstatat(fd_, name_.c_str(), &found, confined_ ? AT_SYMLINK_NOFOLLOW : 0);
}

static bool look_at(const PlaceFolder& folder, const FilePlace& place, struct stat& found) {
  if (folder.look(found) == 0) return true;
  if (errno != ENOENT && errno != ENOTDIR) fail("cannot look at {}: {}", place, system_text(errno));
  return false;
}

bool look_at(const FilePlace& place, struct stat& found) { return look_at(PlaceFolder(place), place, found); }

// A device may do something when it is opened, so a confined place is looked at before.
int open_regular(const FilePlace& place, int flags, std::string_view for_what) {
  const PlaceFolder folder(place);
  struct stat info {};
  if (place.confined() && look_at(folder, place, info)) {
    if (S_ISLNK(info.st_mode))
      fail("cannot open {}: it is a link, and below {} links are not followed", place, place.root()->path());
    require(S_ISREG(info.st_mode), "{} is not a regular file", place);
    // Bytes that are written to a file of several names show under all of them, and one may lie outside.
    require(info.st_nlink == 1 || (flags & O_ACCMODE) == O_RDONLY || (flags & O_EXCL) != 0,
            "{} has {} names (hard links), so it is not written to", place, info.st_nlink);
  }
  const int fd = folder.open(flags | O_NONBLOCK, 0666);
  if (fd < 0) fail("cannot open {}{}: {}", place, for_what, system_text(errno));
  const int reason = ::fstat(fd, &info) == 0 ? 0 : errno;
  if (reason == 0 && S_ISREG(info.st_mode)) return fd;
  ::close(fd);
  if (reason != 0) fail("cannot look at {}: {}", place, system_text(reason));
  fail("{} is not a regular file", place);
}

void make_folders_of(const FilePlace& place) {
  const std::vector<std::string> parts = components(place.path());
  std::string folder = !place.confined() && place.path().starts_with('/') ? "/" : "";
  for (size_t i = 0; i + 1 < parts.size(); ++i) {
    folder += parts[i];
    const FilePlace next(place.root(), folder);
    const PlaceFolder above(next);
    if (::mkdirat(above.fd(), above.name().c_str(), 0777) == 0) {
      sync_folder(next.folder());
    } else if (const int reason = errno; reason != EEXIST) {
      struct stat info {};
      require(look_at(next, info), "cannot make the folder {}: {}", next, system_text(reason));
    }
    folder += "/";
  }
}

std::vector<std::string> names_in(const FilePlace& folder) {
  const int fd = PlaceFolder(folder).open(O_RDONLY | O_DIRECTORY);
  DIR* entries = fd < 0 ? nullptr : ::fdopendir(fd);
  if (!entries) {
    const int reason = errno;
    if (fd >= 0) ::close(fd);
    fail("cannot read the folder {}: {}", folder, system_text(reason));
  }
  std::vector<std::string> names;
  errno = 0;
  while (const dirent* entry = ::readdir(entries)) {
    if (std::string_view(entry->d_name) != "." && std::string_view(entry->d_name) != "..")
      names.emplace_back(entry->d_name);
    errno = 0;
  }
  const int reason = errno;  // 0 at the end
  ::closedir(entries);
  if (reason != 0) fail("cannot read the folder {}: {}", folder, system_text(reason));
  return names;
}

FilePlace net_file(const Workspace& workspace, const std::string& path, PathStart start) {
  require(!path.empty(), "the name of a file is empty");
  if (FileRootPtr root = workspace.file_root()) return {std::move(root), path};
  return start == PathStart::as_it_is ? path : workspace.root_folder + "/" + path;
}

int open_folder_below(int root, const std::string& path) {
  open_how how{};
  how.flags = O_PATH | O_DIRECTORY | O_CLOEXEC;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS;
  const auto fd = ::syscall(SYS_openat2, root, path.c_str(), &how, sizeof(how));
  if (fd < 0 && (errno == ENOSYS || errno == EPERM)) return open_folder_by_hand(root, path);
  return static_cast<int>(fd);
}

int open_folder_by_hand(int root, const std::string& path) {
  int at = ::openat(root, ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
  for (const std::string& part : components(path)) {
    if (at < 0) return -1;
    const int next = ::openat(at, part.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC);
    const int reason = errno;
    ::close(at);
    at = next;
    struct stat info {};
    if (next < 0) {
      errno = reason;
      return -1;
    }
    if (::fstat(next, &info) == 0 && S_ISDIR(info.st_mode)) continue;
    ::close(next);
    errno = S_ISLNK(info.st_mode) ? ELOOP : ENOTDIR;
    return -1;
  }
  return at;
}

}  // namespace stepnet
