// The values of a net: what one name holds from an operator that writes it to the last that reads it.
//
// A blob that is written twice holds two values, one after the other. An operator in place goes on with the value that
// is there, and so does one on blobs, which may leave an output as it is. So does any operator that writes a blob which
// may share bytes with another: the other sees what is written.
// Threads: pure functions.
#pragma once

#include <set>
#include <span>
#include <string>
#include <vector>

#include "core/operator/bound_op.h"

namespace stepnet {

// An operator of the net with its blobs; null where a name is empty.
struct NetStep {
  const BoundOp* op;
  std::span<Blob*const> in, out;
};

struct NetValue {
  Blob* blob = nullptr;
  int first = 0, last = 0;  // positions of operators: the one that makes it, and the last that reads or writes it
  bool is_visible = false;  // others may see the blob, so that it stays as it is
};

struct NetValues {
  std::vector<NetValue> all;
  std::vector<std::vector<int>> made;  // by operator and output: the value that the blob then holds; -1 for none
  std::vector<Blob*> read_first;       // what the net reads before it writes it, each once
};

// `visible`: names of blobs that others may see. What the net reads before it writes it is visible, too. An operator on
// blobs reads what its arguments name (a step net may read blobs of the net around by name).
NetValues values_of(std::span<const NetStep> steps, const std::set<std::string>& visible);

}  // namespace stepnet
