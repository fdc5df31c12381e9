#include "recurrent/form/net_storage.h"

#include <algorithm>
#include <utility>

#include "stepnet/op_spec.h"

namespace stepnet {
namespace {

using Renames = std::vector<std::pair<std::string, std::string>>;

// The names that the operator joins: input, output.
Renames renames_of(const OperatorDef& op, const OpSpec& spec) {
  Renames renames;
  for (const AliasRule& rule : spec.aliases) {
    const int in = spec.input_index(rule.in), out = spec.output_index(rule.out);
    if (in >= op.input_size() || out >= op.output_size() || op.input(in).empty() || op.output(out).empty()) continue;
    renames.emplace_back(op.input(in), op.output(out));
  }
  return renames;
}

}  // namespace

NetStorage::NetStorage(const NetDef& net) {
  std::map<std::string, std::vector<std::string>> members;  // of a storage with several names, all but its own
  const auto join = [&](const std::string& a, const std::string& b) {
    const std::string to = of(a), from = of(b);
    if (to == from) return;
    std::vector<std::string> moved = std::move(members[from]);
    moved.push_back(from);
    for (const std::string& name : moved) of_[name] = to;
    members.erase(from);
    std::ranges::move(moved, std::back_inserter(members[to]));
  };
  std::vector<Renames> renames;
  for (const OperatorDef& op : net.op()) {
    const OpSpec* spec = find_op(op.type());
    renames.push_back(spec ? renames_of(op, *spec) : Renames());
    for (const auto& [from, to] : renames.back()) join(from, to);
  }
  for (const auto& [storage, names] : members) shared_.insert(storage);
  for (int i = 0; i < net.op_size(); ++i)
    for (const std::string& name : net.op(i).output()) {
      const bool renamed = std::ranges::any_of(renames[i], [&](const auto& r) { return r.second == name; });
      if (name.empty() || renamed) continue;
      std::vector<int>& writers = writers_[of(name)];
      if (writers.empty() || writers.back() != i) writers.push_back(i);
    }
}

const std::string& NetStorage::of(const std::string& name) const {
  const auto it = of_.find(name);
  return it == of_.end() ? name : it->second;
}

bool NetStorage::has_other_names(const std::string& name) const { return shared_.count(of(name)) > 0; }

const std::vector<int>& NetStorage::writing(const std::string& name) const {
  static const std::vector<int> none;
  const auto found = writers_.find(of(name));
  return found == writers_.end() ? none : found->second;
}

bool NetStorage::is_written_between(const std::string& name, int begin, int end) const {
  const std::vector<int>& by = writing(name);
  const auto first = std::ranges::lower_bound(by, begin);
  return first != by.end() && *first < end;
}

}  // namespace stepnet
