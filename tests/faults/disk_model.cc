#include "tests/faults/disk_model.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <sstream>

#include "tests/core/temp_folder.h"

namespace stepnet::testing {
namespace {

namespace fs = std::filesystem;

constexpr size_t kSector = 512;

void put(std::string& bytes, size_t offset, std::string_view data) {
  if (bytes.size() < offset + data.size()) bytes.resize(offset + data.size());
  bytes.replace(offset, data.size(), data);
}

}  // namespace

std::vector<JournalEntry> read_journal(const std::string& file) {
  const std::string text = read_all(file);
  std::vector<JournalEntry> entries;
  size_t at = 0;
  const auto take = [&](size_t bytes) {
    std::string part = text.substr(at, bytes);
    at += bytes;
    return part;
  };
  while (at + sizeof(CallRecord) <= text.size()) {
    JournalEntry entry;
    std::memcpy(&entry.call, take(sizeof(CallRecord)).data(), sizeof(CallRecord));
    entry.path = take(entry.call.path_bytes);
    entry.other = take(entry.call.other_bytes);
    entry.data = take(entry.call.data_bytes);
    entries.push_back(std::move(entry));
  }
  return entries;
}

FileTree read_disk_tree(const std::string& folder) {
  FileTree tree;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    const std::string path = fs::relative(entry.path(), folder);
    if (entry.is_directory())
      tree[path + "/"] = "";
    else
      tree[path] = read_all(entry.path());
  }
  return tree;
}

void write_tree(const FileTree& tree, const std::string& folder) {
  fs::remove_all(folder);
  fs::create_directories(folder);
  for (const auto& [path, content] : tree) {
    if (path.ends_with('/'))
      fs::create_directory(folder + "/" + path);
    else
      write_all(folder + "/" + path, content);
  }
}

const char* loss_name(Loss loss) {
  switch (loss) {
    case Loss::all_unsynced:
      return "all unsynced lost";
    case Loss::unsynced_data:
      return "unsynced data lost";
    case Loss::zeroed_data:
      return "unsynced data zeroed";
    case Loss::unsynced_names:
      return "unsynced names lost";
    case Loss::any:
      return "any of it lost";
  }
  return "";
}

DiskModel::DiskModel(std::string folder, const FileTree& tree) : folder_(std::move(folder)) {
  nodes_.push_back({.is_folder = true});
  for (const auto& [path, content] : tree) {
    const bool is_folder = path.ends_with('/');
    const int node = add(is_folder, folder_ + "/" + path);
    if (!is_folder) nodes_[node].changes = {{.data = content}};
    nodes_[node].synced = nodes_[node].changes.size();
  }
  for (Naming& naming : namings_) naming.synced = true;
}

std::vector<std::string> DiskModel::parts_of(const std::string& path) const {
  std::vector<std::string> parts;
  std::istringstream in(path.substr(folder_.size()));
  for (std::string part; std::getline(in, part, '/');)
    if (!part.empty() && part != ".") parts.push_back(part);
  return parts;
}

int DiskModel::find(const std::string& path) const {
  int at = 0;
  for (const std::string& part : parts_of(path)) {
    const auto& names = nodes_[at].names;
    const auto found = names.find(part);
    if (found == names.end()) return -1;
    at = found->second;
  }
  return at;
}

int DiskModel::folder_of(const std::string& path, std::string& name) const {
  const std::vector<std::string> parts = parts_of(path);
  name = parts.back();
  std::string folder = folder_;
  for (size_t i = 0; i + 1 < parts.size(); ++i) folder += "/" + parts[i];
  return find(folder);
}

int DiskModel::add(bool is_folder, const std::string& path) {
  Naming naming;
  naming.folder = folder_of(path, naming.name);
  naming.node = static_cast<int>(nodes_.size());
  nodes_.push_back({.is_folder = is_folder});
  name(naming);
  return static_cast<int>(nodes_.size()) - 1;
}

void DiskModel::name(Naming naming) {
  auto& names = nodes_[naming.folder].names;
  if (!naming.gone.empty()) names.erase(naming.gone);
  if (!naming.name.empty()) names[naming.name] = naming.node;
  namings_.push_back(std::move(naming));
}

void DiskModel::open(const JournalEntry& entry) {
  const int flags = static_cast<int>(entry.call.flags);
  int node = find(entry.path);
  if (node < 0) node = add(false, entry.path);
  if ((flags & O_TRUNC) != 0) nodes_[node].changes.push_back({.cuts = true});
  open_[entry.call.fd] = node;
}

void DiskModel::sync(int node) {
  nodes_[node].synced = nodes_[node].changes.size();
  for (Naming& naming : namings_)
    if (naming.folder == node) naming.synced = true;
}

void DiskModel::play(const JournalEntry& entry) {
  const CallRecord& call = entry.call;
  if (call.number == 1) open_.clear();  // another process
  if (call.error != 0) return;
  const auto used = open_.find(call.fd);
  const int node = used == open_.end() ? -1 : used->second;
  Naming naming;
  switch (call.kind) {
    case CallKind::open:
      return open(entry);
    case CallKind::close:
      open_.erase(call.fd);
      return;
    case CallKind::write:
      ASSERT_GE(node, 0) << entry.path;
      nodes_[node].changes.push_back({.offset = static_cast<size_t>(call.offset), .data = entry.data});
      return;
    case CallKind::truncate:
      ASSERT_GE(node, 0) << entry.path;
      nodes_[node].changes.push_back({.cuts = true, .offset = static_cast<size_t>(call.offset)});
      return;
    case CallKind::sync:
      ASSERT_GE(node, 0) << entry.path;
      return sync(node);
    case CallKind::rename: {
      naming.node = find(entry.path);
      naming.folder = folder_of(entry.path, naming.gone);
      ASSERT_EQ(folder_of(entry.other, naming.name), naming.folder) << "a rename into another folder";
      return name(naming);
    }
    case CallKind::remove:
      naming.folder = folder_of(entry.path, naming.gone);
      return name(naming);
    case CallKind::make_folder:
      add(true, entry.path);
      return;
    case CallKind::read:
    case CallKind::look:
    case CallKind::list:
    case CallKind::lock:
      return;
    case CallKind::map:
      FAIL() << "the model knows no mapped files: " << entry.path;
  }
}

std::string DiskModel::content(const Node& node, Loss loss, std::mt19937& draws) const {
  std::string bytes;
  for (size_t i = 0; i < node.changes.size(); ++i) {
    const Change& change = node.changes[i];
    const bool synced = i < node.synced || loss == Loss::unsynced_names;
    const bool by_chance = !synced && loss == Loss::any;
    if (!synced && !by_chance && loss != Loss::zeroed_data) continue;
    if (change.cuts) {
      if (!by_chance || draws() % 2 == 0) bytes.resize(change.offset);
      continue;
    }
    if (synced) {
      put(bytes, change.offset, change.data);
      continue;
    }
    const size_t end = change.offset + change.data.size();
    if (bytes.size() < end && (!by_chance || draws() % 2 == 0)) bytes.resize(end);
    for (size_t at = change.offset; by_chance && at < end;) {
      const size_t next = std::min(end, (at / kSector + 1) * kSector);
      if (draws() % 2 == 0) put(bytes, at, std::string_view(change.data).substr(at - change.offset, next - at));
      at = next;
    }
  }
  return bytes;
}

FileTree DiskModel::after_loss(Loss loss, std::mt19937& draws) const {
  std::map<int, std::map<std::string, int>> names;
  for (const Naming& naming : namings_) {
    const bool there = naming.synced || loss == Loss::unsynced_data || loss == Loss::zeroed_data ||
                       (loss == Loss::any && draws() % 2 == 0);
    if (!there) continue;
    if (!naming.gone.empty()) names[naming.folder].erase(naming.gone);
    if (!naming.name.empty()) names[naming.folder][naming.name] = naming.node;
  }
  FileTree tree;
  std::vector<std::pair<int, std::string>> folders = {{0, ""}};
  while (!folders.empty()) {
    const auto [folder, path] = folders.back();
    folders.pop_back();
    for (const auto& [name, number] : names[folder]) {
      const Node& node = nodes_[number];
      if (node.is_folder) folders.emplace_back(number, path + name + "/");
      tree[path + name + (node.is_folder ? "/" : "")] = node.is_folder ? "" : content(node, loss, draws);
    }
  }
  return tree;
}

}  // namespace stepnet::testing
