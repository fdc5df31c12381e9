// What every subcommand does with its file: load it, expand the short form, collect warnings.
//
// Threads: for the main thread.
#pragma once

#include <functional>
#include <initializer_list>
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

// Loads the file and replaces what its definitions of operators stand for; short forms stay.
NetDef load_short_net(const std::string& path);

std::vector<NetDef*> nets_of(LoadedFile& file);

// Warnings are printed once each, to standard error.
class Warnings {
 public:
  std::vector<std::string> list;
  void print();
  // Throws Error if there are any: for --strict.
  void refuse() const;
  // One or the other.
  void report(bool strict);

 private:
  std::set<std::string> printed_;
};

// Schema of all nets, and the structure of a plan. Throws Error.
void check_structure(LoadedFile& file, Warnings& warnings);

// For RunContext::warn: prints the warning to standard error, or throws it as an Error.
std::function<void(const std::string&)> warn_of_runs(bool strict);

// Of nets in short form: reports arguments that nobody knows. Throws Error for those that are refused.
void report_unknown_args(std::initializer_list<const NetDef*> nets, bool strict);

// The option --strict.
void add_strict_option(CLI::App& command, bool& strict);

}  // namespace stepnet::tools
