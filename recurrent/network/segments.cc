#include "recurrent/network/segments.h"

#include <algorithm>
#include <utility>

#include "core/tensor/dry_device.h"
#include "recurrent/network/kept.h"
#include "recurrent/network/rebuild.h"
#include "recurrent/network/segment_budget.h"
#include "recurrent/network/states.h"
#include "recurrent/step/ir.h"

namespace stepnet {
namespace {

using Kind = SegmentAction::Kind;

std::map<std::string, TensorType> types_of(const std::map<std::string, Tensor>& tensors) {
  std::map<std::string, TensorType> types;
  for (const auto& [name, tensor] : tensors) types[name] = TensorType::of(tensor.dtype(), tensor.shape());
  return types;
}

std::map<std::string, Tensor> made_of(const std::map<std::string, TensorType>& types, Device device) {
  std::map<std::string, Tensor> made;
  for (const auto& [name, type] : types) made[name] = Tensor::empty(type.dtype, type.shape, device);
  return made;
}

int64_t bytes_of(const std::map<std::string, Tensor>& tensors) {
  std::vector<Lifetime> values;
  for (const auto& [name, tensor] : tensors) values.push_back({static_cast<int64_t>(tensor.bytes()), 0, 0});
  return bytes_apart(values);
}

}  // namespace

StepRange Segments::range(int64_t segment) const {
  const int64_t first = (reverse ? count() - 1 - segment : segment) * steps;
  return {first, std::min(steps, total - first)};
}

Tensor Segments::rows_before(const SegmentValues& values, const std::string& state, int64_t segment) const {
  return values.states.at(state).rows(reverse ? range(segment).count : 0, states.at(state).lead);
}

Tensor Segments::rows_after(const SegmentValues& values, const std::string& state, int64_t segment) const {
  return values.states.at(state).rows(reverse ? 0 : range(segment).count, states.at(state).lead);
}

int64_t Segments::kept_bytes() const {
  int64_t bytes = 0;
  for (const auto& [name, slab] : work.slabs) bytes += static_cast<int64_t>(slab.bytes());
  for (const auto& [segment, values] : held)
    for (const auto& [name, slab] : values.slabs) bytes += static_cast<int64_t>(slab.bytes());
  return bytes;
}

void Segments::plan_for(int64_t room) {
  slab_types_ = types_of(work.slabs);
  state_types_ = types_of(work.states);
  SegmentCosts costs{count(), 0, bytes_of(work.slabs) + bytes_of(work.states)};
  std::map<std::string, Tensor> rows;
  for (const auto& [name, state] : states) rows[name] = rows_before(work, name, 0);
  costs.checkpoint = bytes_of(rows);
  plan = rebuilds ? plan_rebuilding(count()) : plan_segments(costs, room < 0 ? full_room(costs) : room);
}

// What is run again starts from a copy of the first states: who gave them may write over them meanwhile.
void Segments::start() {
  make_room();
  held.clear();
  packed.clear();
  if (!rebuilds) checkpoints.clear();
  next = 0;
  ready_ = 0;
  left_ = -1;
  if (plan.reruns) save(0);
}

// A tensor of an earlier run is taken again.
void Segments::save(int64_t segment) {
  for (const auto& [name, state] : states) {
    Tensor& saved = checkpoints[segment][name];
    const Tensor rows = rows_before(work, name, segment);
    if (saved.storage() && saved.dtype() == rows.dtype() && saved.shape() == rows.shape())
      saved.copy_from(rows);
    else
      saved = rows.clone();
  }
}

void Segments::make_room() {
  if (work.slabs.empty()) work.slabs = made_of(slab_types_, device);
  if (work.states.empty()) work.states = made_of(state_types_, device);
}

void Segments::bind(StepProgram& program, const std::vector<Link>& links, int64_t segment) const {
  const int64_t origin = range(segment).first;
  for (const Link& link : links) {
    const auto state = states.find(link.external);
    if (state == states.end()) continue;
    LinkTarget target{work.states.at(link.external), link.offset, link.window};
    target.segment_of = state->second.rows;
    target.origin = origin;
    program.rebind_link(link.internal, target);
  }
  for (const auto& [name, slab] : work.slabs) program.rebind_slab(name, slab, origin);
}

// The segment's first states: what the one before it has left.
void Segments::enter(int64_t segment) {
  if (ready_ == segment) return;
  require(left_ == segment - 1, "segment {} of a recurrent network cannot follow segment {}", segment, left_);
  for (const auto& [name, state] : states) {
    Tensor left = rows_after(work, name, left_);
    if (range(left_).count < state.lead) left = left.clone();  // the two overlap
    rows_before(work, name, segment).copy_from(left);
  }
  ready_ = segment;
}

void Segments::load(int64_t segment) {
  if (ready_ == segment) return;
  make_room();
  const auto checkpoint = checkpoints.find(segment);
  for (const auto& [name, state] : states) {
    Tensor to = rows_before(work, name, segment);
    to.copy_from(checkpoint != checkpoints.end() ? checkpoint->second.at(name)
                                                 : rows_after(held.at(segment - 1), name, segment - 1));
  }
  ready_ = segment;
}

// A packer lets go of the values before the next segment gets room, so what that starts from is copied before.
void Segments::stash(int64_t segment, TensorPacker* packer) {
  SegmentValues values = std::move(work);
  work = {};
  std::map<std::string, Tensor> left;
  for (const auto& [name, state] : states) {
    const Tensor rows = rows_after(values, name, segment);
    left[name] = packer ? rows.clone() : rows;
  }
  if (packer) {
    std::vector<Tensor> tensors;
    for (auto* all : {&values.slabs, &values.states})
      for (auto& [name, tensor] : *all) tensors.push_back(std::move(tensor));
    packed[segment] = packer->pack(std::move(tensors));
  } else {
    held[segment] = std::move(values);
  }
  make_room();
  for (const auto& [name, rows] : left) rows_before(work, name, segment + 1).copy_from(rows);
  ready_ = segment + 1;
}

// A plan may run segments a thousand times as often as there are segments, and a dry run of each is like the others.
void Segments::run_segment(StepProgram& program, RunContext& run, int64_t segment, bool again) {
  DryScope* dry = DryScope::now();
  if (again) dry_run_ = {};
  if (!dry || again || segment == 0 || range(segment).count != steps || packs || !program.steps_are_alike())
    return program.run_range(run, {}, range(segment), again);
  const int64_t live = dry->counters().live;
  if (live <= dry_run_.live) {
    dry->flops += dry_run_.flops;
    dry->product_flops += dry_run_.product_flops;
    return;
  }
  dry_run_ = {live, -dry->flops, -dry->product_flops};
  program.run_range(run, {}, range(segment), again);
  dry_run_.flops += dry->flops;
  dry_run_.product_flops += dry->product_flops;
}

void Segments::act(const SegmentAction& action, StepProgram& program, const std::vector<Link>& links, RunContext& run,
                   bool again) {
  const int64_t segment = action.segment;
  switch (action.kind) {
    case Kind::load:
      return load(segment);
    case Kind::save:
      enter(segment);
      return save(segment);
    case Kind::drop:
      checkpoints.erase(segment);
      return;
    case Kind::stash:
      program.let_go_of_segment();
      return stash(segment, packs ? run.packer : nullptr);
    case Kind::run:
      enter(segment);
      bind(program, links, segment);
      run_segment(program, run, segment, again);
      ready_ = -1;
      left_ = segment;
      return;
    case Kind::back:
      break;
  }
}

SegmentValues Segments::take(int64_t segment, bool keep) {
  if (const auto it = packed.find(segment); it != packed.end()) {
    std::vector<Tensor> tensors = it->second->unpack();
    SegmentValues values;
    size_t i = 0;
    for (const auto& [name, type] : slab_types_) values.slabs[name] = std::move(tensors[i++]);
    for (const auto& [name, type] : state_types_) values.states[name] = std::move(tensors[i++]);
    if (!keep) packed.erase(it);
    return values;
  }
  if (const auto it = held.find(segment); it != held.end()) {
    SegmentValues values = it->second;
    if (!keep) held.erase(it);
    return values;
  }
  require(left_ == segment, "what segment {} of a recurrent network kept is not there any more", segment);
  SegmentValues values = work;
  // Only where segments run again is there another one to come to work.
  if (!keep && !plan.reruns) work = {};
  return values;
}

void Segments::add_tensors(std::vector<Tensor*>& tensors) {
  const auto add = [&](std::map<std::string, Tensor>& all) {
    for (auto& [name, tensor] : all) tensors.push_back(&tensor);
  };
  const auto add_values = [&](SegmentValues& values) {
    add(values.slabs);
    add(values.states);
  };
  add_values(work);
  for (auto& [segment, values] : held) add_values(values);
  for (auto& [segment, rows] : checkpoints) add(rows);
}

void Segments::finish(bool keep) {
  if (keep) {
    next = plan.reruns ? 0 : plan.forward;
    if (plan.reruns) ready_ = left_ = -1;
    return;
  }
  next = plan.actions.size();
  if (rebuilds) return;  // a later run takes the same tensors
  held.clear();
  packed.clear();
  checkpoints.clear();
  work = {};
}

namespace {

// How many there are where a packer takes them.
constexpr int64_t kPackedSegments = 16;

int64_t round_up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

// Timesteps of a segment; 0 for one piece.
int64_t segment_steps(const RecurrentScratch& scratch, const BlobCall& call, int64_t steps, int64_t batch) {
  if (!scratch.forward_spec.has_backward || scratch.is_fetched || batch == 0) return 0;
  int64_t wanted = std::min(scratch.choice.steps, steps);
  if (wanted == 0 && call.run.packer) wanted = round_up(steps, kPackedSegments) / kPackedSegments;
  if (wanted == 0) return 0;
  const int64_t block = deferred_block(batch);
  const int64_t size = std::max(round_up(wanted, block), least_segment(steps, block));
  return size < steps ? size : 0;
}

// The same of a network that makes states again. Gates of half types are rounded when they are kept.
int64_t rebuilt_steps(const RecurrentScratch& scratch, const BlobCall& call, int64_t steps, int64_t batch) {
  if (scratch.rebuilt.empty() || scratch.is_fetched || call.run.packer || batch == 0) return 0;
  if (scratch.device.kind != DeviceKind::cpu) return 0;
  const auto is_half_tensor = [](const Blob* blob) {
    return blob && blob->is_tensor() && is_half(std::as_const(*blob).tensor().dtype());
  };
  if (std::ranges::any_of(call.in, is_half_tensor)) return 0;
  return rebuilt_segment(steps, deferred_block(batch));
}

}  // namespace

std::map<std::string, LinkTarget> forward_links(const RecurrentScratch& scratch, const Workspace& workspace) {
  std::map<std::string, LinkTarget> targets;
  const Segments& segments = scratch.segments;
  for (const Link& link : scratch.forward_spec.links) {
    LinkTarget& target = targets[link.internal];
    target.offset = link.offset;
    target.window = link.window;
    target.read_only = !is_state(scratch.forward_spec, link.external);
    if (const auto turn = scratch.in_turn.find(link.external); turn != scratch.in_turn.end()) {
      target.whole = turn->second.latest;
      target.rows = turn->second.rows;
      target.kept = turn->second.kept;
    } else if (segments.used && segments.states.count(link.external) > 0) {
      target.whole = segments.work.states.at(link.external);
      target.segment_of = segments.states.at(link.external).rows;
    } else {
      target.whole = linked_tensor(workspace, "link_external", link.internal, link.external);
    }
  }
  return targets;
}

namespace {

// A budget's choice holds for the same types of inputs.
void choose(RecurrentScratch& scratch, const BlobCall& call) {
  const RecurrentSpec& spec = scratch.forward_spec;
  if (!spec.memory_budget || !spec.has_backward) {
    scratch.choice = {spec.segment_steps, spec.segment_room};
    return;
  }
  ShapeKey key;
  for (const Blob* blob : call.in)
    if (blob && blob->is_tensor()) key.emplace_back(blob->tensor().dtype(), blob->tensor().shape());
  if (!key.empty() && key == scratch.choice_key) return;
  scratch.choice = segments_within(*spec.memory_budget, call);
  scratch.choice_key = std::move(key);
}

}  // namespace

bool choose_segments(RecurrentScratch& scratch, const BlobCall& call, int64_t steps, int64_t batch) {
  choose(scratch, call);
  Segments& segments = scratch.segments;
  int64_t size = segment_steps(scratch, call, steps, batch);
  const bool packs = size > 0 && call.run.packer;
  const int64_t room = packs ? -1 : scratch.choice.room;  // a packer has room for all
  const bool in_one = size == 0;
  if (in_one) size = rebuilt_steps(scratch, call, steps, batch);
  const bool rebuilds = in_one && size > 0;
  const bool same =
      segments.steps == size && segments.total == steps && segments.room == room && segments.rebuilds == rebuilds;
  if (segments.used == (size > 0) && (size == 0 || same)) {
    segments.packs = packs;
    return true;
  }
  segments = {};
  segments.used = size > 0;
  if (!segments.used) return false;
  segments.steps = size;
  segments.total = steps;
  segments.room = room;
  segments.device = scratch.device;
  segments.reverse = scratch.forward_spec.reverse;
  segments.packs = packs;
  segments.rebuilds = rebuilds;
  for (const std::string& name :
       rebuilds ? scratch.rebuilt : states_in_segments(scratch.forward_spec, call.def, call.net))
    segments.states[name] = {};
  return false;
}

void plan_segments(RecurrentScratch& scratch) {
  Segments& segments = scratch.segments;
  if (!segments.used) return;
  require(segments.steps % scratch.forward->segment_unit() == 0,
          "segments of {} timesteps do not hold whole blocks of {}", segments.steps, scratch.forward->segment_unit());
  segments.work.slabs = scratch.forward->own_slabs();
  segments.views.clear();
  for (const auto& [name, type] : scratch.types)
    if (const std::string slab = scratch.forward->own_slab_of(name); !slab.empty())
      segments.views[name] = {slab, scratch.forward->slab(name).shape()};
  segments.plan_for(segments.room);
}

void run_segments_forward(RecurrentScratch& scratch, RunContext& run) {
  Segments& segments = scratch.segments;
  segments.start();
  for (; segments.next < segments.plan.forward; ++segments.next)
    segments.act(segments.plan.actions[segments.next], *scratch.forward, scratch.forward_spec.links, run,
                 segments.next == 1);
}

namespace {

// The forward program runs again, perhaps after others have used the workspace.
void refresh_forward(RecurrentScratch& scratch, const Workspace& workspace) {
  require(scratch.forward && scratch.forward->rebind_externals(),
          "what the step net reads has another shape or type than in the forward run, and segments have to run again");
  for (const auto& [name, link] : forward_links(scratch, workspace))
    if (link.segment_of == 0) scratch.forward->rebind_link(name, link);
}

}  // namespace

void run_segments_backward(RecurrentScratch& scratch, Workspace& workspace, RunContext& run, const RunBack& back) {
  Segments& segments = scratch.segments;
  const std::vector<SegmentAction>& actions = segments.plan.actions;
  const bool keep = run.keep_values;
  bool refreshed = false, first = true;
  if (segments.rebuilds) prepare_rebuilder(scratch, workspace);
  StepProgram* const again = segments.rebuilds ? scratch.rebuilder.get() : scratch.forward.get();
  const std::vector<Link>& links = segments.rebuilds ? scratch.rebuilder_links : scratch.forward_spec.links;
  // Should one of them fail, none of the rest can run.
  for (size_t i = std::exchange(segments.next, actions.size()); i < actions.size(); ++i) {
    const SegmentAction& action = actions[i];
    if (action.kind != SegmentAction::Kind::back) {
      if (!refreshed && !segments.rebuilds) refresh_forward(scratch, workspace);
      segments.act(action, *again, links, run, !refreshed);
      refreshed = true;
      continue;
    }
    const SegmentValues values = segments.take(action.segment, keep);
    if (again) again->let_go_of_segment();
    back(values, segments.range(action.segment), std::exchange(first, false));
    scratch.backward->let_go_of_segment();
  }
  segments.finish(keep);
}

}  // namespace stepnet
