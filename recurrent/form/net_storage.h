// NetStorage: which names of a net show one storage, and which operators write it.
//
// An operator that makes its output another name of its input (a schema's alias) joins the two names, for the whole
// net: a pass that asks here instead of comparing names sees `b` overwritten where `a = Alias(b)` is written in place.
// Operators are told by their index; one that only makes a name neither reads nor writes the storage.
//
// Owns: what it says; the net may go. Threads: immutable once built. Errors: none; an unknown operator joins no names.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "stepnet/proto/net.pb.h"

namespace stepnet {

class NetStorage {
 public:
  explicit NetStorage(const NetDef& net);

  // The name that stands for all names of its storage.
  const std::string& of(const std::string& name) const;
  bool has_other_names(const std::string& name) const;
  // Whether an operator from `begin` to `end` - 1 writes the storage of `name`, under whatever name.
  bool is_written_between(const std::string& name, int begin, int end) const;
  // The operators that write the storage of `name`, in order.
  const std::vector<int>& writing(const std::string& name) const;
  int writers(const std::string& name) const { return static_cast<int>(writing(name).size()); }

 private:
  std::map<std::string, std::string> of_;            // only of names that are not their own
  std::set<std::string> shared_;                     // storages that have several names
  std::map<std::string, std::vector<int>> writers_;  // by storage: operators, in order
};

}  // namespace stepnet
