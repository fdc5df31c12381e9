#include "core/net/versioned_net.h"

#include <algorithm>

#include "core/operator/in_place.h"

namespace stepnet {
namespace {

// True if output `o` has the shape that the blob of the same name had before: it is written in place of an input of
// that shape.
bool has_shape_of_before(const BoundOp& op, int o) {
  for (int i = 0; i < op.def.input_size(); ++i)
    if (op.def.input(i) == op.def.output(o) && keeps_shape(*op.spec, op.def, i, o)) return true;
  return false;
}

}  // namespace

VersionedNet::VersionedNet(const NetDef& net, bool fixed_storages) : fixed_storages_(fixed_storages) {
  for (int i = 0; i < net.op_size(); ++i) {
    Op op;
    op.op = bind_op(net.op(i), net.name(), i);
    for (const std::string& name : net.op(i).input()) {
      op.inputs.push_back(now(name));
      readers_[op.inputs.back()].push_back(i);
    }
    for (int o = 0; o < net.op(i).output_size(); ++o) {
      const std::string& name = net.op(i).output(o);
      if (!name.empty()) write(op, o);
      op.outputs.push_back(name.empty() ? VersionedBlob{} : now(name));
    }
    for (const AliasRule& rule : op.op.spec->aliases) {
      const int in = op.op.spec->input_index(rule.in), out = op.op.spec->output_index(rule.out);
      if (in < net.op(i).input_size() && out < net.op(i).output_size())
        share(net.op(i).input(in), net.op(i).output(out));
    }
    ops_.push_back(std::move(op));
  }
}

VersionedBlob VersionedNet::now(const std::string& name) {
  last_[name];
  return now_.emplace(name, VersionedBlob{name, 0}).first->second;
}

// An Alias gives the name another storage and touches none.
void VersionedNet::write(const Op& op, int output) {
  const OperatorDef& def = op.op.def;
  const std::string& name = def.output(output);
  const VersionedBlob written{name, ++last_[name]};
  const auto found = shared_.find(name);
  if (found != shared_.end()) {
    const bool alias = !op.op.spec->aliases.empty();
    bool in_place = false, same_shape = false;
    for (int i = 0; i < def.input_size(); ++i) {
      if (found->second->count(def.input(i)) == 0) continue;
      in_place = in_place || may_write_over(*op.op.spec, i, output);
      same_shape = same_shape || keeps_shape(*op.op.spec, def, i, output);
    }
    if (alias || (!in_place && !fixed_storages_)) {
      found->second->erase(name);
      shared_.erase(found);
    } else {
      write_others(op, *found->second, written, same_shape);
    }
  }
  now_[name] = written;
  last_writer_[name] = op.op.index;
  if (!has_shape_of_before(op.op, output)) reshapers_[name].push_back(op.op.index);
}

void VersionedNet::write_others(const Op& op, const Names& names, const VersionedBlob& written, bool same) {
  for (const std::string& other : names) {
    if (other == written.name) continue;
    const VersionedBlob own{other, ++last_[other]};
    if (!same) replaced_[own] = now_[other];
    now_[other] = same ? written : own;
    last_writer_[other] = op.op.index;
  }
}

void VersionedNet::share(const std::string& from, const std::string& to) {
  if (from == to || from.empty() || to.empty()) return;
  std::shared_ptr<Names>& names = shared_[from];
  if (!names) names = std::make_shared<Names>(Names{from});
  names->insert(to);
  shared_[to] = names;
}

VersionedBlob VersionedNet::last(const std::string& name) const { return now_.at(name); }

const VersionedBlob* VersionedNet::replaced(const VersionedBlob& blob) const {
  const auto it = replaced_.find(blob);
  return it == replaced_.end() ? nullptr : &it->second;
}

std::vector<std::string> VersionedNet::names() const {
  std::vector<std::string> names;
  for (const auto& [name, version] : last_) names.push_back(name);
  return names;
}

const BoundOp* VersionedNet::last_writer(const std::string& name) const {
  const auto it = last_writer_.find(name);
  return it == last_writer_.end() ? nullptr : &ops_[it->second].op;
}

const BoundOp* VersionedNet::reshaper(const std::string& name, int from) const {
  const auto it = reshapers_.find(name);
  if (it == reshapers_.end()) return nullptr;
  const auto found = std::ranges::lower_bound(it->second, from);
  return found == it->second.end() ? nullptr : &ops_[*found].op;
}

int VersionedNet::first_reader(const VersionedBlob& blob) const {
  const auto it = readers_.find(blob);
  return it == readers_.end() ? -1 : it->second.front();
}

int VersionedNet::readers(const VersionedBlob& blob) const {
  const auto it = readers_.find(blob);
  return it == readers_.end() ? 0 : static_cast<int>(it->second.size());
}

const OperatorDef* VersionedNet::last_reader(const VersionedBlob& blob) const {
  const auto it = readers_.find(blob);
  return it == readers_.end() ? nullptr : &ops_[it->second.back()].op.def;
}

}  // namespace stepnet
