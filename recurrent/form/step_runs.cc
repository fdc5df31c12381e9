// The timesteps of a network in full form, as runs of its step net as an ordinary net.
//
// Links become copies of rows: nothing here is fast, and all blobs of a timestep can be looked at.
#include <algorithm>
#include <cstring>
#include <ostream>

#include "core/net/dataflow.h"
#include "core/operator/nets_inside.h"
#include "core/passes/network_rules.h"
#include "recurrent/form/spec.h"
#include "stepnet/bound_op.h"
#include "stepnet/net.h"
#include "stepnet/operator.h"

namespace stepnet {
namespace {

using Values = std::map<std::string, Tensor>;

// Rows [1, ...] of one tensor each, by number.
using Rows = std::map<int64_t, Tensor>;

Rows rows_of(const Tensor& whole) {
  Rows rows;
  for (int64_t i = 0; i < whole.dim(0); ++i) rows[i] = whole.rows(i, 1).clone();
  return rows;
}

// [D] and [B, D] are one row for all samples, or of each.
Rows initial_rows(const Tensor& initial, int64_t batch) {
  if (initial.rank() >= 3) return rows_of(initial);
  if (initial.rank() == 2) return {{0, initial.reshaped(initial.shape().prepend(1)).clone()}};
  require(initial.rank() == 1, "an initial state has shape [D], [B, D] or [L, B, ...], not {}", initial.shape());
  Tensor row = Tensor::empty(initial.dtype(), Shape{1, batch, initial.dim(0)});
  for (int64_t b = 0; b < batch && initial.bytes() > 0; ++b)
    std::memcpy(row.raw() + b * initial.bytes(), initial.raw(), initial.bytes());
  return {{0, std::move(row)}};
}

Tensor stacked(const std::vector<const Tensor*>& rows) {
  const Shape shape = rows[0]->shape();
  Tensor whole = Tensor::empty(rows[0]->dtype(), shape.from(1).prepend(static_cast<int64_t>(rows.size())));
  for (size_t i = 0; i < rows.size(); ++i)
    if (rows[i]->bytes() > 0) std::memcpy(whole.raw() + i * rows[i]->bytes(), rows[i]->raw(), rows[i]->bytes());
  return whole;
}

class Timesteps {
 public:
  Timesteps(const OperatorDef& op, const Values& values)
      : op_(op), values_(values), bound_(bind_op(op, "", 0)), spec_(parsed()), net_(spec_.step_net) {
    use_cpu(net_);
    const Tensor& sequence = values_.at(op_.input(0));
    require(sequence.rank() >= 2, "the sequence \"{}\" is {}, not [T, B, ...]", op_.input(0), sequence.shape());
    steps_ = sequence.dim(0);
    batch_ = sequence.dim(1);
    for (const std::string& name : op_.input())
      if (const auto value = values_.find(name); value != values_.end() && is_linked(name))
        rows_[name] = rows_of(value->second);
    for (const StateSpec& state : spec_.states) start(state);
  }

  std::vector<InnerRun> run(uint64_t seed) {
    std::vector<InnerRun> runs;
    for (int64_t i = 0; i < steps_; ++i) {
      const int64_t t = spec_.reverse ? steps_ - 1 - i : i;
      InnerRun step{"step net", fmt::format("timestep {}", t), net_, feeds_of(t), results()};
      Workspace workspace;
      for (const auto& [name, value] : step.feeds) workspace.tensor(name) = value.clone();
      std::ostream nowhere(nullptr);  // what it prints was printed by the operator
      RunContext context;
      context.seed = seed;
      context.out = &nowhere;
      run_net_once(net_, workspace, context);
      keep_rows(t, workspace);
      if (i == 0 || i + 1 == steps_) runs.push_back(std::move(step));
    }
    return runs;
  }

 private:
  RecurrentSpec parsed() const {
    return parse_recurrent(*static_cast<const RecurrentArgs*>(bound_.args.get()), op_, op_.input_size());
  }

  bool is_linked(const std::string& external) const {
    return std::ranges::any_of(spec_.links, [&](const Link& link) { return link.external == external; });
  }

  // Reverse networks start behind the last timestep.
  void start(const StateSpec& state) {
    if (state.initial < 0) {
      std::vector<int64_t> sizes = {1, batch_};
      sizes.insert(sizes.end(), state.size.begin(), state.size.end());
      rows_[state.name][spec_.reverse ? steps_ : 0] = Tensor::zeros(DType::float64, Shape(sizes));
      return;
    }
    for (auto& [i, row] : initial_rows(values_.at(op_.input(state.initial)), batch_))
      rows_[state.name][spec_.reverse ? steps_ + i : i] = row;
  }

  Values feeds_of(int64_t t) {
    Values feeds;
    for (const std::string& name : read_from_outside(net_)) {
      if (name.empty()) continue;
      const auto link = std::ranges::find(spec_.links, name, &Link::internal);
      if (link != spec_.links.end())
        feeds[name] = window(*link, t);
      else if (name == spec_.timestep)
        feeds[name] = Tensor::of<int32_t>({1}, {static_cast<int32_t>(t)});
      else if (const auto value = values_.find(name); value != values_.end())
        feeds[name] = value->second;
      else
        fail("the step net reads \"{}\", which is no link and no input of the operator", name);
    }
    return feeds;
  }

  Tensor window(const Link& link, int64_t t) const {
    const auto rows = rows_.find(link.external);
    require(rows != rows_.end(), "\"{}\" is linked to \"{}\", which is no state and no sequence", link.internal,
            link.external);
    std::vector<const Tensor*> parts;
    for (int64_t i = 0; i < link.window; ++i) {
      const auto row = rows->second.find(t + link.offset + i);
      require(row != rows->second.end(), "\"{}\" reads row {} of \"{}\" before it is written", link.internal,
              t + link.offset + i, link.external);
      parts.push_back(&row->second);
    }
    return stacked(parts);
  }

  std::set<std::string> results() const {
    std::set<std::string> names;
    const std::set<std::string> written = written_names(net_);
    for (const Link& link : spec_.links)
      if (written.count(link.internal) > 0) names.insert(link.internal);
    for (const StepOutput& output : spec_.outputs) names.insert(output.internal);
    return names;
  }

  void keep_rows(int64_t t, const Workspace& workspace) {
    const std::set<std::string> written = written_names(net_);
    for (const Link& link : spec_.links) {
      if (written.count(link.internal) == 0) continue;
      const Tensor& value = workspace.fetch(link.internal);
      for (int64_t i = 0; i < link.window; ++i) rows_[link.external][t + link.offset + i] = value.rows(i, 1).clone();
    }
  }

  const OperatorDef& op_;
  const Values& values_;
  BoundOp bound_;
  RecurrentSpec spec_;
  NetDef net_;
  int64_t steps_ = 0, batch_ = 0;
  std::map<std::string, Rows> rows_;  // of states and sequences
};

std::vector<InnerRun> timesteps(const OperatorDef& op, const Values& values, uint64_t seed) {
  return Timesteps(op, values).run(seed);
}

REGISTER(recurrent_step_runs) {
  return entry([] { add_inner_run_rule(kRecurrentNetwork, timesteps); });
}

}  // namespace
}  // namespace stepnet
