// VersionedNet: a net's operators, bound, with the version of every blob that they read and write.
//
// Every write makes a new version of a blob; version 0 is what it holds before the net runs.
// Threads: immutable once built.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/bound_op.h"

namespace stepnet {

struct VersionedBlob {
  std::string name;
  int version = 0;
  auto operator<=>(const VersionedBlob&) const = default;
};

class VersionedNet {
 public:
  struct Op {
    BoundOp op;
    std::vector<VersionedBlob> inputs;   // as read; "" is an absent one
    std::vector<VersionedBlob> outputs;  // as written
  };

  explicit VersionedNet(const NetDef& net);

  int size() const { return static_cast<int>(ops_.size()); }
  const Op& op(int i) const { return ops_[i]; }
  bool has(const std::string& name) const { return last_.count(name) > 0; }
  int last_version(const std::string& name) const { return last_.at(name); }
  std::vector<std::string> names() const;
  const BoundOp* last_writer(const std::string& name) const;  // null if the net never writes it
  int first_reader(const VersionedBlob& blob) const;          // -1 if nobody reads that version
  int readers(const VersionedBlob& blob) const;               // how many inputs it is
  const OperatorDef* last_reader(const VersionedBlob& blob) const;
  // A blob that the net reads before it writes it comes from outside.
  bool is_external(const std::string& name) const { return readers_.count({name, 0}) > 0; }
  // What a caller means who says no version: what comes from outside, or else what the net leaves behind.
  bool is_meant(const VersionedBlob& blob) const {
    return blob.version == (is_external(blob.name) ? 0 : last_version(blob.name));
  }

 private:
  std::vector<Op> ops_;
  std::map<std::string, int> last_;
  std::map<std::string, int> last_writer_;
  std::map<VersionedBlob, std::vector<int>> readers_;  // indices of operators, rising
};

}  // namespace stepnet
