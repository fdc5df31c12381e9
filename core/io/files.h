// Files: whole reads and writes, bounded reads of what is not trusted, and files that are there whole or not at all.
//
// The system may take and give bytes in parts, and may be interrupted; these functions go on. What was written survives
// a loss of power after sync_file; a name that a file or a folder was given, took over or lost, after sync_folder of
// the folder that it is in. `name` is what messages call the file.
// Owns: FileReader and AtomicFile their descriptors, TemporaryFolder what is in its folder.
// Threads: one thread per file, but read_whole and FileReader, which several may use. Errors: Error that names the
// file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "stepnet/file_place.h"

namespace stepnet {

// What the system says about an error number, such as "No such file or directory".
std::string system_text(int error_number);

// Opens a file to write to, which a confined place must not leave and where it must be a regular file.
int open_to_write(const FilePlace& place, int flags, const std::string& name);
void write_whole(int fd, const void* data, size_t bytes, const std::string& name);
inline void write_whole(int fd, std::string_view text, const std::string& name) {
  write_whole(fd, text.data(), text.size(), name);
}
// Reads from `offset` on. Returns how many bytes there were: fewer than wanted only at the end of the file.
size_t read_whole(int fd, uint64_t offset, void* to, size_t bytes, const std::string& name);

// Does nothing for what cannot be synced, such as a pipe or a terminal.
void sync_file(int fd, const std::string& name);
void sync_folder(const FilePlace& folder);  // throws Error if it is none

// Bounded reads from a regular file, for formats that must not trust what a file says about itself. Folders, pipes and
// devices are refused, so that opening never blocks. Every read is checked against the size that the file had when it
// was opened.
class FileReader {
 public:
  explicit FileReader(const FilePlace& place);
  ~FileReader();
  FileReader(const FileReader&) = delete;
  FileReader& operator=(const FileReader&) = delete;

  const std::string& path() const { return path_; }  // for messages
  int fd() const { return fd_; }
  uint64_t size() const { return size_; }

  // Exactly these bytes; throws Error if the file does not have them.
  void read_at(uint64_t offset, void* to, size_t bytes) const;
  template <class T>
  T value_at(uint64_t offset) const {
    T value;
    read_at(offset, &value, sizeof(T));
    return value;
  }
  std::string text_at(uint64_t offset, size_t bytes) const;

 private:
  std::string path_;
  uint64_t size_ = 0;
  int fd_ = -1;
};

// A file that is there whole or not at all. Bytes go to a temporary name in the same folder; `commit` syncs them,
// renames the file and syncs the folder. Whatever stood under the name before stays until then, and stays for good if
// commit is never reached. The same steps for a whole folder (a database) are the free functions below.
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
// Adds a line to a file, or starts it anew with it. The line is there whole or not at all.
void append_line(const FilePlace& place, const std::string& line, bool anew = false);

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

// A folder for files that is gone, with all in it, when this object is.
class TemporaryFolder {
 public:
  TemporaryFolder();  // throws Error if none can be made
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string file(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

// Returns zlib's CRC-32; `start` is the checksum of the bytes before these.
uint32_t crc32_of(const void* data, size_t bytes, uint32_t start = 0);

}  // namespace stepnet
