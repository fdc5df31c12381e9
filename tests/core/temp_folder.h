// A folder for one test's files, and whole files. Threads: one thread per folder.
#pragma once

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "core/io/files.h"

namespace stepnet::testing {

class TempFolder : public TemporaryFolder {
 public:
  // How many entries it has.
  int count() const {
    const std::filesystem::directory_iterator all(path());
    return static_cast<int>(std::distance(begin(all), end(all)));
  }
};

inline std::string read_all(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline void write_all(const std::string& path, const std::string& content) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << content;
}

}  // namespace stepnet::testing
