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

// #include "..." only along proto <- core <- operators <- recurrent; gpu/ sees these four; tests/ and tools/ see all.
Findings check_includes(const SourceFile& file);
// A file of C++ or CUDA has at most 400 lines.
Findings check_length(const SourceFile& file);
// REGISTER is the only macro with arguments, no header opens a namespace to its readers, nothing is left to be done.
Findings check_text(const SourceFile& file);
// operators/x.h needs gpu/x.cu, unless it is one of `shared` (headers of several operators); gpu/x.cu needs
// operators/x.cc, or gpu/x.h where it is no operator's.
Findings check_twins(const std::set<std::string>& paths, const std::set<std::string>& shared);

}  // namespace stepnet::testing
