// The open files of a folder that have lost their names, as those of offloaded values have. Threads: pure functions.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace stepnet::autograd::testing {

struct NamelessFile {
  std::string name;  // that it had
  std::string path;  // by which it can be opened all the same
};

inline std::vector<NamelessFile> nameless_files(const std::string& folder) {
  constexpr std::string_view kGone = " (deleted)";
  std::vector<NamelessFile> files;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;  // the iterator's own
    std::string name = std::filesystem::read_symlink(entry.path(), gone).string();
    if (gone || !name.starts_with(folder + "/") || !name.ends_with(kGone)) continue;
    name.resize(name.size() - kGone.size());
    files.push_back({name, entry.path().string()});
  }
  return files;
}

}  // namespace stepnet::autograd::testing
