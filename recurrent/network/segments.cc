#include "recurrent/network/segments.h"

#include <algorithm>

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
  plan = plan_segments(costs, room < 0 ? full_room(costs) : room);
}

// What is run again starts from a copy of the first states: who gave them may write over them meanwhile.
void Segments::start() {
  make_room();
  held.clear();
  packed.clear();
  checkpoints.clear();
  next = 0;
  ready_ = 0;
  left_ = -1;
  if (!plan.reruns) return;
  for (const auto& [name, state] : states) checkpoints[0][name] = rows_before(work, name, 0).clone();
}

void Segments::make_room() {
  if (work.slabs.empty()) work.slabs = made_of(slab_types_, device);
  if (work.states.empty()) work.states = made_of(state_types_, device);
}

void Segments::bind(StepProgram& forward, const std::vector<Link>& links, int64_t segment) const {
  const int64_t origin = range(segment).first;
  for (const Link& link : links) {
    const auto state = states.find(link.external);
    if (state == states.end()) continue;
    LinkTarget target{work.states.at(link.external), link.offset, link.window};
    target.segment_of = state->second.rows;
    target.origin = origin;
    forward.rebind_link(link.internal, target);
  }
  for (const auto& [name, slab] : work.slabs) forward.rebind_slab(name, slab, origin);
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

void Segments::act(const SegmentAction& action, StepProgram& forward, const std::vector<Link>& links, RunContext& run,
                   bool again) {
  const int64_t segment = action.segment;
  switch (action.kind) {
    case Kind::load:
      return load(segment);
    case Kind::save:
      enter(segment);
      for (const auto& [name, state] : states) checkpoints[segment][name] = rows_before(work, name, segment).clone();
      return;
    case Kind::drop:
      checkpoints.erase(segment);
      return;
    case Kind::stash:
      forward.let_go_of_segment();
      return stash(segment, packs ? run.packer : nullptr);
    case Kind::run:
      enter(segment);
      bind(forward, links, segment);
      forward.run_range(run, {}, range(segment), again);
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
  held.clear();
  packed.clear();
  checkpoints.clear();
  work = {};
}

}  // namespace stepnet
