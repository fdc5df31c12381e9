// What every subcommand does with its file: load it, expand the short form, collect warnings.
//
// Threads: for the main thread.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "stepnet/text.h"

namespace CLI {
class App;
}

namespace stepnet::tools {

// Names for --as.
const std::map<std::string, ReadAs>& read_as_names();

// Loads the file and expands the short forms in all its nets.
LoadedFile load_expanded(const std::string& path, ReadAs as);
NetDef load_expanded_net(const std::string& path);

std::vector<NetDef*> nets_of(LoadedFile& file);

// Warnings are printed once each, to standard error.
class Warnings {
 public:
  std::vector<std::string> list;
  void print();
  // Throws Error if there are any: for --strict.
  void refuse() const;

 private:
  std::set<std::string> printed_;
};

// Schema of all nets, and the structure of a plan. Throws Error.
void check_structure(LoadedFile& file, Warnings& warnings);

}  // namespace stepnet::tools
