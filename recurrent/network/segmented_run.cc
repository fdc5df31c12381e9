#include "recurrent/network/segmented_run.h"
#include "recurrent/step/block_size.h"

#include <algorithm>
#include <utility>

#include "core/operator/keep_values.h"
#include "recurrent/network/segment_budget.h"
#include "recurrent/network/states.h"

namespace stepnet {
namespace {

// More of them make a plan slow to find and save next to nothing.
constexpr int64_t kMostSegments = 128;
// How many there are where a packer takes them.
constexpr int64_t kPackedSegments = 16;

int64_t round_up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

// Timesteps of a segment; 0 for one piece.
int64_t segment_steps(const RecurrentScratch& scratch, const BlobCall& call, int64_t steps, int64_t batch) {
  if (!scratch.forward_spec.has_backward || scratch.is_fetched || batch == 0) return 0;
  int64_t wanted = std::min(scratch.choice.steps, steps);
  if (wanted == 0 && call.run.packer) wanted = round_up(steps, kPackedSegments) / kPackedSegments;
  if (wanted == 0) return 0;
  const int64_t least = round_up(steps, kMostSegments) / kMostSegments;
  const int64_t size = round_up(std::max(wanted, least), deferred_block(batch));
  return size < steps ? size : 0;
}

}  // namespace

std::map<std::string, LinkTarget> forward_links(const RecurrentScratch& scratch, const Workspace& workspace) {
  std::map<std::string, LinkTarget> targets;
  const Segments& segments = scratch.segments;
  const std::set<std::string> states = state_names(scratch.forward_spec);
  for (const Link& link : scratch.forward_spec.links) {
    LinkTarget& target = targets[link.internal];
    target.offset = link.offset;
    target.window = link.window;
    target.read_only = states.count(link.external) == 0;
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
  const int64_t size = segment_steps(scratch, call, steps, batch);
  const bool packs = size > 0 && call.run.packer;
  const int64_t room = packs ? -1 : scratch.choice.room;  // a packer has room for all
  const bool same = segments.steps == size && segments.total == steps && segments.room == room;
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
  for (const std::string& name : states_in_segments(scratch.forward_spec, call.def, call.net))
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

void run_segments_backward(RecurrentScratch& scratch, const Workspace& workspace, RunContext& run,
                           const RunBack& back) {
  Segments& segments = scratch.segments;
  const std::vector<SegmentAction>& actions = segments.plan.actions;
  const bool keep = KeepValues::now();
  bool refreshed = false, first = true;
  // Should one of them fail, none of the rest can run.
  for (size_t i = std::exchange(segments.next, actions.size()); i < actions.size(); ++i) {
    const SegmentAction& action = actions[i];
    if (action.kind != SegmentAction::Kind::back) {
      if (!refreshed) refresh_forward(scratch, workspace);
      segments.act(action, *scratch.forward, scratch.forward_spec.links, run, !refreshed);
      refreshed = true;
      continue;
    }
    const SegmentValues values = segments.take(action.segment, keep);
    if (scratch.forward) scratch.forward->let_go_of_segment();
    back(values, segments.range(action.segment), std::exchange(first, false));
    scratch.backward->let_go_of_segment();
  }
  segments.finish(keep);
}

}  // namespace stepnet
