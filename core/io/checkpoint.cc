// Which files of a folder are checkpoints, and in which order; the file format is in core/io/checkpoint_file.h.
#include "core/io/checkpoint.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

#include "core/error.h"
#include "core/io/atomic_file.h"
#include "core/io/checkpoint_file.h"
#include "core/io/file_reader.h"

namespace stepnet {
namespace {

constexpr const char* kEnding = ".ckpt";
constexpr const char* kLatest = "latest";
constexpr size_t kKept = 2;
constexpr size_t kLongestName = 255;

struct Saved {
  uint64_t number = 0;  // 0 where the header cannot be read
  std::string file;     // name in the folder
};

// The files with a checkpoint's ending, newest first.
std::vector<Saved> saved_in(const std::string& folder) {
  std::vector<Saved> all;
  std::error_code failed;
  std::filesystem::directory_iterator entries(folder, failed);
  require(!failed, "cannot read the folder {}: {}", folder, failed.message());
  for (const auto& entry : entries) {
    const std::string file = entry.path().filename().string();
    if (!file.ends_with(kEnding)) continue;
    all.push_back({checkpoint_number(folder + "/" + file).value_or(0), file});
  }
  std::sort(all.begin(), all.end(), [](const Saved& a, const Saved& b) {
    return a.number != b.number ? a.number > b.number : a.file < b.file;
  });
  return all;
}

// What the file `latest` says; "" if there is none that can be right.
std::string read_latest(const std::string& folder) {
  try {
    const FileReader file(folder + "/" + kLatest);
    if (file.size() > kLongestName + 1) return "";
    std::string name = file.text_at(0, file.size());
    if (name.ends_with('\n')) name.pop_back();
    return name.find('/') == std::string::npos && name.ends_with(kEnding) ? name : "";
  } catch (const Error&) {
    return "";
  }
}

}  // namespace

std::string save_checkpoint(const std::string& folder, const std::string& name, const Checkpoint& contents) {
  require(!name.empty() && name.find('/') == std::string::npos && name.size() + 5 <= kLongestName,
          "\"{}\" cannot be a checkpoint's name", name);
  const std::vector<Saved> before = saved_in(folder);
  const std::string file = name + kEnding, path = folder + "/" + file;
  write_checkpoint_file(path, before.empty() ? 1 : before[0].number + 1, contents);
  write_file(folder + "/" + kLatest, file + "\n");
  size_t kept = 1;
  for (const Saved& s : before) {
    // A file without a checkpoint's header may be anybody's.
    if (s.file == file || s.number == 0 || kept++ < kKept) continue;
    std::error_code ignored;  // an old file too many does no harm
    std::filesystem::remove(folder + "/" + s.file, ignored);
  }
  return path;
}

Checkpoint load_checkpoint(const std::string& path) { return read_checkpoint_file(path); }

std::optional<LoadedCheckpoint> load_latest(const std::string& folder) {
  std::vector<std::string> files;
  for (const Saved& s : saved_in(folder)) files.push_back(s.file);
  if (const std::string latest = read_latest(folder); !latest.empty()) {
    files.erase(std::remove(files.begin(), files.end(), latest), files.end());
    files.insert(files.begin(), latest);
  }
  if (files.empty()) return std::nullopt;
  std::vector<std::string> notes;
  for (const std::string& file : files) {
    const std::string path = folder + "/" + file;
    try {
      return LoadedCheckpoint{load_checkpoint(path), path, notes};
    } catch (const Error& e) {
      notes.push_back(e.fact());
    }
  }
  fail("none of the checkpoints in {} can be read: {}", folder, fmt::join(notes, "; "));
}

}  // namespace stepnet
