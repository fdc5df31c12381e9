// AtomicFile: a file is there whole or not at all.
//
// Bytes go to a temporary name in the same folder; `commit` syncs them, renames the file and syncs the folder. Whatever
// stood under the name before stays until then, and stays for good if commit is never reached. The same steps for a
// whole folder (a database) are the free functions below.
// Threads: one thread per AtomicFile.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace stepnet {

class AtomicFile {
 public:
  explicit AtomicFile(std::string path);  // throws Error if the folder is missing or not writable
  ~AtomicFile();                          // drops the temporary file unless committed
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(const void* data, size_t bytes);
  void write(std::string_view text) { write(text.data(), text.size()); }
  void commit();

 private:
  std::string path_, aside_;
  int fd_ = -1;
};

void write_file(const std::string& path, std::string_view content);

// The folder a path is in; "." for a bare name.
std::string folder_of(const std::string& path);
// Throws Error unless `folder` is a folder in which files can be made.
void require_writable_folder(const std::string& folder);

// A name beside `path` that nothing has yet, for what is written aside.
std::string unused_sibling(const std::string& path);
enum class IfExists { replace, fail };
// Gives what was written aside its name, and syncs the folder. Throws Error.
void rename_into_place(const std::string& aside, const std::string& path, IfExists rule);
void sync_folder(const std::string& folder);

}  // namespace stepnet
