#include "recurrent/train/run_folder.h"

#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <filesystem>

#include "core/io/blob_db.h"
#include "core/io/files.h"
#include "stepnet/error.h"

namespace stepnet {
namespace {

void make_folder(const std::string& path) {
  std::error_code failed;
  std::filesystem::create_directory(path, failed);
  require(!failed, "cannot make the folder \"{}\": {}", path, failed.message());
}

// True for the names that files written aside have (core/io/files.h) if their process is gone.
bool is_abandoned(const std::string& name) {
  constexpr std::string_view kMark = ".part-";
  const size_t mark = name.rfind(kMark);
  if (mark == std::string::npos) return false;
  const char* end = name.data() + name.size();
  pid_t process = 0;
  int number = 0;
  const auto [dash, bad_process] = std::from_chars(name.data() + mark + kMark.size(), end, process);
  if (bad_process != std::errc() || dash == end || *dash != '-' || process <= 0) return false;
  const auto [rest, bad_number] = std::from_chars(dash + 1, end, number);
  if (bad_number != std::errc() || rest != end) return false;
  return process == ::getpid() || (::kill(process, 0) != 0 && errno == ESRCH);
}

constexpr const char* kParameters = "parameters.minidb";
constexpr const char* kMetrics = "metrics.jsonl";
constexpr const char* kLock = "lock";
constexpr const char* kBestFolder = "best";
constexpr const char* kBestFile = "best/best.ckpt";

bool is_regular(const FilePlace& place) {
  struct stat info {};
  return look_at(place, info) && S_ISREG(info.st_mode);
}

void remove_abandoned(const FilePlace& folder) {
  try {
    for (const std::string& name : names_in(folder))
      if (is_abandoned(name) && is_regular(folder.in_folder(name))) remove_aside(folder.in_folder(name));
  } catch (const Error&) {
    return;  // such a file does no harm
  }
}

// Whether something of that name is there, in a folder of the root; throws Error if a link leads there.
bool is_there(const FilePlace& place) {
  struct stat info {};
  if (place.path() == kBestFile && !is_there(FilePlace(place.root(), kBestFolder))) return false;
  return look_at(place, info);
}

// What would fail in the middle of a run, or at its end, is said before it starts.
void require_regular(const FilePlace& place) {
  require(!is_there(place) || is_regular(place), "{} is not a regular file, which a run would write", place);
}

template <class T>
T parse(const Checkpoint& contents, const std::string& name) {
  const std::string& text = checkpoint_text(contents, name);
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  require(error == std::errc() && end == text.data() + text.size(), "the checkpoint's \"{}\" is \"{}\", no number",
          name, text);
  return value;
}

}  // namespace

RunFolder::RunFolder(std::string path, Open how) : path_(std::move(path)) {
  const bool there = std::filesystem::is_directory(path_);
  if (how == Open::fresh) {
    if (!there) make_folder(path_);
    made_ = !there;
    sync_folder(FilePlace(path_).folder());  // made now or by a process that was killed then: the name is to stay
    root_ = std::make_shared<const FileRoot>(path_);
    require_writable_folder(path_);
    lock_.emplace(file(kLock));
    if (load_latest(file(".")))
      throw Error(fmt::format("the folder \"{}\" holds a run already", path_),
                  "go on with it by --resume, or give another folder");
  } else {
    require(there, "there is no folder \"{}\" to resume from", path_);
    root_ = std::make_shared<const FileRoot>(path_);
    require_writable_folder(path_);
    lock_.emplace(file(kLock));
  }
  sync_folder(file("."));  // names that a killed process gave
  for (const char* name : {"latest", kBestFile, kParameters, kMetrics}) require_regular(file(name));
  remove_abandoned(file("."));
  remove_abandoned(file(kBestFolder));
}

RunFolder::~RunFolder() {
  lock_.reset();
  if (made_) ::rmdir(path_.c_str());  // which refuses if something is in it
}

LoadedCheckpoint RunFolder::latest() const {
  std::optional<LoadedCheckpoint> loaded = load_latest(file("."));
  require(loaded.has_value(), "the folder \"{}\" has no checkpoint to resume from", path_);
  return std::move(*loaded);
}

void RunFolder::save(const Checkpoint& contents, int64_t iteration) {
  save_checkpoint(file("."), fmt::format("iteration-{}", iteration), contents);
}

void RunFolder::save_best(const Checkpoint& contents) {
  make_folders_of(file(kBestFile));
  save_checkpoint(file(kBestFolder), "best", contents);
}

void RunFolder::save_parameters(const Workspace& workspace, const std::vector<std::string>& names) {
  std::vector<NamedBlob> blobs;
  for (const std::string& name : names) blobs.push_back({name, &workspace.at(name)});
  save_blobs("minidb", file(kParameters), blobs);
}

Checkpoint load_best(const std::string& folder) {
  require(std::filesystem::is_directory(folder), "there is no folder \"{}\"", folder);
  const auto root = std::make_shared<const FileRoot>(folder);
  if (is_there(FilePlace(root, kBestFile))) return load_checkpoint(FilePlace(root, kBestFile));
  std::optional<LoadedCheckpoint> loaded = load_latest(FilePlace(root, "."));
  require(loaded.has_value(), "the folder \"{}\" has no checkpoint", folder);
  return std::move(loaded->contents);
}

const std::string& checkpoint_text(const Checkpoint& contents, const std::string& name) {
  const auto found = contents.texts.find(name);
  require(found != contents.texts.end(), "the checkpoint does not say the run's \"{}\"", name);
  return found->second;
}

int64_t checkpoint_int(const Checkpoint& contents, const std::string& name) { return parse<int64_t>(contents, name); }
double checkpoint_real(const Checkpoint& contents, const std::string& name) { return parse<double>(contents, name); }

}  // namespace stepnet
