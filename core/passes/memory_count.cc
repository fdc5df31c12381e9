#include "core/passes/memory_count.h"

#include <algorithm>
#include <memory>
#include <numeric>

#include "core/operator/dry_run.h"
#include "core/operator/in_place.h"

namespace stepnet {
namespace {

constexpr int64_t kAlignment = 64;

int64_t rounded(int64_t bytes) {
  int64_t up = 0;
  require(!__builtin_add_overflow(bytes, kAlignment - 1, &up), "{} bytes are more than a machine has", bytes);
  return up / kAlignment * kAlignment;
}

// At least one for each element that is written, so that nothing is run again for nothing.
double cost_of(const SizedOp& sized) {
  double elements = 0;
  for (const TensorType& out : sized.out)
    if (out.known) elements += static_cast<double>(out.shape.size());
  return std::max(elements, op_flops(sized.op, sized.in, sized.out));
}

class Sizing {
 public:
  Sizing(const NetDef& net, const MemoryQuestion& question) : net_(net), question_(question), known_(question.feeds) {}

  std::vector<SizedOp> run() {
    std::vector<SizedOp> ops;
    for (int i = 0; i < net_.op_size(); ++i) ops.push_back(size(i));
    require(missing_.empty(),
            "the bytes of {} are not known: give the shapes of what the net reads, and the most bytes "
            "of what depends on data",
            fmt::join(missing_, ", "));
    return ops;
  }

 private:
  SizedOp size(int i) {
    const OperatorDef& def = net_.op(i);
    SizedOp sized;
    sized.op = bind_op(def, net_.name(), i);
    std::vector<bool> wanted;
    for (const std::string& name : def.output()) wanted.push_back(!name.empty());
    sized.reads = value_reads(*sized.op.spec, def.input_size(), wanted);
    std::vector<std::string> shapes;
    for (const std::string& name : def.input()) {
      sized.in.push_back(type_of(name));
      sized.in_bytes.push_back(bytes_of(name, sized.in.back()));
      if (sized.in.back().known) shapes.push_back(fmt::format("{} is {}", name, sized.in.back()));
    }
    sized.out.resize(def.output_size());
    for (int o = 0; o < def.output_size(); ++o) sized.out[o].absent = def.output(o).empty();
    try {
      infer_types(sized.op, sized.in, sized.out);
      sized.flops = cost_of(sized);
    } catch (Error& e) {
      add_op_context(e, sized.op, shapes);
      throw;
    }
    for (int o = 0; o < def.output_size(); ++o) {
      if (!def.output(o).empty()) known_[def.output(o)] = sized.out[o];
      sized.out_bytes.push_back(bytes_of(def.output(o), sized.out[o]));
    }
    return sized;
  }

  TensorType type_of(const std::string& name) const {
    TensorType type;
    type.absent = name.empty();
    const auto found = known_.find(name);
    return found == known_.end() ? type : found->second;
  }

  int64_t bytes_of(const std::string& name, const TensorType& type) {
    if (name.empty()) return 0;
    if (type.known) return allocated_bytes(type);
    const auto given = question_.bytes.find(name);
    if (given != question_.bytes.end()) return rounded(given->second);
    missing_.insert("\"" + name + "\"");
    return 0;
  }

  const NetDef& net_;
  const MemoryQuestion& question_;
  std::map<std::string, TensorType> known_;
  std::set<std::string> missing_;
};

// The blobs of a workspace, as far as their storages go.
class Blobs {
 public:
  Blobs(const NetDef& net, const MemoryQuestion& question)
      : net_(net), question_(question), ops_(size_ops(net, question)), release_(net.op_size()) {
    for (const auto& [name, type] : question.feeds) {
      const auto given = question.bytes.find(name);
      require(type.known || given != question.bytes.end(), "the type of \"{}\" is not known", name);
      blobs_[name] = {type, allocate(type.known ? allocated_bytes(type) : rounded(given->second))};
    }
    counter_.live += question.reserved;
    plan_release();
  }

  MemoryCount run() {
    MemoryCount memory;
    memory.live.assign(ops_.size(), 0);
    for (int pass = 0; pass < 2; ++pass)
      for (size_t i = 0; i < ops_.size(); ++i) memory.live[i] = run_op(i);
    memory.lasting = memory.peak = counter_.live;
    for (size_t i = 0; i < ops_.size(); ++i) {
      if (memory.live[i] <= memory.peak) continue;
      memory.peak = memory.live[i];
      memory.peak_op = static_cast<int>(i);
    }
    return memory;
  }

 private:
  struct Counter {
    int64_t live = 0, peak = 0;
  };
  struct Bytes {
    Counter& counter;
    int64_t size;
    Bytes(Counter& counter, int64_t size) : counter(counter), size(size) {
      counter.peak = std::max(counter.peak, counter.live += size);
    }
    Bytes(const Bytes&) = delete;
    Bytes& operator=(const Bytes&) = delete;
    ~Bytes() { counter.live -= size; }
  };
  struct HeldBlob {
    TensorType type;
    std::shared_ptr<Bytes> storage;  // shared by blobs of one storage
  };

  std::shared_ptr<Bytes> allocate(int64_t size) { return std::make_shared<Bytes>(counter_, size); }

  void plan_release() {
    const std::set<std::string> lasting = lasting_blobs(net_, question_);
    std::map<std::string, size_t> last;
    std::set<std::string> touched;
    for (size_t i = 0; i < ops_.size(); ++i) {
      const OperatorDef& def = ops_[i].op.def;
      touched.insert(def.input().begin(), def.input().end());
      for (int o = 0; o < def.output_size(); ++o)
        if (touched.insert(def.output(o)).second) begins_.insert({i, o});
      for (int k = 0; k < def.input_size(); ++k)
        if (ops_[i].reads[k]) last[def.input(k)] = i;
      for (const std::string& name : def.output()) last[name] = i;
    }
    for (const auto& [name, i] : last)
      if (!name.empty() && lasting.count(name) == 0) release_[i].push_back(name);
  }

  // The most bytes that are live while the operator runs.
  int64_t run_op(size_t i) {
    const SizedOp& op = ops_[i];
    const OperatorDef& def = op.op.def;
    counter_.peak = counter_.live;
    std::vector<std::shared_ptr<Bytes>> before;  // what a kernel that changes a shape in place still reads
    for (int o = 0; o < def.output_size(); ++o) {
      const std::string& name = def.output(o);
      if (name.empty()) continue;
      const int aliased = aliased_input(*op.op.spec, o);
      if (aliased >= 0 && aliased < def.input_size()) {
        blobs_[name] = {op.out[o], blobs_[def.input(aliased)].storage};
        continue;
      }
      HeldBlob& blob = blobs_[name];
      // A name that shows what others do gets bytes of its own, unless the operator works in place.
      const bool begins = begins_.count({i, o}) > 0;
      if (blob.storage.use_count() > 1 && !op.op.spec->blob_kernel && (begins || !is_over(op, o))) blob.storage.reset();
      for (int k = 0; k < def.input_size(); ++k)
        if (def.input(k) == name && !same(blob.type, op.out[o])) before.push_back(blob.storage);
      resize(blob, op.out[o], op.out_bytes[o]);
    }
    before.clear();
    for (const std::string& name : release_[i]) blobs_[name].storage.reset();
    return counter_.peak;
  }

  bool is_over(const SizedOp& op, int o) const {
    const OperatorDef& def = op.op.def;
    for (int k = 0; k < def.input_size(); ++k) {
      const auto input = blobs_.find(def.input(k));
      if (input != blobs_.end() && input->second.storage == blobs_.at(def.output(o)).storage &&
          may_write_over(*op.op.spec, k, o))
        return true;
    }
    return false;
  }

  static bool same(const TensorType& a, const TensorType& b) {
    return a.known && b.known && a.dtype == b.dtype && a.shape.size() == b.shape.size();
  }

  void resize(HeldBlob& blob, const TensorType& type, int64_t bytes) {
    const bool stays = blob.storage && same(blob.type, type);
    const bool fits = blob.storage && blob.storage.use_count() == 1 && blob.storage->size >= bytes;
    if (!stays && !fits) {
      blob.storage.reset();
      blob.storage = allocate(bytes);
    }
    blob.type = type;
  }

  const NetDef& net_;
  const MemoryQuestion& question_;
  Counter counter_;
  std::vector<SizedOp> ops_;
  std::vector<std::vector<std::string>> release_;
  std::set<std::pair<size_t, int>> begins_;  // operators and outputs that are the first to touch their blobs in a run
  std::map<std::string, HeldBlob> blobs_;
};

}  // namespace

int64_t allocated_bytes(const TensorType& type) {
  return type.dtype == DType::string ? 0 : rounded(byte_size(type.dtype, type.shape));
}

std::vector<SizedOp> size_ops(const NetDef& net, const MemoryQuestion& question) { return Sizing(net, question).run(); }

std::set<std::string> lasting_blobs(const NetDef& net, const MemoryQuestion& question) {
  std::set<std::string> lasting(net.external_output().begin(), net.external_output().end());
  lasting.insert(net.external_input().begin(), net.external_input().end());
  lasting.insert(question.keep.begin(), question.keep.end());
  for (const auto& [name, type] : question.feeds) lasting.insert(name);
  std::set<std::string> written;
  for (const OperatorDef& op : net.op()) {
    for (const std::string& name : op.input())
      if (written.count(name) == 0) lasting.insert(name);
    written.insert(op.output().begin(), op.output().end());
  }
  return lasting;
}

MemoryCount count_memory(const NetDef& net, const MemoryQuestion& question) { return Blobs(net, question).run(); }

}  // namespace stepnet
