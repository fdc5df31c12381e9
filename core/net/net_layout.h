// Places of a net's values in one block of memory.
//
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/net/dataflow.h"

namespace stepnet {

// Bytes that live from the operator that makes them to the last that reads or writes them, under one name or several.
struct StoredValue {
  int first = 0, output = 0;  // the operator that makes it, and which of its outputs it is
  int last = 0;
  std::vector<int> last_inputs = {};  // of the operator `last`: where it shows these bytes
  bool last_written = false;          // the operator `last` has it as an output
  DType dtype = DType::undefined;
  Shape shape = {};
};

struct NetLayout {
  std::vector<int64_t> offsets = {};   // by value
  std::vector<int> written_over = {};  // by value: the one that it is written over, by an operator that may; -1: none
  int64_t bytes = 0;                   // of the block
  int64_t most_alive = 0;              // the largest sum of bytes alive at one operator: no block is smaller
  int64_t apart = 0;                   // the sum of all bytes
};

// An output takes the place of an input that nobody reads later where the operator's rules for output in place allow
// it. Values that live at the same operator do not overlap otherwise.
NetLayout lay_out(std::span<const NetStep> steps, std::span<const StoredValue> values);

}  // namespace stepnet
