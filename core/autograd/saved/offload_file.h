// Files of values that are offloaded: bare bytes, whose number and checksum the process keeps.
//
// A file loses its name as soon as it is open, so that nothing stays when the process is killed. A process may have so
// many files open only; beyond half of that they keep their names. Threads: one thread per file.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <utility>

namespace stepnet::autograd {

// Gone with this object.
class OffloadFile {
 public:
  OffloadFile() = default;
  explicit OffloadFile(std::string path);  // a new one; throws Error
  ~OffloadFile() { close(); }
  OffloadFile(OffloadFile&& other) noexcept { *this = std::move(other); }
  OffloadFile& operator=(OffloadFile&& other) noexcept {
    std::swap(path_, other.path_);
    std::swap(fd_, other.fd_);
    std::swap(is_named_, other.is_named_);
    return *this;
  }

  const std::string& path() const { return path_; }
  void write(const std::byte* from, size_t bytes) const;
  void rest();  // lets go of what a named file need not keep
  // Throws Error unless the file has exactly these bytes.
  void read(std::byte* to, size_t bytes, uint32_t checksum) const;

 private:
  void close() noexcept;

  std::string path_;
  int fd_ = -1;
  bool is_named_ = false;
};

// Writes a new file; throws Error, and leaves none, if that cannot be done. Its CRC-32 as well. Stops early, with
// whatever is written by then, when `given_up` becomes true.
std::pair<OffloadFile, uint32_t> write_offload_file(const std::string& path, const std::byte* data, size_t bytes,
                                                    const std::atomic<bool>& given_up);

// Makes the folder if there is none, and checks that files can be made there. True if it was made.
bool prepare_offload_folder(const std::string& folder);

}  // namespace stepnet::autograd
