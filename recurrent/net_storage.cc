#include "recurrent/net_storage.h"

#include <algorithm>
#include <utility>

#include "core/op_spec.h"

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
  const auto join = [this](const std::string& a, const std::string& b) {
    const std::string to = of(a), from = of(b);
    if (to == from) return;
    for (auto& [name, storage] : of_)
      if (storage == from) storage = to;
    of_[from] = to;
  };
  std::vector<Renames> renames;
  for (const OperatorDef& op : net.op()) {
    const OpSpec* spec = find_op(op.type());
    renames.push_back(spec ? renames_of(op, *spec) : Renames());
    for (const auto& [from, to] : renames.back()) join(from, to);
  }
  for (const auto& [name, storage] : of_) ++names_[storage];
  for (int i = 0; i < net.op_size(); ++i) {
    std::vector<std::string>& written = writes_.emplace_back();
    for (const std::string& name : net.op(i).output()) {
      const bool renamed = std::ranges::any_of(renames[i], [&](const auto& r) { return r.second == name; });
      if (!name.empty() && !renamed) written.push_back(of(name));
    }
  }
}

const std::string& NetStorage::of(const std::string& name) const {
  const auto it = of_.find(name);
  return it == of_.end() ? name : it->second;
}

bool NetStorage::has_other_names(const std::string& name) const { return names_.count(of(name)) > 0; }

bool NetStorage::is_written_by(int op, const std::string& name) const {
  return std::ranges::count(writes_[op], of(name)) > 0;
}

bool NetStorage::is_written_between(const std::string& name, int begin, int end) const {
  for (int i = begin; i < end; ++i)
    if (is_written_by(i, name)) return true;
  return false;
}

int NetStorage::writers(const std::string& name) const {
  int count = 0;
  for (int i = 0; i < static_cast<int>(writes_.size()); ++i) count += is_written_by(i, name) ? 1 : 0;
  return count;
}

}  // namespace stepnet
