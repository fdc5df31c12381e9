// The habits of the source tree as functions: each returns what breaks a rule, one line per finding.
//
// Threads: pure functions, but for read_tree, which reads files.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace stepnet::testing {

struct SourceFile {
  std::string path;  // from the root of the tree
  std::string text;
};
using Findings = std::vector<std::string>;

// Every file of ours below the root, build folders left out.
std::vector<SourceFile> read_tree(const std::string& root);

// #include "..." only along the arrows between rooms, which stand in one table in habits.cc; tests/ and tools/ see all.
Findings check_includes(const SourceFile& file);
// No two files define types of one name in one namespace, which would break the one-definition rule.
Findings check_types(const std::vector<SourceFile>& files);
// No room of that table is in a circle of arrows.
Findings check_rooms();
// REGISTER is the only macro with arguments, no header opens a namespace to its readers, nothing is left to be done.
Findings check_text(const SourceFile& file);
// A file of tests has its names in a namespace called like it, because several files are compiled at a time.
Findings check_test_namespace(const SourceFile& file);
// In each family, operators/FAMILY/x.h needs gpu/FAMILY/x.cu, unless it is one of `shared` ("FAMILY/x.h", headers of
// several operators), and gpu/FAMILY/x.cu needs operators/FAMILY/x.cc.
Findings check_twins(const std::set<std::string>& paths, const std::set<std::string>& shared);

}  // namespace stepnet::testing
