#include "tests/recurrent/unrolled.h"

#include <algorithm>
#include <limits>
#include <set>

#include "core/net.h"
#include "core/passes/gradients.h"
#include "recurrent/builder.h"
#include "recurrent/counters.h"

namespace stepnet::testing {
namespace {

bool is_floating_feed(const Tensor& t) { return t.dtype() == DType::float64 || t.dtype() == DType::float32; }

const Tensor& feed_of(const Feeds& feeds, const std::string& name) {
  const auto it = std::find_if(feeds.begin(), feeds.end(), [&](const auto& f) { return f.first == name; });
  require(it != feeds.end(), "the test feeds no \"{}\"", name);
  return it->second;
}

NetDef step_of(const Cell& cell) { return cell.step.empty() ? cell.step_net : net_of_lines(cell.step); }

std::string given(const std::string& output) { return fmt::format("{}_given", output); }

void feed_all(Workspace& workspace, const CellData& data) {
  for (const auto& [name, value] : data.feeds) workspace.tensor(name) = value.clone();
  for (const auto& [name, value] : data.outside) workspace.tensor(given(name)) = value.clone();
}

Tensor zeros_like(const Tensor& t) { return Tensor::zeros(t.dtype(), t.shape()); }

CellResults run_once(Net& net, const GradientResult& gradients, const Feeds& feeds) {
  const Workspace& workspace = net.workspace();
  const RecurrentCounters before = recurrent_counters();
  const int64_t allocations = allocator({}).counters().allocations;
  RunContext run;
  net.run(run);
  CellResults results;
  results.allocations = allocator({}).counters().allocations - allocations;
  results.copied = recurrent_counters().copied - before.copied;
  results.spread = recurrent_counters().spread - before.spread;
  for (const OperatorDef& op : net.def().op())
    for (const std::string& name : op.output())
      if (const Blob* blob = workspace.find(name); blob && blob->is_tensor() && !blob->empty())
        results.outputs[name] = blob->tensor().clone();
  for (const auto& [name, value] : feeds) {
    if (!is_floating_feed(value)) continue;
    const auto found = gradients.gradients.find(name);
    const bool has = found != gradients.gradients.end() && found->second.defined();
    results.gradients[name] = has ? workspace.fetch(found->second.dense).clone() : zeros_like(value);
  }
  return results;
}

void add_to(Tensor& total, const Tensor& more) {
  require(total.size() == more.size() && total.dtype() == more.dtype(), "{} and {} do not add up", total.str(),
          more.str());
  for (int64_t i = 0; i < total.size(); ++i) {
    if (total.dtype() == DType::float64) {
      total.data<double>()[i] += more.data<double>()[i];
    } else {
      total.data<float>()[i] += more.data<float>()[i];
    }
  }
}

std::string at(const std::string& name, int64_t t) { return fmt::format("{}@{}", name, t); }

// The flat net, its feeds, and where results of the recurrent one are found in it.
class Unrolled {
 public:
  Unrolled(const Cell& cell, const Feeds& feeds, const Feeds& outside)
      : cell_(cell), feeds_(feeds), outside_(outside), sequence_(feed_of(feeds, "X")) {
    flat_feeds_ = feeds;
    net_.set_name("unrolled");
    for (int64_t t = 0; t < steps(); ++t) {
      flat_feeds_.emplace_back(at("x", t), sequence_.rows(t, 1).clone());
      flat_feeds_.emplace_back(at("timestep", t), Tensor::of<int32_t>({1}, {static_cast<int32_t>(t)}));
    }
    for (const CellState& s : cell.states) flat_feeds_.emplace_back(at(s.input, 0), first_state(s));
    for (int64_t t = 0; t < steps(); ++t) add_step(t);
    for (const auto& feed : flat_feeds_) net_.add_external_input(feed.first);
  }

  CellResults run() {
    Feeds flat_outside;
    for (const CellState& s : cell_.states)
      for (int64_t t = 1; t <= steps(); ++t)
        if (const Tensor g = outside_of(s, t); g.defined()) flat_outside.emplace_back(at(s.input, t), g);
    const CellResults flat = run_with_gradients(net_, flat_feeds_, flat_outside);
    CellResults results;
    for (const CellState& s : cell_.states) {
      if (!s.all.empty()) results.outputs[s.all] = rows_of(flat, s);
      if (!s.last.empty()) results.outputs[s.last] = value(flat, s, steps());
    }
    for (const auto& [name, tensor] : feeds_)
      if (is_floating_feed(tensor)) results.gradients[name] = gradient(flat, name, tensor);
    return results;
  }

 private:
  int64_t steps() const { return sequence_.dim(0); }
  int64_t batch() const { return sequence_.dim(1); }

  Tensor first_state(const CellState& s) const {
    const Tensor& initial = feed_of(feeds_, s.initial);
    const int64_t width = initial.dim(initial.rank() - 1);
    if (initial.rank() > 1) return initial.clone().reshaped({1, batch(), width});
    Tensor state = Tensor::empty(initial.dtype(), {1, batch(), width});
    for (int64_t b = 0; b < batch(); ++b) state.row(0).row(b).copy_from(initial);
    return state;
  }

  void add_step(int64_t t) {
    const NetDef step = step_of(cell_);
    std::set<std::string> local = {"x", "timestep"};
    for (const CellState& s : cell_.states) local.insert(s.input);
    for (const OperatorDef& op : step.op()) local.insert(op.output().begin(), op.output().end());
    auto renamed = [&](const std::string& name) { return local.count(name) > 0 ? at(name, t) : name; };
    for (const OperatorDef& op : step.op()) {
      OperatorDef& copy = *net_.add_op();
      copy = op;
      for (std::string& name : *copy.mutable_input()) name = renamed(name);
      for (std::string& name : *copy.mutable_output()) name = renamed(name);
    }
    for (const CellState& s : cell_.states) *net_.add_op() = make_op("Copy", {renamed(s.output)}, {at(s.input, t + 1)});
  }

  // What arrives from outside at the state after `t` steps.
  Tensor outside_of(const CellState& s, int64_t t) const {
    Tensor sum;
    for (const auto& [name, g] : outside_) {
      if (name != s.all && !(name == s.last && t == steps())) continue;
      if (name == s.all && t == 0) continue;
      const Tensor row = name == s.all ? g.rows(t - 1, 1).clone() : g.clone();
      if (sum.defined()) {
        add_to(sum, row);
      } else {
        sum = row;
      }
    }
    return sum;
  }

  Tensor value(const CellResults& flat, const CellState& s, int64_t t) const {
    return t == 0 ? first_state(s) : flat.outputs.at(at(s.input, t));
  }

  Tensor rows_of(const CellResults& flat, const CellState& s) const {
    const Tensor first = first_state(s);
    Tensor all = Tensor::empty(first.dtype(), first.shape().with(0, steps()));
    for (int64_t t = 0; t < steps(); ++t) all.rows(t, 1).copy_from(value(flat, s, t + 1));
    return all;
  }

  Tensor gradient(const CellResults& flat, const std::string& name, const Tensor& feed) const {
    Tensor total = flat.gradients.at(name).clone();
    if (name == "X")
      for (int64_t t = 0; t < steps(); ++t) {
        Tensor row = total.rows(t, 1);
        add_to(row, flat.gradients.at(at("x", t)));
      }
    for (const CellState& s : cell_.states) {
      if (s.initial != name) continue;
      Tensor first = flat.gradients.at(at(s.input, 0)).clone();
      if (const Tensor g = outside_of(s, 0); g.defined()) add_to(first, g);
      if (feed.rank() > 1) {
        add_to(total, first);
      } else {
        for (int64_t b = 0; b < batch(); ++b) add_to(total, first.row(0).row(b));
      }
    }
    return total;
  }

  const Cell& cell_;
  const Feeds &feeds_, &outside_;
  const Tensor& sequence_;
  Feeds flat_feeds_;
  NetDef net_;
};

}  // namespace

Tensor poisoned(const Tensor& like) {
  Tensor t = like.clone();
  if (t.dtype() == DType::float64) std::ranges::fill(t.span<double>(), std::numeric_limits<double>::quiet_NaN());
  if (t.dtype() == DType::float32) std::ranges::fill(t.span<float>(), std::numeric_limits<float>::quiet_NaN());
  return t;
}

NetDef recurrent_net(const Cell& cell, const Feeds& feeds) {
  NetDef net;
  net.set_name("outer");
  for (const auto& feed : feeds) net.add_external_input(feed.first);
  OperatorDef& op = *net.add_op();
  op = make_op("RecurrentNetwork", {"X"}, {});
  op.set_name("rnn");
  RecurrentDef& def = *op.MutableExtension(recurrent);
  *def.mutable_step_net() = step_of(cell);
  def.mutable_step_net()->set_name("step");
  def.add_sequence()->set_outer("X");
  def.mutable_sequence(0)->set_inner("x");
  for (const CellState& s : cell.states) {
    StateLink& link = *def.add_state();
    link.set_input(s.input);
    link.set_output(s.output);
    link.set_initial(s.initial);
    if (std::find(op.input().begin(), op.input().end(), s.initial) == op.input().end()) op.add_input(s.initial);
    if (!s.all.empty()) link.set_all(s.all), op.add_output(s.all);
    if (!s.last.empty()) link.set_last(s.last), op.add_output(s.last);
  }
  for (const std::string& name : cell.recompute) def.add_recompute(name);
  if (!cell.disabled_passes.empty()) *op.add_arg() = make_arg("disabled_passes", cell.disabled_passes);
  return net;
}

NetDef expanded_net(const Cell& cell, const Feeds& feeds) {
  NetDef net = recurrent_net(cell, feeds);
  expand_recurrent(net);
  return net;
}

Argument& arg_of(NetDef& net, const std::string& name) {
  for (Argument& arg : *net.mutable_op(0)->mutable_arg())
    if (arg.name() == name) return arg;
  throw Error(fmt::format("the test's net has no argument \"{}\"", name));
}

void remove_arg(NetDef& net, const std::string& name) {
  auto& args = *net.mutable_op(0)->mutable_arg();
  for (int i = args.size() - 1; i >= 0; --i)
    if (args[i].name() == name) args.DeleteSubrange(i, 1);
}

std::vector<CellResults> run_in_turn(const NetDef& forward, const std::vector<CellData>& data) {
  NetDef net = forward;
  GradientRequest request;
  for (const auto& [output, g] : data.at(0).outside) {
    request.targets.emplace_back(output, given(output));
    net.add_external_input(given(output));
  }
  for (const auto& [name, value] : data.at(0).feeds)
    if (is_floating_feed(value)) request.wanted.insert(name);
  const GradientResult gradients = request.targets.empty() ? GradientResult() : add_gradient_operators(net, request);
  Workspace workspace;
  feed_all(workspace, data.at(0));
  Net bound(net, workspace);
  std::vector<CellResults> results;
  for (const CellData& d : data) {
    feed_all(workspace, d);
    results.push_back(run_once(bound, gradients, d.feeds));
  }
  return results;
}

CellResults run_with_gradients(const NetDef& forward, const Feeds& feeds, const Feeds& outside) {
  CellData poison = {feeds, outside};
  for (Feeds* all : {&poison.feeds, &poison.outside})
    for (auto& [name, value] : *all) value = poisoned(value);
  return run_in_turn(forward, {poison, {feeds, outside}})[1];
}

CellResults run_recurrent(const Cell& cell, const Feeds& feeds, const Feeds& outside) {
  return run_with_gradients(expanded_net(cell, feeds), feeds, outside);
}

CellResults run_unrolled(const Cell& cell, const Feeds& feeds, const Feeds& outside) {
  return Unrolled(cell, feeds, outside).run();
}

Feeds outside_gradients(const Cell& cell, const Feeds& feeds) {
  Feeds outside;
  const Tensor& sequence = feed_of(feeds, "X");
  auto add = [&](const std::string& name, const CellState& s, int64_t rows) {
    const auto& some = cell.differentiated;
    if (name.empty() || (!some.empty() && std::find(some.begin(), some.end(), name) == some.end())) return;
    const Tensor& initial = feed_of(feeds, s.initial);
    const Shape shape{rows, sequence.dim(1), initial.dim(initial.rank() - 1)};
    const uint64_t seed = 500 + outside.size();
    outside.emplace_back(name,
                         sequence.dtype() == DType::float64 ? normal<double>(shape, seed) : normal<float>(shape, seed));
  };
  for (const CellState& s : cell.states) {
    add(s.all, s, sequence.dim(0));
    add(s.last, s, 1);
  }
  return outside;
}

std::string compare_results(const CellResults& a, const CellResults& b, double tol) {
  std::string text;
  auto compare_all = [&](const auto& left, const auto& right, const std::string& what) {
    for (const auto& [name, expected] : right) {
      const auto it = left.find(name);
      const std::string wrong = it == left.end() ? "is missing" : compare(it->second, expected, tol);
      if (!wrong.empty()) text += fmt::format("{}{}: {}\n", what, name, wrong);
    }
  };
  compare_all(a.outputs, b.outputs, "");
  compare_all(a.gradients, b.gradients, "gradient of ");
  return text;
}

std::string check_against_unrolled(const Cell& cell, const Feeds& feeds, double tol) {
  const Feeds outside = outside_gradients(cell, feeds);
  const CellResults recurrent = run_recurrent(cell, feeds, outside);
  const CellResults unrolled = run_unrolled(cell, feeds, outside);
  std::string text = compare_results(recurrent, unrolled, tol);
  if (recurrent.copied != 0)
    text += fmt::format("{} bytes of states or state gradients were copied\n", recurrent.copied);
  return text;
}

}  // namespace stepnet::testing
