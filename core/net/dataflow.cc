#include "core/net/dataflow.h"

#include <algorithm>
#include <numeric>

#include "core/net/mentions.h"
#include "core/operator/in_place.h"
#include "core/operator/nets_inside.h"

namespace stepnet {

// One walk over the operators. A storage has a log of what is written to it. A name of it is behind by the writes under
// other names that came since it was looked at, and takes them over when it is looked at again: so a write takes no
// longer where many names share a storage.
class Dataflow::Walk {
 public:
  Walk(Dataflow& flow, std::span<const BoundOp* const> ops, const DataflowOptions& options)
      : flow_(flow), ops_(ops), options_(options) {}

  void run() {
    flow_.ops_.resize(ops_.size());
    for (size_t i = 0; i < ops_.size(); ++i) add_op(static_cast<int>(i));
    for (int b = 0; b < flow_.blobs(); ++b) finish_blob(b);
    for (size_t v = 0; v < flow_.values_.size(); ++v) finish_value(v);
    find_groups();
    for (const auto& [name, b] : flow_.numbers_)
      if (!flow_.is_visible(b)) flow_.ops_[flow_.blobs_[b].last_use].ending.push_back(b);
  }

 private:
  struct Now {
    int value = -1, storage = -1, version = 0, writer = -1;
    size_t seen = 0;  // of the storage's log
  };
  struct Log {
    int names = 0;
    bool perhaps_shared = false;  // some names may have storages of their own, as shapes decide
    std::vector<int> writes;      // values
  };
  struct WrittenOver {
    bool any = false, keeps_shape = false;
  };

  void add_op(int i) {
    const OperatorDef& def = ops_[i]->def;
    const std::vector<bool> reads = element_reads(*ops_[i]->spec, def);
    for (int k = 0; k < def.input_size(); ++k) read(i, k, reads[k]);
    mark_read_inside(def);
    for (int o = 0; o < def.output_size(); ++o) write(i, o);
  }

  int number(const std::string& name) {
    const auto [found, is_new] = flow_.numbers_.try_emplace(name, flow_.blobs());
    if (!is_new) return found->second;
    now_.emplace_back();
    NamedBlob& blob = flow_.blobs_.emplace_back();
    blob.name = name;
    blob.visible = options_.visible.count(name) > 0;
    return found->second;
  }

  void read(int i, int k, bool elements) {
    const std::string& name = ops_[i]->def.input(k);
    Op& op = flow_.ops_[i];
    const int b = name.empty() ? -1 : number(name);
    op.in_blobs.push_back(b);
    if (b < 0) {
      op.inputs.push_back(-1);
      op.reads.push_back(-1);
      return;
    }
    if (now_[b].storage < 0) take_from_outside(b, options_.bytes.empty() ? 0 : options_.bytes[i].in[k]);
    const int held = this->held(b), stored = flow_.stored(held);
    op.inputs.push_back(held);
    op.reads.push_back(elements ? stored : -1);
    flow_.values_[held].uses.push_back(i);
    if (!elements) return;
    std::vector<int>& readers = flow_.values_[stored].readers;
    if (readers.empty() || readers.back() != i) readers.push_back(i);
    flow_.blobs_[b].last_use = i;
    touch(now_[b].storage, i);
  }

  void take_from_outside(int b, int64_t bytes) {
    come_from_outside(b);
    bind(b, add_storage(bytes));
    now_[b].value = flow_.blobs_[b].first = add_value({.blob = b, .storage = now_[b].storage});
  }

  void come_from_outside(int b) {
    flow_.blobs_[b].from_outside = true;
    flow_.from_outside_.push_back(b);
  }

  // Nets in arguments run on the blobs of the net around them.
  void mark_read_inside(const OperatorDef& def) {
    if (std::ranges::none_of(def.arg(), [](const Argument& a) { return a.has_n() || a.nets_size() > 0; })) return;
    NetDef around;
    *around.add_op() = def;
    for_each_net(around, [&](const NetDef& net) {
      if (&net == &around) return;
      for (const OperatorDef& inner : net.op())
        for (const std::string& name : inner.input())
          if (const int b = flow_.find(name); b >= 0) flow_.values_[flow_.stored(held(b))].by_name = true;
    });
  }

  void write(int i, int o) {
    const BoundOp& op = *ops_[i];
    const std::string& name = op.def.output(o);
    const int b = name.empty() ? -1 : number(name);
    flow_.ops_[i].out_blobs.push_back(b);
    flow_.ops_[i].outputs.push_back(b < 0 ? -1 : write(i, o, b));
  }

  int write(int i, int o, int b) {
    const BoundOp& op = *ops_[i];
    const bool is_known = now_[b].storage >= 0;
    if (is_known) overwrite(flow_.values_[flow_.stored(held(b))], i);
    if (!is_known || !has_shape_of_before(op, i, o)) flow_.blobs_[b].reshapers.push_back(i);
    NetValue made{.blob = b, .version = now_[b].version + 1, .writer = i};
    WrittenOver over;
    const int source = is_apart(op, i, o) ? -1 : source_of(op, o);
    if (source >= 0) {
      made.alias_of = flow_.stored(held(source));
      bind(b, now_[source].storage);
      Log& log = logs_[now_[b].storage];
      log.perhaps_shared = log.perhaps_shared || (options_.bytes.empty() && may_be_alias(*op.spec, o));
    } else {
      if (!is_known && keeps_value(*op.spec, op.def.input_size(), o)) come_from_outside(b);
      over = written_over(op, o, b);
      if (!is_known || leaves(op, b, over)) bind(b, add_storage(0));
      int64_t& bytes = flow_.storages_[now_[b].storage].bytes;
      if (!options_.bytes.empty()) bytes = std::max(bytes, options_.bytes[i].out[o]);
    }
    made.storage = now_[b].storage;
    touch(made.storage, i);
    flow_.blobs_[b].last_use = i;
    const int value = add_value(std::move(made));
    keeps_shape_[value] = over.keeps_shape;
    if (source < 0) logs_[now_[b].storage].writes.push_back(value);
    log_at_[value] = logs_[now_[b].storage].writes.size();
    now_[b] = {value, now_[b].storage, now_[b].version + 1, i, log_at_[value]};
    return value;
  }

  // True if the output has the shape that the blob of the same name had before: it is written in place of an input of
  // that shape.
  bool has_shape_of_before(const BoundOp& op, int i, int o) const {
    const Op& numbers = flow_.ops_[i];
    for (size_t k = 0; k < numbers.in_blobs.size(); ++k)
      if (numbers.in_blobs[k] == numbers.out_blobs[o] && keeps_shape(*op.spec, op.def, static_cast<int>(k), o))
        return true;
    return false;
  }

  // The blob that the output becomes another name of.
  int source_of(const BoundOp& op, int o) {
    const int in = aliased_input(*op.spec, o);
    return in < 0 || in >= op.def.input_size() || op.def.input(in).empty() ? -1 : number(op.def.input(in));
  }

  // The output is known to have another size than the input that it is another name of if their shapes are equal.
  bool is_apart(const BoundOp& op, int i, int o) const {
    if (options_.bytes.empty() || !may_be_alias(*op.spec, o)) return false;
    return options_.bytes[i].in[aliased_input(*op.spec, o)] != options_.bytes[i].out[o];
  }

  // Whether the output is written over bytes that an input shows, be it under another name.
  WrittenOver written_over(const BoundOp& op, int o, int b) {
    WrittenOver over;
    if (now_[b].storage < 0) return over;  // before all inputs are looked at, of which there may be thousands
    for (int k = 0; k < op.def.input_size(); ++k) {
      const std::string& name = op.def.input(k);
      if (name.empty() || now_[number(name)].storage != now_[b].storage) continue;
      over.any = over.any || may_write_over(*op.spec, k, o);
      over.keeps_shape = over.keeps_shape || keeps_shape(*op.spec, op.def, k, o);
    }
    return over;
  }

  // Whether the name gets a storage of its own, as others share the one that it has.
  bool leaves(const BoundOp& op, int b, const WrittenOver& over) const {
    if (logs_[now_[b].storage].names == 1) return false;
    if (options_.blob_ops_write_over && op.spec->blob_kernel) return false;
    return !op.spec->aliases.empty() || (!over.any && !options_.fixed_storages);
  }

  // The value that a blob holds now. Of several writes that are new to it, what was there before the last counts, too.
  int held(int b) {
    Now& now = now_[b];
    const std::vector<int>& writes = logs_[now.storage].writes;
    const size_t first = now.seen;
    for (size_t w = std::max(first, writes.size() - std::min<size_t>(writes.size(), 2)); w < writes.size(); ++w) {
      const bool is_that = keeps_shape_[writes[w]] && !logs_[now.storage].perhaps_shared;
      now.value = is_that ? writes[w] : add_own(b, writes[w], now.version + static_cast<int>(w - first) + 1);
      now.writer = flow_.values_[writes[w]].writer;
    }
    now.version += static_cast<int>(writes.size() - first);
    now.seen = writes.size();
    return now.value;
  }

  int add_own(int b, int written, int version) {
    return add_value({.blob = b,
                      .version = version,
                      .writer = flow_.values_[written].writer,
                      .storage = now_[b].storage,
                      .shows = written,
                      .replaces = now_[b].value});
  }

  int add_value(NetValue value) {
    log_at_.push_back(logs_[value.storage].writes.size());
    keeps_shape_.push_back(false);
    flow_.values_.push_back(std::move(value));
    return static_cast<int>(flow_.values_.size()) - 1;
  }

  int add_storage(int64_t bytes) {
    logs_.emplace_back();
    flow_.storages_.push_back({.bytes = bytes});
    return static_cast<int>(logs_.size()) - 1;
  }

  // Gives the blob that storage, and takes it from the one it had.
  void bind(int b, int storage) {
    Now& now = now_[b];
    if (now.storage >= 0) --logs_[now.storage].names;
    ++logs_[storage].names;
    now.storage = storage;
    now.seen = logs_[storage].writes.size();
    ValueStorage& s = flow_.storages_[storage];
    s.lasting = s.lasting || flow_.is_visible(b);
  }

  void touch(int storage, int i) {
    ValueStorage& s = flow_.storages_[storage];
    s.first = std::min(s.first, i);
    s.last = i;
  }

  static void overwrite(NetValue& value, int i) {
    value.overwritten = std::min(value.overwritten, i);
    value.last_overwritten = std::max(value.last_overwritten, i);
  }

  void finish_blob(int b) {
    NamedBlob& blob = flow_.blobs_[b];
    blob.last = held(b);
    blob.versions = now_[b].version;
    blob.last_writer = now_[b].writer;
  }

  void finish_value(size_t v) {
    NetValue& value = flow_.values_[v];
    const std::vector<int>& writes = logs_[value.storage].writes;
    if (log_at_[v] < writes.size()) overwrite(value, flow_.values_[writes[log_at_[v]]].writer);
  }

  void find_groups() {
    JoinedGroups groups(flow_.blobs());
    for (size_t i = 0; i < ops_.size(); ++i)
      for (size_t o = 0; o < flow_.ops_[i].out_blobs.size(); ++o) {
        const int out = flow_.ops_[i].out_blobs[o], in = out < 0 ? -1 : source_of(*ops_[i], static_cast<int>(o));
        if (in < 0) continue;
        flow_.blobs_[in].has_alias = flow_.blobs_[out].has_alias = true;
        groups.join(in, out);
      }
    for (int b = 0; b < flow_.blobs(); ++b) flow_.groups_.push_back(groups.of(b));
  }

  Dataflow& flow_;
  std::span<const BoundOp* const> ops_;
  const DataflowOptions& options_;
  std::vector<Now> now_;           // by blob
  std::vector<Log> logs_;          // by storage
  std::vector<size_t> log_at_;     // by value: how many writes its storage had seen when it was there
  std::vector<bool> keeps_shape_;  // by value: it was written over one of its shape
};

Dataflow::Dataflow(std::span<const BoundOp* const> ops, const DataflowOptions& options) {
  Walk(*this, ops, options).run();
}

namespace {

std::vector<const BoundOp*> pointers_to(std::span<const BoundOp> ops) {
  std::vector<const BoundOp*> pointers;
  for (const BoundOp& op : ops) pointers.push_back(&op);
  return pointers;
}

std::vector<BoundOp> bind_ops(const NetDef& net) {
  std::vector<BoundOp> ops;
  for (int i = 0; i < net.op_size(); ++i) ops.push_back(bind_op(net.op(i), net.name(), i));
  return ops;
}

}  // namespace

Dataflow::Dataflow(std::span<const BoundOp> ops, const DataflowOptions& options)
    : Dataflow(std::span<const BoundOp* const>(pointers_to(ops)), options) {}

int Dataflow::find(const std::string& name) const {
  const auto found = numbers_.find(name);
  return found == numbers_.end() ? -1 : found->second;
}

int Dataflow::reshaper(int blob, int from) const {
  const std::vector<int>& all = blobs_[blob].reshapers;
  const auto found = std::ranges::lower_bound(all, from);
  return found == all.end() ? -1 : *found;
}

std::vector<std::string> Dataflow::names() const {
  std::vector<std::string> names;
  for (const auto& [name, blob] : numbers_) names.push_back(name);
  return names;
}

std::vector<Blob*> blobs_of(std::span<const NetStep> steps, const Dataflow& flow) {
  std::vector<Blob*> blobs(flow.blobs(), nullptr);
  const auto add = [&](std::span<Blob* const> of_step, std::span<const int> numbers) {
    for (size_t i = 0; i < numbers.size(); ++i)
      if (numbers[i] >= 0) blobs[numbers[i]] = of_step[i];
  };
  for (size_t s = 0; s < steps.size(); ++s) {
    add(steps[s].in, flow.input_blobs(static_cast<int>(s)));
    add(steps[s].out, flow.output_blobs(static_cast<int>(s)));
  }
  return blobs;
}

BoundNet::BoundNet(const NetDef& net, const DataflowOptions& options)
    : ops(bind_ops(net)), flow(std::span<const BoundOp>(ops), options) {}

JoinedGroups::JoinedGroups(int size) : first_(static_cast<size_t>(size)) { std::iota(first_.begin(), first_.end(), 0); }

void JoinedGroups::join(int a, int b) { first_[of(a)] = of(b); }

int JoinedGroups::of(int number) {
  while (first_[number] != number) number = first_[number] = first_[first_[number]];
  return number;
}

Holdings find_holdings(std::span<const BoundOp* const> ops, const Dataflow& flow) {
  Holdings holdings;
  std::vector<bool> may_be_seen(flow.blobs());  // a write to one of these may be seen under another name
  for (int b = 0; b < flow.blobs(); ++b) may_be_seen[b] = flow.has_alias(b);
  for (size_t s = 0; s < ops.size(); ++s)
    for (const int b : flow.output_blobs(static_cast<int>(s)))
      if (b >= 0 && ops[s]->spec->blob_kernel) may_be_seen[b] = true;
  std::vector<int> now(flow.blobs(), -1);
  Mentions written;
  for (int s = 0; s < static_cast<int>(ops.size()); ++s) {
    const bool by_blobs = ops[s]->spec->blob_kernel != nullptr;
    const std::span<const int> in = flow.input_blobs(s), out = flow.output_blobs(s);
    for (int k = 0; k < static_cast<int>(in.size()); ++k)
      if (flow.read(s, k) >= 0 && now[in[k]] >= 0) holdings.all[now[in[k]]].last = s;
    if (by_blobs)
      for (const std::string& name : written.in(ops[s]->def.SerializeAsString()))
        holdings.all[now[flow.find(name)]].last = s;
    std::vector<int>& made = holdings.made.emplace_back(out.size(), -1);
    for (size_t o = 0; o < out.size(); ++o) {
      const int b = out[o];
      if (b < 0) continue;
      const bool goes_on = by_blobs || may_be_seen[b] || std::ranges::find(in, b) != in.end();
      if (now[b] < 0 || !goes_on) {
        now[b] = static_cast<int>(holdings.all.size());
        holdings.all.push_back({.blob = b, .first = s});
      }
      written.add(flow.name(b));
      made[o] = now[b];
      holdings.all[now[b]].last = s;
    }
  }
  // What may share bytes with a visible blob is seen, too.
  std::vector<bool> seen(flow.blobs());
  for (int b = 0; b < flow.blobs(); ++b)
    if (flow.is_visible(b)) seen[flow.group(b)] = true;
  for (Holding& holding : holdings.all) holding.is_visible = seen[flow.group(holding.blob)];
  return holdings;
}

std::vector<bool> element_reads(const OpSpec& spec, const OperatorDef& op) {
  std::vector<bool> wanted;
  for (const std::string& name : op.output()) wanted.push_back(!name.empty());
  return value_reads(spec, op.input_size(), wanted);
}

std::vector<std::string> read_from_outside(const NetDef& net) {
  std::vector<std::string> read;
  std::set<std::string> met = {""};
  for (const OperatorDef& op : net.op()) {
    for (const std::string& name : op.input())
      if (met.insert(name).second) read.push_back(name);
    met.insert(op.output().begin(), op.output().end());
  }
  return read;
}

std::set<std::string> written_names(const NetDef& net) {
  std::set<std::string> written;
  for (const OperatorDef& op : net.op()) written.insert(op.output().begin(), op.output().end());
  return written;
}

}  // namespace stepnet
