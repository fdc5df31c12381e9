// FileReader: bounded reads from a regular file, for formats that must not trust what a file says about itself.
//
// Folders, pipes and devices are refused, so that opening never blocks. Every read is checked against the size that the
// file had when it was opened. Errors name the file.
// Threads: reads may come from several threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "core/io/file_io.h"

namespace stepnet {

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

}  // namespace stepnet
