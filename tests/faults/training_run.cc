#include "tests/faults/training_run.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <charconv>
#include <filesystem>
#include <set>
#include <sstream>

#include "core/io/files.h"
#include "stepnet/checkpoint.h"
#include "stepnet/error.h"
#include "tests/recurrent/tiny_model.h"
#include "tools/source_path.h"

namespace stepnet::testing {
namespace {

namespace fs = std::filesystem;

// Three checkpoints, of which the first goes when the last is there.
constexpr const char* kOptions = "--threads 1 --lr 0.02 --iterations 6 --validate-every 2";
constexpr int64_t kSavedHalfway = 2;

// The number behind `words` in a text; -1 if they are not there.
int64_t number_after(const std::string& text, const std::string& words) {
  const size_t at = text.find(words);
  int64_t number = -1;
  if (at != text.npos) std::from_chars(text.data() + at + words.size(), text.data() + text.size(), number);
  return number;
}

// A path without what a file that is written aside has at its end.
std::string final_name(const std::string& path) { return path.substr(0, path.find(".part-")); }

void add_tensors(std::map<std::string, std::string>& facts, const Checkpoint& contents, const std::string& file) {
  for (const auto& [name, tensor] : contents.tensors)
    facts[file + ", tensor " + name] =
        tensor.str() + std::string(reinterpret_cast<const char*>(tensor.raw()), tensor.bytes());
}

void add_checkpoint(std::map<std::string, std::string>& facts, const std::string& run, const std::string& file) {
  const Checkpoint contents = load_checkpoint(run + "/" + file);
  add_tensors(facts, contents, file);
  // Times differ, and so does what of the metrics had to be saved along.
  for (const auto& [name, text] : contents.texts)
    if (name != "seconds" && name != "unsynced-metrics") facts[file + ", " + name] = text;
}

// The library of the address sanitizer if this program has one, as the command has then; it must be loaded first.
std::string address_sanitizer() {
  std::istringstream in(read_all("/proc/self/maps"));
  for (std::string line; std::getline(in, line);)
    if (line.find("/libasan.so") != line.npos) return line.substr(line.find('/'));
  return "";
}

std::string quoted_end(const std::string& text) {
  const std::string end = text.size() > 400 ? "..." + text.substr(text.size() - 400) : text;
  return "\"" + end + "\"";
}

}  // namespace

bool is_sanitized() {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return true;
#else
  return false;
#endif
}

std::string no_shim() {
  if (is_sanitized() && address_sanitizer().empty())
    return "of sanitizers, only libasan.so lets the shim be loaded too";
  return fs::exists(faults_shim_path()) ? "" : faults_shim_path() + " was not built";
}

const char* fault_name(Fault fault) {
  switch (fault) {
    case Fault::none:
      return "no fault";
    case Fault::eio:
      return "EIO";
    case Fault::enospc:
      return "ENOSPC";
    case Fault::part:
      return "half of it";
    case Fault::kill:
      return "killed before it";
    case Fault::torn:
      return "killed in it";
    case Fault::late_eio:
      return "EIO after it was done";
    case Fault::eio_on:
      return "EIO from there on";
    case Fault::enospc_on:
      return "ENOSPC from there on";
  }
  return "";
}

FaultyTraining::FaultyTraining(bool validates)
    : validates_(validates),
      folder_(fs::canonical(place_.path()).string() + "/work"),
      journal_(place_.file("journal")) {
  fs::create_directory(folder_);
  write_all(folder_ + "/net.pbtxt", tiny_net_text());
  write_all(folder_ + "/text", tiny_text());
  before_ = read_disk_tree(folder_);
  for (const char* every : {"1", "2"}) {  // the last checkpoint but one is that of iteration 5, then of 4
    write_tree(before_, folder_);
    const Outcome outcome = start(Fault::none, 0, every)->wait();
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    older_.push_back(older_tensors());
  }
  expected_ = facts();
}

std::unique_ptr<Command> FaultyTraining::start(Fault fault, unsigned at, const std::string& every) const {
  std::vector<std::string> all = {"train", folder_ + "/net.pbtxt", "--text", folder_ + "/text", "--out", run()};
  for (const std::string& word : words(kOptions)) all.push_back(word);
  all.insert(all.end(), {"--checkpoint-every", every});
  if (!validates_) all.insert(all.end(), {"--holdout", "0"});
  if (has_checkpoint()) all.emplace_back("--resume");
  const std::string sanitizer = address_sanitizer();
  const std::pair<const char*, std::string> environment[] = {
      {"LD_PRELOAD", sanitizer.empty() ? faults_shim_path() : sanitizer + ":" + faults_shim_path()},
      {"STEPNET_FAULTS_ROOT", folder_},
      {"STEPNET_FAULTS_JOURNAL", journal_},
      {"STEPNET_FAULTS_AT", fmt::format("{} {}", at, static_cast<unsigned>(fault))}};
  fs::remove(journal_);
  for (const auto& [name, value] : environment) ::setenv(name, value.c_str(), 1);
  auto command = std::make_unique<Command>(all);
  for (const auto& [name, value] : environment) ::unsetenv(name);
  return command;
}

FaultyTraining::Session FaultyTraining::train(Fault fault, unsigned at) const {
  Session session{start(fault, at)->wait(), {}};
  session.journal = read_journal(journal_);
  return session;
}

const FileTree& FaultyTraining::halfway() {
  if (!halfway_.empty()) return halfway_;
  unsigned at = 0;
  for (const JournalEntry& entry : calls_from(before_))
    if (entry.path.starts_with(run() + "/iteration-4.ckpt.part") && entry.call.kind == CallKind::write &&
        entry.call.number % 20 == 0)
      at = entry.call.number;
  write_tree(before_, folder_);
  train(Fault::torn, at);
  halfway_ = read_disk_tree(folder_);
  halfway_["run/metrics.jsonl"] += "{\"iteration\":5,\"lo";
  return halfway_;
}

std::vector<JournalEntry> FaultyTraining::calls_from(const FileTree& tree) const {
  write_tree(tree, folder_);
  const Session session = train();
  EXPECT_EQ(session.outcome.code, 0) << session.outcome.err;
  EXPECT_EQ(difference(), "");
  return session.journal;
}

std::vector<Fault> FaultyTraining::faults_of(const JournalEntry& call) {
  switch (call.call.kind) {
    case CallKind::open:
      if ((call.call.flags & O_CREAT) != 0) return {Fault::eio, Fault::enospc, Fault::kill};
      return {Fault::eio, Fault::kill};
    case CallKind::read:
      return {Fault::eio, Fault::part, Fault::kill};
    case CallKind::write:
      return {Fault::eio, Fault::enospc, Fault::part, Fault::kill, Fault::torn};
    case CallKind::sync:
    case CallKind::truncate:
      return {Fault::eio, Fault::enospc, Fault::kill};
    case CallKind::rename:
    case CallKind::remove:
    case CallKind::make_folder:
      return {Fault::eio, Fault::enospc, Fault::kill, Fault::late_eio};
    case CallKind::close:
    case CallKind::look:
    case CallKind::list:
    case CallKind::lock:
    case CallKind::map:
      return {Fault::eio, Fault::kill};
  }
  return {};
}

int64_t FaultyTraining::saved_in(const std::vector<JournalEntry>& journal, size_t calls) {
  int64_t written = 0, named = 0, saved = 0;
  for (const JournalEntry& entry : journal) {
    if (calls-- == 0) break;
    if (entry.call.error != 0) continue;
    if (entry.call.kind == CallKind::rename && entry.other.ends_with("/run/latest")) named = written;
    if (entry.call.kind == CallKind::rename) written = std::max(written, number_after(entry.other, "/run/iteration-"));
    if (entry.call.kind == CallKind::sync && entry.path.ends_with("/run")) saved = std::max(saved, named);
  }
  return saved;
}

std::string FaultyTraining::check_fault(const FileTree& tree, const JournalEntry& call, Fault fault) const {
  write_tree(tree, folder_);
  const bool resumes = has_checkpoint();
  const Session session = train(fault, call.call.number);
  const Outcome& o = session.outcome;
  const bool to_be_killed = fault == Fault::kill || fault == Fault::torn;
  const bool stays = fault == Fault::eio_on || fault == Fault::enospc_on;
  const std::string reason = system_text(fault == Fault::enospc || fault == Fault::enospc_on ? ENOSPC : EIO);
  std::string wrong;
  if (o.signal != 0 && !(to_be_killed && o.signal == SIGKILL)) {
    wrong = fmt::format("ended by signal {}", o.signal);
  } else if (to_be_killed ? o.signal == 0 : o.code != 0 && o.code != 2) {
    wrong = fmt::format("exit code {}: {}", o.code, quoted_end(o.err));
  } else if (o.code == 0) {
    wrong = difference();
  } else if (o.code == 2) {
    if (fault == Fault::part) wrong = "a part was not gone on with: " + o.err;
    if (o.err.find("error: ") == o.err.npos || o.err.find(reason) == o.err.npos)
      wrong = "the message lacks the reason: " + o.err;
    const std::string file = stays ? folder_ : final_name(call.path);
    if (o.err.find(file) == o.err.npos) wrong = fmt::format("the message lacks the file {}: {}", file, o.err);
  }
  if (!wrong.empty()) return wrong;
  const int64_t saved = saved_in(session.journal, session.journal.size());
  return check_end(resumes ? std::max(saved, kSavedHalfway) : saved, o.code == 2);
}

std::string FaultyTraining::check_loss(const std::vector<JournalEntry>& journal, size_t calls, Loss loss,
                                       std::mt19937& draws) const {
  DiskModel disk(folder_, before_);
  for (size_t i = 0; i < calls; ++i) disk.play(journal[i]);
  write_tree(disk.after_loss(loss, draws), folder_);
  return check_end(saved_in(journal, calls));
}

std::string FaultyTraining::check_end(int64_t saved, bool after_error) const {
  const Outcome outcome = start()->wait();
  if (outcome.code != 0) return fmt::format("cannot go on: exit code {}, {}", outcome.code, outcome.err);
  const int64_t from = number_after(outcome.err, "going on after iteration ");
  if (std::max<int64_t>(from, 0) < saved)
    return fmt::format("went on from iteration {} although {} had been saved: {}", from, saved, outcome.err);
  const std::string different = difference(after_error);
  return different.empty() ? left_behind() : different;
}

bool FaultyTraining::has_checkpoint() const {
  if (!fs::is_directory(run())) return false;
  return std::ranges::any_of(fs::directory_iterator(run()),
                             [](const fs::directory_entry& entry) { return entry.path().extension() == ".ckpt"; });
}

int64_t FaultyTraining::last_logged() const {
  std::istringstream in(read_all(run() + "/metrics.jsonl"));
  int64_t last = 0;
  for (std::string line; std::getline(in, line);)
    if (line.ends_with('}')) last = number_after(line, "{\"iteration\":");
  return last;
}

std::map<std::string, std::string> FaultyTraining::facts() const {
  std::map<std::string, std::string> facts;
  add_checkpoint(facts, run(), "iteration-6.ckpt");
  if (validates_) add_checkpoint(facts, run(), "best/best.ckpt");
  for (const char* file : {"latest", "best/latest", "parameters.minidb"}) facts[file] = read_all(run() + "/" + file);
  std::istringstream in(read_all(run() + "/metrics.jsonl"));
  for (std::string line; std::getline(in, line);)
    facts["metrics"] += line.substr(0, line.find(",\"chars_per_second\"")) + "\n";
  return facts;
}

std::map<std::string, std::string> FaultyTraining::older_tensors() const {
  for (const char* file : {"iteration-5.ckpt", "iteration-4.ckpt"}) {
    if (!fs::exists(run() + "/" + file)) continue;
    std::map<std::string, std::string> tensors;
    add_tensors(tensors, load_checkpoint(run() + "/" + file), file);
    return tensors;
  }
  return {};
}

std::string FaultyTraining::difference(bool after_error) const {
  std::map<std::string, std::string> found, older;
  try {
    found = facts();
    older = older_tensors();
  } catch (const Error& e) {
    return e.what();
  }
  for (const auto& [name, value] : expected_) {
    if (found[name] == value) continue;
    if (name == "metrics") return fmt::format("the metrics are {}, not {}", quoted_end(found[name]), quoted_end(value));
    return name + " differs";
  }
  if (found.size() != expected_.size()) return "a checkpoint has more than it should";
  // A run whose metrics could not be written ends with that iteration saved, which may be the fifth.
  if (older.empty()) return "the last but one checkpoint is gone";
  if (older != older_[1] && !(after_error && older == older_[0])) return "the last but one checkpoint differs";
  return "";
}

std::string FaultyTraining::left_behind() const {
  for (const auto& entry : fs::recursive_directory_iterator(run())) {
    const std::string name = entry.path().filename();
    if (name.find(".part-") != name.npos || name == "lock") return entry.path().string() + " was left behind";
  }
  return "";
}

}  // namespace stepnet::testing
