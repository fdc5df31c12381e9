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

#include "core/io/file_place.h"

namespace stepnet {

class AtomicFile {
 public:
  explicit AtomicFile(const FilePlace& place);  // throws Error if the folder is missing or not writable
  ~AtomicFile();                                // drops the temporary file unless committed
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(const void* data, size_t bytes);
  void write(std::string_view text) { write(text.data(), text.size()); }
  void commit();

 private:
  FilePlace place_, aside_;
  std::string name_;  // for messages
  int fd_ = -1;
};

void write_file(const FilePlace& place, std::string_view content);

// Throws Error unless it is a folder, or the folder of the place, in which files can be made.
void require_writable_folder(const std::string& folder);
void require_writable_folder_of(const FilePlace& place);

// A place beside `place` where nothing is yet, for what is written aside.
FilePlace unused_sibling(const FilePlace& place);
// Removes a file, or a folder of files, if it is there.
void remove_aside(const FilePlace& aside);
enum class IfExists { replace, fail };
// Gives what was written aside, beside `place`, its name, and syncs the folder. Throws Error.
void rename_into_place(const FilePlace& aside, const FilePlace& place, IfExists rule);

}  // namespace stepnet
