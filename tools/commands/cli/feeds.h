// What --feed gives to blobs: the values of a file, or a type, whose values are drawn.
//
// Threads: pure functions, but for reading files.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tools/commands/cli/blob_text.h"

namespace stepnet::tools {

struct Feeds {
  Types types;                           // of all
  std::map<std::string, Tensor> values;  // of those that a file gives
};

// BLOB=FILE.npy, or BLOB=TYPE[SIZE,...] as parse_type takes it. Throws Error: neither, a file that is no array, a blob
// that is given twice.
Feeds read_feeds(const std::vector<std::string>& texts);

// Floats from -0.1 to 0.1, so that nothing overflows however often a net runs; integers are 0. The same for a seed, a
// name and a type.
Tensor drawn(const std::string& name, const TensorType& type, uint64_t seed);

}  // namespace stepnet::tools
