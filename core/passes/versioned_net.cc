#include "core/passes/versioned_net.h"

namespace stepnet {

VersionedNet::VersionedNet(const NetDef& net) {
  for (int i = 0; i < net.op_size(); ++i) {
    Op op;
    op.op = bind_op(net.op(i), net.name(), i);
    for (const std::string& name : net.op(i).input()) {
      op.inputs.push_back({name, last_[name]});
      readers_[op.inputs.back()].push_back(i);
    }
    for (const std::string& name : net.op(i).output()) {
      op.outputs.push_back({name, name.empty() ? 0 : ++last_[name]});
      last_writer_[name] = i;
    }
    ops_.push_back(std::move(op));
  }
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
