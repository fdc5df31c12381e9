// What fuzzing starts from: valid files of each kind, and what once was a finding.
//
// Texts are those of tests/data and tools/examples, and for `check` the examples of all operators; binary files are
// made by the library, so that they are never out of date; tests/fuzz/corpus/KIND holds the rest. Threads: pure
// functions.
#pragma once

#include <string>
#include <vector>

namespace stepnet::testing {

struct Seed {
  std::string name, bytes;
};
// `kind`: the name of a harness.
std::vector<Seed> seeds_of(const std::string& kind);

}  // namespace stepnet::testing
