// A folder for files that is gone, with all in it, when this object is. Threads: one thread per folder.
#pragma once

#include <string>

namespace stepnet {

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

}  // namespace stepnet
