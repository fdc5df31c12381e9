#include "core/tensor/machine_memory.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>

namespace stepnet {
namespace {

namespace fs = std::filesystem;

std::optional<int64_t> number_of(const std::string& text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end == text.data() || value < 0) return {};
  return value;
}

// The first word of a file, as a number: none of "max", which stands for no limit.
std::optional<int64_t> number_in(const fs::path& file) {
  std::ifstream in(file);
  std::string word;
  return in >> word ? number_of(word) : std::nullopt;
}

// The number behind a word that a line begins with, such as "MemAvailable:".
std::optional<int64_t> number_behind(const fs::path& file, const std::string& key) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    std::string word, number;
    if (words >> word >> number && word == key) return number_of(number);
  }
  return {};
}

// How one version of control groups names its files.
struct GroupFiles {
  const char *limit, *usage, *cache;
};
constexpr GroupFiles kFirst = {"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"};
constexpr GroupFiles kSecond = {"memory.max", "memory.current", "inactive_file"};

// Pages of files that were not read lately are taken back before anything is refused.
int64_t left_in(const fs::path& group, const GroupFiles& files, int64_t limit) {
  const int64_t usage = number_in(group / files.usage).value_or(0);
  const int64_t cache = number_behind(group / "memory.stat", files.cache).value_or(0);
  return std::max<int64_t>(0, limit - std::max<int64_t>(0, usage - cache));
}
int64_t all_of(const fs::path&, const GroupFiles&, int64_t limit) { return limit; }
using OfGroup = int64_t (*)(const fs::path& group, const GroupFiles& files, int64_t limit);

// The least of the group and of those around it. Inside of a container its own group may be the outermost that can be
// seen, whatever path the system tells.
int64_t least_of_groups(const fs::path& top, std::string path, const GroupFiles& files, OfGroup value) {
  int64_t least = INT64_MAX;
  while (true) {
    const fs::path group = top / fs::path(path).relative_path();
    if (const auto limit = number_in(group / files.limit)) least = std::min(least, value(group, files, *limit));
    if (path.empty() || path == "/") return least;
    path = fs::path(path).parent_path().string();
  }
}

// Lines of proc/self/cgroup are "0::/path" of version 2, and "7:memory:/path", with controllers in between, of 1.
int64_t of_groups(const fs::path& root, OfGroup value) {
  const fs::path top = root / "sys/fs/cgroup";
  int64_t least = INT64_MAX;
  std::ifstream in(root / "proc/self/cgroup");
  for (std::string line; std::getline(in, line);) {
    const size_t first = line.find(':'), second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const std::string path = line.substr(second + 1);
    if (controllers == ",,") least = std::min(least, least_of_groups(top, path, kSecond, value));
    if (controllers.find(",memory,") != std::string::npos)
      least = std::min(least, least_of_groups(top / "memory", path, kFirst, value));
  }
  return least;
}

int64_t address_space_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return INT64_MAX;
  return static_cast<int64_t>(std::min<rlim_t>(limit.rlim_cur, INT64_MAX));
}

int64_t address_space_left(const fs::path& root) {
  const int64_t limit = address_space_limit();
  const auto pages = number_in(root / "proc/self/statm");
  if (limit == INT64_MAX || !pages) return limit;
  return std::max<int64_t>(0, limit - *pages * sysconf(_SC_PAGE_SIZE));
}

int64_t physical_memory() {
  const int64_t pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGE_SIZE);
  return pages > 0 && page > 0 ? pages * page : INT64_MAX;
}

}  // namespace

int64_t MemoryLeft::least() const { return std::min({machine, group, address_space}); }

MemoryLeft memory_left(const std::string& root) {
  MemoryLeft left;
  if (const auto kilobytes = number_behind(fs::path(root) / "proc/meminfo", "MemAvailable:"))
    left.machine = *kilobytes * 1024;
  left.group = of_groups(root, left_in);
  left.address_space = address_space_left(root);
  return left;
}

int64_t most_memory(const std::string& root) {
  return std::min({physical_memory(), of_groups(root, all_of), address_space_limit()});
}

}  // namespace stepnet
