#include "core/passes/memory_values.h"

#include <algorithm>

#include "core/operator/in_place.h"
#include "core/operator/nets_inside.h"

namespace stepnet {
namespace {

class Valuing {
 public:
  Valuing(const NetDef& net, int forward, const MemoryQuestion& question)
      : lasting_(lasting_blobs(net, question)), question_(question) {
    result_.forward = forward;
    for (SizedOp& sized : size_ops(net, question)) add_op(std::move(sized));
    result_.lasting = question.reserved;
    for (const MemoryStorage& s : result_.storages)
      if (s.lasting) result_.lasting += s.bytes;
    add_unread_feeds();
    for (int i = 0; i < forward; ++i) result_.ops[i].fixed = is_fixed(result_.ops[i]);
  }

  MemoryValues result() { return std::move(result_); }

 private:
  void add_op(SizedOp sized) {
    MemoryValues::Op op;
    const OperatorDef& def = sized.op.def;
    const int i = static_cast<int>(result_.ops.size());
    for (int k = 0; k < def.input_size(); ++k) {
      const bool read = sized.reads[k] && !def.input(k).empty();
      const int value = def.input(k).empty() ? -1 : current(def.input(k), sized.in_bytes[k]);
      op.inputs.push_back(read ? value : -1);
      if (!read && value >= 0) op.shape_inputs.push_back(value);
      if (!read) continue;
      MemoryValue& v = result_.values[value];
      if (v.readers.empty() || v.readers.back() != i) v.readers.push_back(i);
      v.by_name = v.by_name || (sized.op.spec->blob_kernel && i >= result_.forward);
      touch(v.storage, i);
    }
    keep_for_inner_nets(def);
    for (int o = 0; o < def.output_size(); ++o) op.outputs.push_back(def.output(o).empty() ? -1 : write(sized, o, i));
    op.sized = std::move(sized);
    result_.ops.push_back(std::move(op));
  }

  // Nets in arguments run on the blobs of the net around them.
  void keep_for_inner_nets(const OperatorDef& def) {
    const bool has_nets =
        std::ranges::any_of(def.arg(), [](const Argument& a) { return a.has_n() || a.nets_size() > 0; });
    if (!has_nets) return;
    NetDef around;
    *around.add_op() = def;
    for_each_net(around, [&](const NetDef& net) {
      if (&net == &around) return;
      for (const OperatorDef& inner : net.op())
        for (const std::string& name : inner.input())
          if (const auto found = current_.find(name); found != current_.end())
            result_.values[found->second].by_name = true;
    });
  }

  // The value that a name holds now.
  int current(const std::string& name, int64_t bytes) {
    const auto found = current_.find(name);
    if (found != current_.end()) return found->second;
    return current_[name] = add_value(bind(name, add_storage(bytes)), -1);
  }

  int write(const SizedOp& sized, int o, int i) {
    const std::string& name = sized.op.def.output(o);
    const int aliased = aliased_input(*sized.op.spec, o);
    if (aliased >= 0 && aliased < sized.op.def.input_size()) {
      const int source = current_.at(sized.op.def.input(aliased));
      const int storage = result_.values[source].storage;
      touch(storage, i);
      const int value = add_value(bind(name, storage), i);
      result_.values[value].alias_of = source;
      return current_[name] = value;
    }
    const auto bound = storage_of_.find(name);
    const bool stays = bound != storage_of_.end() &&
                       (names_[bound->second].size() == 1 || sized.op.spec->blob_kernel || is_over(sized, o));
    const int storage = stays ? bound->second : bind(name, add_storage(0));
    result_.storages[storage].bytes = std::max(result_.storages[storage].bytes, sized.out_bytes[o]);
    touch(storage, i);
    const int value = add_value(storage, i);
    for (const std::string& other : names_[storage]) {
      const auto held = current_.find(other);
      if (held != current_.end()) overwrite(result_.values[held->second], i);
      current_[other] = value;
    }
    return value;
  }

  // True if the output is written over the bytes that an input shows, be it under another name.
  bool is_over(const SizedOp& sized, int o) const {
    const OperatorDef& def = sized.op.def;
    const int storage = storage_of_.at(def.output(o));
    for (int k = 0; k < def.input_size(); ++k) {
      const auto input = storage_of_.find(def.input(k));
      if (input != storage_of_.end() && input->second == storage && may_write_over(*sized.op.spec, k, o)) return true;
    }
    return false;
  }

  void overwrite(MemoryValue& v, int i) {
    v.overwritten = std::min(v.overwritten, i);
    // What comes after the forward part writes its storage, so it cannot be another one.
    if (i >= result_.forward) v.by_name = true;
  }

  int add_storage(int64_t bytes) {
    result_.storages.push_back({.bytes = bytes});
    names_.emplace_back();
    return static_cast<int>(result_.storages.size()) - 1;
  }

  int add_value(int storage, int writer) {
    MemoryValue v;
    v.writer = writer;
    v.storage = storage;
    result_.values.push_back(std::move(v));
    return static_cast<int>(result_.values.size()) - 1;
  }

  // Gives the name that storage, and takes it from the one it had.
  int bind(const std::string& name, int storage) {
    const auto had = storage_of_.find(name);
    if (had != storage_of_.end()) names_[had->second].erase(name);
    storage_of_[name] = storage;
    names_[storage].insert(name);
    result_.storages[storage].lasting = result_.storages[storage].lasting || lasting_.count(name) > 0;
    return storage;
  }

  void touch(int storage, int i) {
    MemoryStorage& s = result_.storages[storage];
    s.first = std::min(s.first, i);
    if (i < result_.forward) s.last_forward = i;
    s.last = i;
  }

  void add_unread_feeds() {
    for (const auto& [name, type] : question_.feeds)
      if (storage_of_.count(name) == 0 && type.known) result_.lasting += allocated_bytes(type);
  }

  bool is_fixed(const MemoryValues::Op& op) const {
    const OpSpec& spec = *op.sized.op.spec;
    if (spec.side_effect || spec.blob_kernel) return true;
    for (size_t o = 0; o < op.outputs.size(); ++o)
      if (op.outputs[o] >= 0 && !op.sized.out[o].known) return true;
    // It would read the shape of what the blob holds by then.
    if (std::ranges::any_of(op.shape_inputs, [&](int v) { return result_.values[v].overwritten < result_.forward; }))
      return true;
    return std::any_of(op.inputs.begin(), op.inputs.end(), [&](int input) {
      if (input < 0) return false;
      const MemoryValue& v = result_.values[input];
      return v.overwritten < result_.forward && (v.writer < 0 || result_.ops[v.writer].fixed);
    });
  }

  MemoryValues result_;
  const std::set<std::string> lasting_;
  const MemoryQuestion& question_;
  std::map<std::string, int> current_, storage_of_;
  std::vector<std::set<std::string>> names_;  // by storage
};

}  // namespace

int MemoryValues::last_use(int value) const {
  const MemoryValue& v = values[value];
  const int read = v.readers.empty() ? -1 : v.readers.back();
  return v.by_name ? std::max(read, storages[v.storage].last) : read;
}

bool MemoryValues::is_read_forward_from(int value, int op) const {
  const std::vector<int>& readers = values[value].readers;
  const auto next = std::lower_bound(readers.begin(), readers.end(), op);
  return next != readers.end() && *next < forward;
}

MemoryValues value_net(const NetDef& net, int forward, const MemoryQuestion& question) {
  return Valuing(net, forward, question).result();
}

}  // namespace stepnet
