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

// The files with a checkpoint's ending, newest first: the one that `latest` names, and the others by their numbers,
// which cannot be trusted where a header could not be read when a later one was numbered.
std::vector<Saved> saved_in(const FilePlace& folder, const std::string& latest) {
  std::vector<Saved> all;
  for (const std::string& file : names_in(folder))
    if (file.ends_with(kEnding)) all.push_back({checkpoint_number(folder.in_folder(file)).value_or(0), file});
  std::sort(all.begin(), all.end(), [](const Saved& a, const Saved& b) {
    return a.number != b.number ? a.number > b.number : a.file < b.file;
  });
  std::stable_partition(all.begin(), all.end(), [&](const Saved& s) { return s.file == latest; });
  return all;
}

}  // namespace

std::string save_checkpoint(const FilePlace& folder, const std::string& name, const Checkpoint& contents) {
  require(!name.empty() && name.find('/') == std::string::npos && name.size() + 5 <= kLongestName,
          "\"{}\" cannot be a checkpoint's name", name);
  const std::vector<Saved> before = saved_in(folder, read_latest(folder));
  const std::string file = name + kEnding;
  uint64_t last = 0;
  for (const Saved& s : before) last = std::max(last, s.number);
  write_checkpoint_file(folder.in_folder(file), last + 1, contents);
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
  const std::string latest = read_latest(folder);
  std::vector<Saved> all = saved_in(folder, latest);
  if (!latest.empty() && (all.empty() || all[0].file != latest)) all.insert(all.begin(), {0, latest});  // it is gone
  if (all.empty()) return std::nullopt;
  std::vector<std::string> notes;
  for (const Saved& s : all) {
    const FilePlace place = folder.in_folder(s.file);
    try {
      return LoadedCheckpoint{load_checkpoint(place), place.str(), notes};
    } catch (const Error& e) {
      notes.push_back(e.fact());
    }
  }
  fail("none of the checkpoints in {} can be read: {}", folder, fmt::join(notes, "; "));
}

}  // namespace stepnet
