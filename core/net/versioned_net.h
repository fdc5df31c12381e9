// VersionedNet: a net's operators, bound, with the version of every blob that they read and write.
//
// Every write makes a new version of a blob; version 0 is what it holds before the net runs. Names that an Alias makes
// share one storage: if an operator writes one of them in place, what the others hold then is the new version of that
// one. If it does not work in place, the name that it writes gets a storage of its own (core/net/net_sharing.h). Where
// storages are fixed, as in step nets, it keeps the one that it shares; the others then hold the new values or their
// own, and reading them is for the caller to refuse.
// Threads: immutable once built.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/operator/bound_op.h"

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

  explicit VersionedNet(const NetDef& net, bool fixed_storages = false);

  int size() const { return static_cast<int>(ops_.size()); }
  const Op& op(int i) const { return ops_[i]; }
  bool has(const std::string& name) const { return last_.count(name) > 0; }
  VersionedBlob last(const std::string& name) const;  // what the name holds after the net has run
  int last_version(const std::string& name) const { return last_.at(name); }  // how often that was overwritten
  std::vector<std::string> names() const;
  const BoundOp* last_writer(const std::string& name) const;  // null if the net never writes it
  // The first operator from `from` on that may have given the name another shape; null if none has.
  const BoundOp* reshaper(const std::string& name, int from) const;
  int first_reader(const VersionedBlob& blob) const;  // -1 if nobody reads that version
  int readers(const VersionedBlob& blob) const;       // how many inputs it is
  const OperatorDef* last_reader(const VersionedBlob& blob) const;
  // A blob that the net reads before it writes it comes from outside.
  bool is_external(const std::string& name) const { return readers_.count({name, 0}) > 0; }
  // What a caller means who says no version: what comes from outside, or else what the net leaves behind.
  VersionedBlob meant(const std::string& name) const { return is_external(name) ? VersionedBlob{name, 0} : last(name); }
  // Of a blob whose storage an operator has overwritten under another name, where it is not known to hold that one's
  // value in its own shape: what it was before. Else null.
  const VersionedBlob* replaced(const VersionedBlob& blob) const;

 private:
  using Names = std::set<std::string>;

  void write(const Op& op, int output);
  void write_others(const Op& op, const Names& names, const VersionedBlob& written, bool same);
  void share(const std::string& from, const std::string& to);
  VersionedBlob now(const std::string& name);

  bool fixed_storages_;
  std::vector<Op> ops_;
  std::map<std::string, int> last_;
  std::map<std::string, VersionedBlob> now_;  // what a name holds; its own last version unless it shares another's
  std::map<std::string, std::shared_ptr<Names>> shared_;  // all names of one storage
  std::map<VersionedBlob, VersionedBlob> replaced_;
  std::map<std::string, int> last_writer_;
  std::map<std::string, std::vector<int>> reshapers_;  // indices of operators, rising
  std::map<VersionedBlob, std::vector<int>> readers_;  // indices of operators, rising
};

}  // namespace stepnet
