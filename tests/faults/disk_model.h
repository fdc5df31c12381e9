// DiskModel: what a disk may show after a loss of power, from the journal of the calls before it
// (tests/faults/journal.h).
//
// Of a file, what was written before its last sync is there for sure; of a folder, what was named, renamed and removed
// in it before its own. All else may be there or not, in any combination; a piece of a file that is not there is zeros,
// or what was there before. Renaming is one step. Nothing is promised for a name by the sync of the file.
// Threads: one thread at a time.
#pragma once

#include <map>
#include <random>
#include <string>
#include <vector>

#include "tests/faults/journal.h"

namespace stepnet::testing {

struct JournalEntry {
  CallRecord call;
  std::string path, other, data;
};
std::vector<JournalEntry> read_journal(const std::string& file);

// Files below a folder by their paths from it. A folder's ends with a slash.
using FileTree = std::map<std::string, std::string>;
FileTree read_disk_tree(const std::string& folder);
// Makes the folder hold this and nothing else.
void write_tree(const FileTree& tree, const std::string& folder);

enum class Loss {
  all_unsynced,    // only what was synced is there
  unsynced_data,   // names are, what was not synced of files is missing at their ends
  zeroed_data,     // names and lengths are, what was not synced of files is zeros
  unsynced_names,  // data is, names are not
  any,             // each piece, each name and each length by chance
};
constexpr Loss kLosses[] = {Loss::all_unsynced, Loss::unsynced_data, Loss::zeroed_data, Loss::unsynced_names,
                            Loss::any};
const char* loss_name(Loss loss);

class DiskModel {
 public:
  // `folder`: what the journal calls the folder that holds `tree`, all of it on the disk.
  DiskModel(std::string folder, const FileTree& tree);

  void play(const JournalEntry& entry);
  FileTree after_loss(Loss loss, std::mt19937& draws) const;

 private:
  struct Change {  // of a file's bytes
    bool cuts = false;
    size_t offset = 0;
    std::string data = {};
  };
  struct Node {
    bool is_folder = false;
    std::map<std::string, int> names = {};  // of a folder, as the process sees it
    std::vector<Change> changes = {};
    size_t synced = 0;  // of the changes
  };
  struct Naming {
    int folder = 0;
    std::string gone;  // "" if no name goes
    std::string name;  // "" if there is no new one
    int node = -1;
    bool synced = false;
  };

  std::vector<std::string> parts_of(const std::string& path) const;
  int find(const std::string& path) const;  // -1: nothing is there
  int folder_of(const std::string& path, std::string& name) const;
  int add(bool is_folder, const std::string& path);
  void open(const JournalEntry& entry);
  void name(Naming naming);
  void sync(int node);
  std::string content(const Node& node, Loss loss, std::mt19937& draws) const;

  std::string folder_;
  std::vector<Node> nodes_;
  std::vector<Naming> namings_;
  std::map<int, int> open_;  // nodes by the numbers of open files
};

}  // namespace stepnet::testing
