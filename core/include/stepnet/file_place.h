// FilePlace: where a file lies, with the root folder that it must not leave.
//
// What a person names is used as it is: a path is a FilePlace without a root. What a net names may be confined: the
// place then lies below a FileRoot, an open folder, and is found without following links, component by component. The
// place itself must be a regular file where it is opened as one: no link, pipe, socket or device.
// Owns: a FileRoot and a PlaceFolder their descriptors. Threads: immutable, all of them.
// Errors: a FilePlace of a root throws Error for a path that is empty or absolute, leaves the root or has a zero byte.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/types.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace stepnet {

class Workspace;

class FileRoot {
 public:
  FileRoot() = default;                 // has no files: every place below it is refused
  explicit FileRoot(std::string path);  // throws Error if it is no folder; it may be reached by links
  ~FileRoot();
  FileRoot(const FileRoot&) = delete;
  FileRoot& operator=(const FileRoot&) = delete;

  int fd() const { return fd_; }
  const std::string& path() const { return path_; }  // for messages

 private:
  std::string path_;
  int fd_ = -1;
};

// Shared by the workspaces of a run and by the places in it.
using FileRootPtr = std::shared_ptr<const FileRoot>;

class FilePlace {
 public:
  FilePlace() = default;
  FilePlace(std::string path) : path_(std::move(path)) {}  // anywhere
  FilePlace(const char* path) : path_(path) {}
  FilePlace(FileRootPtr root, const std::string& path);  // anywhere if `root` is null

  const std::string& path() const { return path_; }  // below the root without "." and ".."
  const FileRootPtr& root() const { return root_; }
  bool confined() const { return root_ != nullptr; }
  std::string str() const;                              // for messages
  FilePlace in_folder(const std::string& name) const;   // of that name in the folder that this place is
  FilePlace with_ending(const std::string& end) const;  // beside this place
  FilePlace folder() const;                             // that it is in; "." for a bare name

 private:
  std::string path_;
  FileRootPtr root_;
};

// The folder that a place is in, open, and the place's name there: what the system's *at() calls take, so that a link
// that is put in between is not followed. Of a place anywhere, the current folder and the whole path.
class PlaceFolder {
 public:
  explicit PlaceFolder(const FilePlace& place);  // throws Error if the folder cannot be opened
  ~PlaceFolder();
  PlaceFolder(const PlaceFolder&) = delete;
  PlaceFolder& operator=(const PlaceFolder&) = delete;

  int fd() const { return fd_; }
  const std::string& name() const { return name_; }

  // As the system's calls: -1 with errno where they fail. A confined one follows no link.
  int open(int flags, mode_t mode = 0) const;
  int look(struct stat& found) const;

 private:
  int fd_ = AT_FDCWD;
  bool confined_ = false;
  std::string name_;
};

// Opens a regular file; throws Error if it is none, or if it cannot be opened `for_what`, such as "for writing". What
// waits for another process, such as a pipe, is not waited for.
int open_regular(const FilePlace& place, int flags, std::string_view for_what = "");

// Whether something is there, and what; of a confined place a link, too. Throws Error if the system cannot tell, so
// that a disk that fails is not taken for a file that is missing.
bool look_at(const FilePlace& place, struct stat& found);

// Makes the folders that a place is in, as far as they are not there, so that they survive a loss of power. Throws
// Error if one cannot be made.
void make_folders_of(const FilePlace& place);

// The names of what is in a folder, in no order; throws Error if it cannot be read.
std::vector<std::string> names_in(const FilePlace& folder);

// Where a file lies that a net names; all operators that open files ask here. In a workspace that is confined
// (Workspace::confine), by itself or by one that it is in, every path starts at the root folder and stays below it,
// whatever the operator says of absolute paths. Else a path starts at the workspace's root_folder, or is used as it is.
// Throws Error if the path is empty, or leaves the folder that the workspace is confined to.
enum class PathStart { root_folder, as_it_is };
FilePlace net_file(const Workspace& workspace, const std::string& path, PathStart start);
inline PathStart path_start(bool absolute) { return absolute ? PathStart::as_it_is : PathStart::root_folder; }

// Opens a folder below another, without following links: by openat2, or where the system has none, by hand. Returns -1
// with errno if it cannot, ELOOP at a link. `path` has neither ".." nor a slash at its start.
int open_folder_below(int root, const std::string& path);
int open_folder_by_hand(int root, const std::string& path);

}  // namespace stepnet
