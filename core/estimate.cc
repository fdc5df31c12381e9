#include "core/estimate.h"

#include <algorithm>
#include <utility>

#include "core/dry_run.h"
#include "core/net_observer.h"

namespace stepnet {
namespace {

size_t index_of(MemoryKind kind) { return static_cast<size_t>(kind); }

std::vector<bool> wanted_outputs(const BoundOp& op) {
  std::vector<bool> wanted;
  for (const std::string& name : op.def.output()) wanted.push_back(!name.empty());
  return wanted;
}

const Tensor* tensor_of(const Blob* blob) {
  return blob && blob->is_tensor() && !blob->empty() ? &std::as_const(*blob).tensor() : nullptr;
}

const Tensor* tensor_of(const Workspace& blobs, const std::string& name) {
  return name.empty() ? nullptr : tensor_of(blobs.find(name));
}

// An operator of the net with its blobs, looked up once.
struct BoundBlobs {
  const BoundOp* op = nullptr;
  std::vector<const Blob*> in, out;
};

std::string kernel_text(const BoundOp& op, const DryScope& dry, DType dtype) {
  if (op.spec->blob_kernel) return "on the host, of other operators";
  const std::string type(dtype == DType::undefined ? "any type" : dtype_name(dtype));
  const char* device = dry.claims() == DeviceKind::cpu ? "cpu" : "cuda";
  const bool exists = std::ranges::any_of(op.spec->kernels, [&](const Kernel& k) { return k.device == dry.claims(); });
  std::string text = fmt::format("{}, {}", device, type);
  if (!op.spec->workspace.empty() && dtype == DType::float32)
    text += dry.claims() == DeviceKind::cpu ? ", oneDNN" : ", cuBLASLt";
  return exists ? text : text + " (assumed: this build has none)";
}

// What each operator of a dry run does, and what every block is for.
class Recorder : public NetObserver {
 public:
  Recorder(const NetSession& session, DryScope& dry) : session_(session), dry_(dry) {}

  void start_run() {
    ops.clear();
    input_blocks_.clear();
    output_blocks_.clear();
    peak_events.clear();
    note_standing();
  }

  void before(const BoundOp& op) override {
    look_up(op);
    dry_.reset_peak();
    OpEstimate& e = ops.emplace_back();
    e.index = op.index;
    e.type = op.def.type();
    e.name = !op.def.name().empty() || op.def.output().empty() ? op.def.name() : op.def.output(0);
    e.backward = op.index >= session_.differentiated.first_gradient_op;
    e.update = op.index >= session_.first_update && e.backward;
    e.memory.before = dry_.counters().live;
    flops_before_ = dry_.flops;
    block_before_ = blocks().size();
    note_reads(bound[ops.size() - 1], e);
  }

  void after(const BoundOp&) override {
    OpEstimate& e = ops.back();
    const MemoryCounters now = dry_.counters();
    e.memory.peak = now.peak;
    e.memory.after = now.live;
    e.memory.products = dry_.workspace();
    e.flops = dry_.flops - flops_before_;
    peak_events.resize(ops.size());
    peak_events.back() = dry_.peak_event();
    note_outputs(bound[ops.size() - 1], e);
    note_rest(e);
  }

  std::vector<OpEstimate> ops;
  std::vector<int64_t> peak_events;
  std::vector<BoundBlobs> bound;  // by operator, in order

 private:
  void look_up(const BoundOp& op) {
    if (bound.size() > ops.size()) return;
    BoundBlobs& b = bound.emplace_back();
    b.op = &op;
    for (const std::string& name : op.def.input()) b.in.push_back(name.empty() ? nullptr : session_.blobs.find(name));
    for (const std::string& name : op.def.output()) b.out.push_back(name.empty() ? nullptr : session_.blobs.find(name));
  }

  const std::vector<DryBlock>& blocks() const { return dry_.blocks(); }

  int64_t block_of(const Tensor* tensor) const {
    return tensor && tensor->is_dry() && tensor->storage()->bytes() > 0 ? dry_.block_at(tensor->storage()->data()) : -1;
  }

  struct Facts {
    int op = -1;                              // that it is an output of
    bool named = false;                       // a blob shows it
    bool kept = false;                        // the backward pass reads it
    bool standing = false;                    // a blob shows it between runs
    MemoryKind kind = MemoryKind::transient;  // of a standing one
  };
  Facts& facts(int64_t block) {
    if (facts_.size() < blocks().size()) facts_.resize(blocks().size());
    return facts_[static_cast<size_t>(block)];
  }

  MemoryKind kind_of(size_t b) const {
    const Facts f = b < facts_.size() ? facts_[b] : Facts{};
    if (blocks()[b].workspace) return MemoryKind::workspace;
    if (f.standing) return f.kind;
    if (f.kept) return MemoryKind::kept;
    return f.named ? MemoryKind::transient : MemoryKind::own;
  }

  // What stands in the session's blobs between runs, and gradients of parameters.
  void note_standing() {
    for (const auto& [name, kind] : session_.kinds) note(name, kind);
  }
  void note(const std::string& name, MemoryKind kind) {
    const int64_t b = block_of(tensor_of(session_.blobs, name));
    if (b < 0) return;
    Facts& f = facts(b);
    f.kind = f.standing ? std::min(f.kind, kind) : kind;
    f.standing = true;
  }

  void note_reads(const BoundBlobs& b, OpEstimate& e) {
    const BoundOp& op = *b.op;
    const std::vector<bool> reads = value_reads(*op.spec, op.def.input_size(), wanted_outputs(op));
    std::vector<int64_t>& of_inputs = input_blocks_.emplace_back();
    for (int i = 0; i < op.def.input_size(); ++i) {
      const Tensor* tensor = tensor_of(b.in[i]);
      of_inputs.push_back(block_of(tensor));
      if (!tensor && reads[i]) note_object(op, i);
      if (!tensor || !reads[i]) continue;
      e.bytes_moved += static_cast<double>(tensor->bytes());
      const int64_t block = of_inputs.back();
      if (block >= 0 && e.backward && facts(block).op >= 0 &&
          facts(block).op < session_.differentiated.first_gradient_op &&
          session_.differentiated.kept.count(op.def.input(i)) > 0)
        facts(block).kept = true;
    }
  }

  // An object, such as what a RecurrentNetwork hands to its gradient: it has what its operator made and still holds.
  void note_object(const BoundOp& op, int input) {
    if (op.index < session_.differentiated.first_gradient_op) return;
    const auto& ops_of_net = session_.net->def().op();
    for (int maker = 0; maker < session_.differentiated.first_gradient_op; ++maker)
      if (std::ranges::count(ops_of_net[maker].output(), op.def.input(input)) > 0)
        for (const int64_t b : made_inside_[maker])
          if (blocks()[static_cast<size_t>(b)].gone < 0) facts(b).kept = true;
  }

  void note_outputs(const BoundBlobs& blobs, OpEstimate& e) {
    const BoundOp& op = *blobs.op;
    std::vector<int64_t>& made = output_blocks_.emplace_back();
    for (size_t o = 0; o < blobs.out.size(); ++o) {
      const std::string& name = op.def.output(static_cast<int>(o));
      const Tensor* tensor = tensor_of(blobs.out[o]);
      if (!tensor) continue;
      e.bytes_moved += static_cast<double>(tensor->bytes());
      if (const int64_t b = block_of(tensor); b >= 0) {
        Facts& f = facts(b);
        f.named = true;
        if (!f.standing && (f.op < 0 || static_cast<size_t>(b) >= block_before_)) f.op = op.index;
        if (f.op == op.index && std::ranges::find(made, b) == made.end()) {
          made.push_back(b);
          e.outputs += blocks()[static_cast<size_t>(b)].bytes;
        }
      }
      if (const auto kind = session_.kinds.find(name); kind != session_.kinds.end()) note(name, kind->second);
    }
  }

  // Blocks that it made and that are no output.
  void note_rest(OpEstimate& e) {
    int64_t made = 0;
    for (size_t b = block_before_; b < blocks().size(); ++b) {
      const DryBlock& block = blocks()[b];
      if (block.gone >= 0) continue;
      made += block.bytes;
      const auto id = static_cast<int64_t>(b);
      if (block.workspace) {
        workspace_of_[e.index].push_back(id);
      } else if (facts(id).op != e.index) {
        made_inside_[e.index].push_back(id);
      }
    }
    e.own_kept = bytes_left(made_inside_[e.index]);
    e.workspace = bytes_left(workspace_of_[e.index]);
    e.temporaries = std::max<int64_t>(0, e.memory.peak - e.memory.before - made);
  }

  int64_t bytes_left(std::vector<int64_t>& of) const {
    std::erase_if(of, [&](int64_t b) { return blocks()[static_cast<size_t>(b)].gone >= 0; });
    int64_t bytes = 0;
    for (const int64_t b : of) bytes += blocks()[static_cast<size_t>(b)].bytes;
    return bytes;
  }

 public:
  // Once all operators have run: what is kept, and what was alive when.
  void finish_run(MemoryByKind& totals) {
    for (size_t i = 0; i < ops.size(); ++i)
      for (const int64_t b : output_blocks_[i])
        if (facts(b).kept) ops[i].outputs_kept += blocks()[static_cast<size_t>(b)].bytes;
    for (const DifferentiatedOp& d : session_.differentiated.differentiated) note_kept_inputs(d);
    go_through_events(totals);
  }

 private:
  void note_kept_inputs(const DifferentiatedOp& d) {
    const BoundOp& op = *bound[d.op].op;
    const GradientProgram program = record_gradient(*op.spec, op.def, op.args.get(), d.wanted, d.present);
    std::set<int64_t> kept;
    for (size_t i = 0; i < program.reads_input.size(); ++i)
      if (program.reads_input[i]) kept.insert(input_blocks_[d.op][i]);
    kept.erase(-1);
    for (const int64_t b : kept) ops[d.op].inputs_kept += blocks()[static_cast<size_t>(b)].bytes;
  }

  // Sums of what is alive, by kind, after each event.
  void go_through_events(MemoryByKind& totals) {
    std::vector<std::pair<int64_t, size_t>> changes(static_cast<size_t>(dry_.events()));
    for (size_t b = 0; b < blocks().size(); ++b) {
      const size_t kind = index_of(kind_of(b));
      changes[static_cast<size_t>(blocks()[b].made)] = {blocks()[b].bytes, kind};
      if (blocks()[b].gone >= 0) changes[static_cast<size_t>(blocks()[b].gone)] = {-blocks()[b].bytes, kind};
    }
    MemoryByKind alive(kMemoryKinds);
    totals.assign(kMemoryKinds, 0);
    size_t op = 0;
    for (size_t event = 0; event <= changes.size(); ++event) {
      for (; op < ops.size() && peak_events[op] <= static_cast<int64_t>(event); ++op) ops[op].at_peak = alive;
      for (size_t k = 0; k < alive.size(); ++k) totals[k] = std::max(totals[k], alive[k]);
      if (event == changes.size()) break;
      alive[changes[event].second] += changes[event].first;
    }
  }

 private:
  const NetSession& session_;
  DryScope& dry_;
  std::vector<Facts> facts_;  // by block
  std::map<int, std::vector<int64_t>> made_inside_;
  std::map<int, std::vector<int64_t>> workspace_of_;
  std::vector<std::vector<int64_t>> input_blocks_, output_blocks_;  // of the present run, by operator
  size_t block_before_ = 0;
  double flops_before_ = 0;
};

int64_t output_bytes(const NetSession& session) {
  int64_t bytes = 0;
  std::set<const void*> seen;
  for (const std::string& name : session.net->def().external_output())
    if (const Tensor* t = tensor_of(session.blobs, name); t && seen.insert(t->raw()).second)
      bytes += static_cast<int64_t>(t->bytes());
  return bytes;
}

void add_kernels(const std::vector<BoundBlobs>& bound, const DryScope& dry, std::vector<OpEstimate>& ops) {
  for (size_t i = 0; i < ops.size(); ++i) {
    DType dtype = DType::undefined;
    for (const auto* blobs : {&bound[i].in, &bound[i].out})
      for (const Blob* blob : *blobs)
        if (const Tensor* t = tensor_of(blob); t && (dtype == DType::undefined || !is_floating(dtype)))
          dtype = t->dtype();
    ops[i].kernel = kernel_text(*bound[i].op, dry, dtype);
  }
}

// Of the run of which the session's blobs are still there.
void run_recorded(NetSession& session, Recorder& recorder) {
  recorder.start_run();
  RunContext run;
  run.observer = &recorder;
  session.net->run(run);
  if (session.advance) session.advance();
}

constexpr int64_t kBlasWorkspace = int64_t{32} << 20;

}  // namespace

Estimate estimate_session(NetSession& session, DryScope& scope) {
  Recorder recorder(session, scope);
  Estimate result;
  result.device = scope.claims();
  run_recorded(session, recorder);
  for (const OpEstimate& e : recorder.ops) result.peak = std::max(result.peak, e.memory.peak);
  const double flops = scope.flops, products = scope.product_flops;
  run_recorded(session, recorder);
  result.flops = scope.flops - flops;
  result.product_flops = scope.product_flops - products;
  recorder.finish_run(result.totals);
  result.ops = std::move(recorder.ops);
  const int64_t first_peak = result.peak;
  for (const OpEstimate& e : result.ops) {
    result.bytes_moved += e.bytes_moved;
    if (e.memory.peak < result.peak || (result.peak_op >= 0 && e.memory.peak == result.peak)) continue;
    result.peak = e.memory.peak;
    result.peak_op = e.index;
    result.at_peak = e.at_peak;
  }
  if (result.peak_op < 0) {
    const auto largest = std::ranges::max_element(result.ops, {}, [](const OpEstimate& e) { return e.memory.peak; });
    if (largest != result.ops.end()) result.at_peak = largest->at_peak;
    result.notes.push_back(
        fmt::format("the first run needs most, {} bytes: it makes what stays for the others", first_peak));
  }
  result.between = scope.counters().live;
  result.outputs = output_bytes(session);
  add_kernels(recorder.bound, scope, result.ops);
  if (scope.claims() == DeviceKind::cuda && result.product_flops > 0)
    result.notes.push_back(
        fmt::format("cuBLASLt's workspace is not in it: at most {} bytes more (bounded)", kBlasWorkspace));
  return result;
}

std::vector<KeptValue> kept_values(const NetSession& session) {
  std::map<std::string, KeptValue> kept;
  for (const DifferentiatedOp& d : session.differentiated.differentiated) {
    const BoundOp op = bind_op(session.net->def().op(d.op), session.net->name(), d.op);
    for (size_t i = 0; i < d.wanted.size(); ++i) {
      if (!d.wanted[i]) continue;
      std::vector<bool> only(d.wanted.size(), false);
      only[i] = true;
      const GradientProgram program = record_gradient(*op.spec, op.def, op.args.get(), only, d.present);
      const std::string reason =
          fmt::format("the gradient of {} by {} (operator {})", op.def.input(static_cast<int>(i)), op.def.type(), d.op);
      const auto note = [&](const std::vector<bool>& reads, const auto& names) {
        for (size_t k = 0; k < reads.size(); ++k)
          if (reads[k]) kept[names[static_cast<int>(k)]].reasons.push_back(reason);
      };
      note(program.reads_input, op.def.input());
      note(program.reads_output, op.def.output());
    }
  }
  std::vector<KeptValue> result;
  for (auto& [name, value] : kept) {
    value.name = name;
    const Blob* blob = session.blobs.find(name);
    value.type = blob ? blob->type_str() : "";
    if (const Tensor* t = tensor_of(session.blobs, name)) value.bytes = static_cast<int64_t>(t->bytes());
    const auto first = std::ranges::unique(value.reasons).begin();
    value.reasons.erase(first, value.reasons.end());
    result.push_back(std::move(value));
  }
  return result;
}

}  // namespace stepnet
