// Going through a dry run operator by operator, and through its blocks event by event.
#include "core/estimate/recorder.h"

#include <algorithm>
#include <set>
#include <utility>

#include "core/net/dataflow.h"
#include "core/operator/in_place.h"
#include "stepnet/formula.h"

namespace stepnet {
namespace {

size_t index_of(MemoryKind kind) { return static_cast<size_t>(kind); }

}  // namespace

const Tensor* tensor_of(const Blob* blob) {
  return blob && blob->is_tensor() && !blob->empty() ? &std::as_const(*blob).tensor() : nullptr;
}

void EstimateRecorder::start_run() {
  ops.clear();
  input_blocks_.clear();
  output_blocks_.clear();
  peak_events_.clear();
  note_standing();
}

void EstimateRecorder::before(const BoundOp& op) {
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

void EstimateRecorder::after(const BoundOp&) {
  OpEstimate& e = ops.back();
  const MemoryCounters now = dry_.counters();
  e.memory.peak = now.peak;
  e.memory.after = now.live;
  e.memory.products = dry_.workspace();
  e.flops = dry_.flops - flops_before_;
  peak_events_.resize(ops.size());
  peak_events_.back() = dry_.peak_event();
  note_outputs(bound[ops.size() - 1], e);
  note_rest(e);
}

void EstimateRecorder::look_up(const BoundOp& op) {
  if (bound.size() > ops.size()) return;
  BoundBlobs& b = bound.emplace_back();
  b.op = &op;
  for (const std::string& name : op.def.input()) b.in.push_back(name.empty() ? nullptr : session_.blobs.find(name));
  for (const std::string& name : op.def.output()) b.out.push_back(name.empty() ? nullptr : session_.blobs.find(name));
}

int64_t EstimateRecorder::block_of(const Tensor* tensor) const {
  return tensor && tensor->is_dry() && tensor->storage()->bytes() > 0 ? dry_.block_at(tensor->storage()->data()) : -1;
}

EstimateRecorder::Facts& EstimateRecorder::facts(int64_t block) {
  if (facts_.size() < blocks().size()) facts_.resize(blocks().size());
  return facts_[static_cast<size_t>(block)];
}

MemoryKind EstimateRecorder::kind_of(size_t b) const {
  const Facts f = b < facts_.size() ? facts_[b] : Facts{};
  if (blocks()[b].category == MemoryCategory::workspace) return MemoryKind::workspace;
  if (blocks()[b].category == MemoryCategory::reserve) return MemoryKind::reserve;
  if (f.standing) return f.kind;
  if (f.kept) return MemoryKind::kept;
  return f.named ? MemoryKind::transient : MemoryKind::own;
}

void EstimateRecorder::note_standing() {
  for (const auto& [name, kind] : session_.kinds) note(name, kind);
}

void EstimateRecorder::note(const std::string& name, MemoryKind kind) {
  const int64_t b = block_of(tensor_of(session_.blobs.find(name)));
  if (b < 0) return;
  Facts& f = facts(b);
  f.kind = f.standing ? std::min(f.kind, kind) : kind;
  f.standing = true;
}

void EstimateRecorder::note_reads(const BoundBlobs& b, OpEstimate& e) {
  const BoundOp& op = *b.op;
  const std::vector<bool> reads = element_reads(*op.spec, op.def);
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

void EstimateRecorder::note_object(const BoundOp& op, int input) {
  if (op.index < session_.differentiated.first_gradient_op) return;
  const auto& ops_of_net = session_.net->def().op();
  for (int maker = 0; maker < session_.differentiated.first_gradient_op; ++maker)
    if (std::ranges::count(ops_of_net[maker].output(), op.def.input(input)) > 0)
      for (const int64_t b : made_inside_[maker])
        if (blocks()[static_cast<size_t>(b)].gone < 0) facts(b).kept = true;
}

void EstimateRecorder::note_outputs(const BoundBlobs& blobs, OpEstimate& e) {
  const BoundOp& op = *blobs.op;
  std::vector<int64_t>& made = output_blocks_.emplace_back();
  for (size_t o = 0; o < blobs.out.size(); ++o) {
    const std::string& name = op.def.output(static_cast<int>(o));
    const Tensor* tensor = tensor_of(blobs.out[o]);
    if (!tensor) continue;
    // A gradient that has the shape it is to have is another name, for which not even what is read moves.
    const Tensor* source =
        may_be_alias(*op.spec, static_cast<int>(o)) ? tensor_of(blobs.in[aliased_input(*op.spec, 0)]) : nullptr;
    const bool moves = !source || !source->shares_storage(*tensor);
    e.bytes_moved += (moves ? 1 : -1) * static_cast<double>(tensor->bytes());
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

void EstimateRecorder::note_rest(OpEstimate& e) {
  int64_t made = 0;
  for (size_t b = block_before_; b < blocks().size(); ++b) {
    const DryBlock& block = blocks()[b];
    if (block.gone >= 0) continue;
    made += block.bytes;
    const auto id = static_cast<int64_t>(b);
    if (block.category == MemoryCategory::workspace) {
      workspace_of_[e.index].push_back(id);
    } else if (facts(id).op != e.index) {
      made_inside_[e.index].push_back(id);
    }
  }
  e.own_kept = bytes_left(made_inside_[e.index]);
  e.workspace = bytes_left(workspace_of_[e.index]);
  e.temporaries = std::max<int64_t>(0, e.memory.peak - e.memory.before - made);
}

int64_t EstimateRecorder::bytes_left(std::vector<int64_t>& of) const {
  std::erase_if(of, [&](int64_t b) { return blocks()[static_cast<size_t>(b)].gone >= 0; });
  int64_t bytes = 0;
  for (const int64_t b : of) bytes += blocks()[static_cast<size_t>(b)].bytes;
  return bytes;
}

void EstimateRecorder::finish_run(MemoryByKind& totals) {
  for (size_t i = 0; i < ops.size(); ++i)
    for (const int64_t b : output_blocks_[i])
      if (facts(b).kept) ops[i].outputs_kept += blocks()[static_cast<size_t>(b)].bytes;
  for (const DifferentiatedOp& d : session_.differentiated.differentiated) note_kept_inputs(d);
  go_through_events(totals);
}

void EstimateRecorder::note_kept_inputs(const DifferentiatedOp& d) {
  const BoundOp& op = *bound[d.op].op;
  const GradientProgram program = record_gradient(*op.spec, op.def, op.args.get(), d.wanted, d.present);
  std::set<int64_t> kept;
  for (size_t i = 0; i < program.reads_input.size(); ++i)
    if (program.reads_input[i]) kept.insert(input_blocks_[d.op][i]);
  kept.erase(-1);
  for (const int64_t b : kept) ops[d.op].inputs_kept += blocks()[static_cast<size_t>(b)].bytes;
}

void EstimateRecorder::go_through_events(MemoryByKind& totals) {
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
    for (; op < ops.size() && peak_events_[op] <= static_cast<int64_t>(event); ++op) ops[op].at_peak = alive;
    for (size_t k = 0; k < alive.size(); ++k) totals[k] = std::max(totals[k], alive[k]);
    if (event == changes.size()) break;
    alive[changes[event].second] += changes[event].first;
  }
}

}  // namespace stepnet
