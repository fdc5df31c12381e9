// Which files of a folder are checkpoints, and in which order; the file format is in core/io/checkpoint_file.h.
#include "core/io/checkpoint.h"

#include <fmt/ranges.h>

#include <algorithm>

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
std::vector<Saved> saved_in(const FilePlace& folder) {
  std::vector<Saved> all;
  for (const std::string& file : names_in(folder))
    if (file.ends_with(kEnding)) all.push_back({checkpoint_number(folder.in_folder(file)).value_or(0), file});
  std::sort(all.begin(), all.end(), [](const Saved& a, const Saved& b) {
    return a.number != b.number ? a.number > b.number : a.file < b.file;
  });
  return all;
}

// What the file `latest` says; "" if there is none that can be right.
std::string read_latest(const FilePlace& folder) {
  try {
    const FileReader file(folder.in_folder(kLatest));
    if (file.size() > kLongestName + 1) return "";
    std::string name = file.text_at(0, file.size());
    if (name.ends_with('\n')) name.pop_back();
    return name.find('/') == std::string::npos && name.ends_with(kEnding) ? name : "";
  } catch (const Error&) {
    return "";
  }
}

}  // namespace

std::string save_checkpoint(const FilePlace& folder, const std::string& name, const Checkpoint& contents) {
  require(!name.empty() && name.find('/') == std::string::npos && name.size() + 5 <= kLongestName,
          "\"{}\" cannot be a checkpoint's name", name);
  const std::vector<Saved> before = saved_in(folder);
  const std::string file = name + kEnding;
  write_checkpoint_file(folder.in_folder(file), before.empty() ? 1 : before[0].number + 1, contents);
  write_file(folder.in_folder(kLatest), file + "\n");
  size_t kept = 1;
  for (const Saved& s : before) {
    // A file without a checkpoint's header may be anybody's.
    if (s.file == file || s.number == 0 || kept++ < kKept) continue;
    remove_aside(folder.in_folder(s.file));  // an old file too many does no harm
  }
  return folder.in_folder(file).str();
}

Checkpoint load_checkpoint(const FilePlace& place) { return read_checkpoint_file(place); }

std::optional<LoadedCheckpoint> load_latest(const FilePlace& folder) {
  std::vector<std::string> files;
  for (const Saved& s : saved_in(folder)) files.push_back(s.file);
  if (const std::string latest = read_latest(folder); !latest.empty()) {
    files.erase(std::remove(files.begin(), files.end(), latest), files.end());
    files.insert(files.begin(), latest);
  }
  if (files.empty()) return std::nullopt;
  std::vector<std::string> notes;
  for (const std::string& file : files) {
    const FilePlace place = folder.in_folder(file);
    try {
      return LoadedCheckpoint{load_checkpoint(place), place.str(), notes};
    } catch (const Error& e) {
      notes.push_back(e.fact());
    }
  }
  fail("none of the checkpoints in {} can be read: {}", folder, fmt::join(notes, "; "));
}

}  // namespace stepnet
