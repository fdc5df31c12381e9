#include "tests/recurrent/unrolled.h"

#include <algorithm>
#include <functional>
#include <set>

#include "recurrent/form/short_form.h"
#include "recurrent/step/counters.h"
#include "stepnet/gradients.h"
#include "stepnet/net.h"
#include "stepnet/tensor.h"

namespace stepnet::testing {
namespace {

bool is_floating_feed(const Tensor& t) { return t.dtype() == DType::float64 || t.dtype() == DType::float32; }

const Tensor& feed_of(const Feeds& feeds, const std::string& name) {
  const auto it = std::find_if(feeds.begin(), feeds.end(), [&](const auto& f) { return f.first == name; });
  require(it != feeds.end(), "the test feeds no \"{}\"", name);
  return it->second;
}

std::string given(const std::string& output) { return fmt::format("{}_given", output); }

// On a GPU always to the same places, so that graphs which were captured are replayed.
void feed(Workspace& workspace, const std::string& name, const Tensor& value) {
  Tensor& blob = workspace.tensor(name);
  if (test_device() == Device{}) blob = Tensor();
  blob.resize(value.dtype(), value.shape(), test_device());
  blob.copy_from(value);
}

void feed_all(Workspace& workspace, const CellData& data) {
  for (const auto& [name, value] : data.feeds) feed(workspace, name, value);
  for (const auto& [name, value] : data.outside) feed(workspace, given(name), value);
}

Tensor zeros_like(const Tensor& t) { return Tensor::zeros(t.dtype(), t.shape()); }

CellResults run_once(Net& net, const GradientResult& gradients, const Feeds& feeds, RunContext run) {
  const Workspace& workspace = net.workspace();
  const RecurrentCounters before = recurrent_counters();
  const int64_t allocations = allocator({}).counters().allocations;
  net.run(run);
  CellResults results;
  results.allocations = allocator({}).counters().allocations - allocations;
  results.copied = recurrent_counters().copied - before.copied;
  results.spread = recurrent_counters().spread - before.spread;
  for (const OperatorDef& op : net.def().op())
    for (const std::string& name : op.output())
      if (const Blob* blob = workspace.find(name); blob && blob->is_tensor() && !blob->empty())
        results.outputs[name] = copied_to(blob->tensor(), {});
  for (const auto& [name, value] : feeds) {
    if (!is_floating_feed(value)) continue;
    const auto found = gradients.gradients.find(name);
    const bool has = found != gradients.gradients.end() && found->second.defined();
    results.gradients[name] = has ? copied_to(workspace.fetch(found->second.dense), {}) : zeros_like(value);
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

using Renaming = std::function<std::string(const std::string&)>;

// A network of the step, in the flat net: what it reads of the step, and what it writes, has other names.
void rename_in_nested(RecurrentDef& def, const Renaming& renamed) {
  for (SequenceLink& s : *def.mutable_sequence()) s.set_outer(renamed(s.outer()));
  for (OutputLink& o : *def.mutable_output()) o.set_outer(renamed(o.outer()));
  for (StateLink& s : *def.mutable_state()) {
    if (s.has_initial()) s.set_initial(renamed(s.initial()));
    if (s.has_all()) s.set_all(renamed(s.all()));
    if (s.has_last()) s.set_last(renamed(s.last()));
  }
  if (def.has_lengths()) def.set_lengths(renamed(def.lengths()));
  for (OperatorDef& op : *def.mutable_step_net()->mutable_op()) {
    for (std::string& name : *op.mutable_input()) name = renamed(name);
    if (op.HasExtension(recurrent)) rename_in_nested(*op.MutableExtension(recurrent), renamed);
  }
}

// The flat net, its feeds, and where results of the recurrent one are found in it. Steps are numbered in the order in
// which they run; the states before the first have number 0.
class Unrolled {
 public:
  Unrolled(const Cell& cell, const Feeds& feeds, const Feeds& outside)
      : cell_(cell), feeds_(without_padding(cell, feeds)), outside_(outside), sequence_(feed_of(feeds_, "X")) {
    flat_feeds_ = feeds_;
    net_.set_name("unrolled");
    for (int64_t k = 0; k < steps(); ++k) {
      const int64_t t = time(k);
      for (const CellSequence& s : cell.sequences)
        flat_feeds_.emplace_back(at(s.inner, k), feed_of(feeds_, s.outer).rows(t, 1).clone());
      flat_feeds_.emplace_back(at("timestep", k), Tensor::of<int32_t>({1}, {static_cast<int32_t>(t)}));
      if (!cell.lengths.empty()) add_masks(k);
    }
    for (const CellState& s : cell.states) flat_feeds_.emplace_back(at(s.input, 0), first_state(s));
    for (int64_t k = 0; k < steps(); ++k) add_step(k);
    for (const auto& feed : flat_feeds_) net_.add_external_input(feed.first);
    expand_recurrent(net_);
  }

  CellResults run() {
    return run_by([&](const Feeds& flat_outside) { return run_with_gradients(net_, flat_feeds_, flat_outside); });
  }

  CellResults run_hessian_along(const Feeds& directions) {
    // Feeds of the flat net that no direction is given for are constants, such as masks.
    Feeds along;
    for (const auto& [name, value] : flat_feeds_)
      if (is_floating_feed(value)) along.emplace_back(name, flat_direction(directions, name, value));
    return run_by([&](const Feeds& flat_outside) { return run_hessian(net_, flat_feeds_, flat_outside, along); });
  }

 private:
  // Rows of sequences and first states move as what they are made of.
  Tensor flat_direction(const Feeds& directions, const std::string& name, const Tensor& value) const {
    const auto of = [&](const std::string& feed) {
      const auto it = std::ranges::find(directions, feed, &Feeds::value_type::first);
      return it == directions.end() ? Tensor() : it->second;
    };
    if (const Tensor given = of(name); given.defined()) return given;
    for (const CellSequence& s : cell_.sequences)
      for (int64_t k = 0; k < steps(); ++k)
        if (at(s.inner, k) == name) return of(s.outer).rows(time(k), 1).clone();
    for (const CellState& s : cell_.states)
      if (at(s.input, 0) == name && !s.initial.empty()) return first_of(of(s.initial));
    return zeros_like(value);
  }

 public:
  template <class Run>
  CellResults run_by(const Run& run) {
    Feeds flat_outside;
    for (const CellState& s : cell_.states)
      for (int64_t k = 1; k <= steps(); ++k)
        if (const Tensor g = outside_of(s, k); g.defined()) flat_outside.emplace_back(at(s.input, k), g);
    for (const auto& [name, g] : outside_)
      for (const CellOutput& o : cell_.outputs)
        for (int64_t k = 0; o.outer == name && k < steps(); ++k)
          flat_outside.emplace_back(at(o.outer, k), g.rows(time(k), 1).clone());
    const CellResults flat = run(flat_outside);
    CellResults results;
    for (const CellState& s : cell_.states) {
      if (!s.all.empty())
        results.outputs[s.all] = rows_of(first_state(s), [&](int64_t k) { return value(flat, s, k); });
      if (!s.last.empty()) results.outputs[s.last] = value(flat, s, steps());
    }
    for (const CellOutput& o : cell_.outputs)
      if (steps() > 0)
        results.outputs[o.outer] =
            rows_of(flat.outputs.at(at(o.outer, 0)), [&](int64_t k) { return flat.outputs.at(at(o.outer, k - 1)); });
    for (const auto& [name, tensor] : feeds_)
      if (is_floating_feed(tensor)) results.gradients[name] = gradient(flat, name, tensor);
    return results;
  }

 private:
  int64_t steps() const { return sequence_.dim(0); }
  int64_t batch() const { return sequence_.dim(1); }
  int64_t time(int64_t k) const { return cell_.reverse ? steps() - 1 - k : k; }
  DType dtype() const {
    for (const auto& [name, value] : feeds_)
      if (is_floating_feed(value)) return value.dtype();
    return DType::float32;
  }

  Tensor first_state(const CellState& s) const {
    if (s.initial.empty()) {
      Shape shape{1, batch()};
      for (const int64_t size : s.size) shape.push_back(size);
      return Tensor::zeros(dtype(), shape);
    }
    return first_of(feed_of(feeds_, s.initial));
  }

  Tensor first_of(const Tensor& initial) const {
    const Shape sample = initial.shape().from(std::min(initial.rank() - 1, 2));
    if (initial.rank() > 1) return initial.clone().reshaped(sample.prepend(batch()).prepend(1));
    Tensor state = Tensor::empty(initial.dtype(), sample.prepend(batch()).prepend(1));
    for (int64_t b = 0; b < batch(); ++b) state.row(0).row(b).copy_from(initial);
    return state;
  }

  // 1 where a sample goes on, and where it is over.
  void add_masks(int64_t k) {
    const Tensor& lengths = feed_of(feeds_, cell_.lengths);
    std::vector<double> on, over;
    for (const int32_t length : lengths.span<int32_t>()) {
      on.push_back(time(k) < length ? 1 : 0);
      over.push_back(1 - on.back());
    }
    const std::vector<float> on_float(on.begin(), on.end()), over_float(over.begin(), over.end());
    const bool wide = dtype() == DType::float64;
    auto mask = [&](const std::vector<double>& d, const std::vector<float>& f) {
      return wide ? Tensor::of<double>({1, batch()}, d) : Tensor::of<float>({1, batch()}, f);
    };
    flat_feeds_.emplace_back(at("on", k), mask(on, on_float));
    flat_feeds_.emplace_back(at("over", k), mask(over, over_float));
  }

  void multiply(const std::string& value, const std::string& mask, const std::string& product) {
    *net_.add_op() = make_op("Mul", {value, mask}, {product}, {make_arg("broadcast", 1), make_arg("axis", 0)});
  }

  void add_step(int64_t k) {
    const NetDef step = step_net_of(cell_);
    std::set<std::string> local = {"timestep"};
    for (const CellSequence& s : cell_.sequences) local.insert(s.inner);
    for (const CellState& s : cell_.states) local.insert(s.input);
    for (const OperatorDef& op : step.op()) local.insert(op.output().begin(), op.output().end());
    auto renamed = [&](const std::string& name) { return local.count(name) > 0 ? at(name, k) : name; };
    for (const OperatorDef& op : step.op()) {
      OperatorDef& copy = *net_.add_op();
      copy = op;
      for (std::string& name : *copy.mutable_input()) name = renamed(name);
      for (std::string& name : *copy.mutable_output()) name = renamed(name);
      if (!copy.HasExtension(recurrent)) continue;
      copy.set_name(at(copy.name(), k));
      rename_in_nested(*copy.MutableExtension(recurrent), renamed);
    }
    for (const CellState& s : cell_.states) hand_on(renamed(s.output), at(s.input, k), at(s.input, k + 1), k);
    for (const CellOutput& o : cell_.outputs) {
      if (cell_.lengths.empty()) {
        *net_.add_op() = make_op("Copy", {renamed(o.inner)}, {at(o.outer, k)});
      } else {
        multiply(renamed(o.inner), at("on", k), at(o.outer, k));
      }
    }
  }

  void hand_on(const std::string& made, const std::string& before, const std::string& after, int64_t k) {
    if (cell_.lengths.empty()) {
      *net_.add_op() = make_op("Copy", {made}, {after});
      return;
    }
    multiply(made, at("on", k), after + "/on");
    multiply(before, at("over", k), after + "/over");
    *net_.add_op() = make_op("Sum", {after + "/on", after + "/over"}, {after});
  }

  // What arrives from outside at the state after `k` steps.
  Tensor outside_of(const CellState& s, int64_t k) const {
    Tensor sum;
    for (const auto& [name, g] : outside_) {
      if (name != s.all && !(name == s.last && k == steps())) continue;
      if (name == s.all && k == 0) continue;
      const Tensor row = name == s.all ? g.rows(time(k - 1), 1).clone() : g.clone();
      if (sum.defined()) {
        add_to(sum, row);
      } else {
        sum = row;
      }
    }
    return sum;
  }

  Tensor value(const CellResults& flat, const CellState& s, int64_t k) const {
    return k == 0 ? first_state(s) : flat.outputs.at(at(s.input, k));
  }

  template <class Fn>
  Tensor rows_of(const Tensor& like, Fn after_step) const {
    Tensor all = Tensor::empty(like.dtype(), like.shape().with(0, steps()));
    for (int64_t k = 0; k < steps(); ++k) all.rows(time(k), 1).copy_from(after_step(k + 1));
    return all;
  }

  Tensor gradient(const CellResults& flat, const std::string& name, const Tensor& feed) const {
    Tensor total = flat.gradients.at(name).clone();
    for (const CellSequence& s : cell_.sequences)
      for (int64_t k = 0; s.outer == name && k < steps(); ++k) {
        Tensor row = total.rows(time(k), 1);
        add_to(row, flat.gradients.at(at(s.inner, k)));
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
  const Feeds feeds_;
  const Feeds& outside_;
  const Tensor& sequence_;
  Feeds flat_feeds_;
  NetDef net_;
};

}  // namespace

NetDef step_net_of(const Cell& cell) {
  NetDef step = cell.step.empty() ? cell.step_net : net_of_lines(cell.step);
  auto nested = cell.nested.begin();
  for (OperatorDef& op : *step.mutable_op())
    if (op.type() == "Nested") op = *nested++;
  return step;
}

NetDef recurrent_net(const Cell& cell, const Feeds& feeds) {
  NetDef net;
  net.set_name("outer");
  for (const auto& feed : feeds) net.add_external_input(feed.first);
  OperatorDef& op = *net.add_op();
  op = make_op("RecurrentNetwork", {}, {});
  op.set_name("rnn");
  auto add_input = [&](const std::string& name) {
    if (!name.empty() && std::find(op.input().begin(), op.input().end(), name) == op.input().end()) op.add_input(name);
  };
  RecurrentDef& def = *op.MutableExtension(recurrent);
  *def.mutable_step_net() = step_net_of(cell);
  def.mutable_step_net()->set_name("step");
  for (const CellSequence& s : cell.sequences) {
    SequenceLink& link = *def.add_sequence();
    link.set_outer(s.outer), link.set_inner(s.inner), add_input(s.outer);
  }
  for (const CellState& s : cell.states) {
    StateLink& link = *def.add_state();
    link.set_input(s.input), link.set_output(s.output), add_input(s.initial);
    if (!s.initial.empty()) link.set_initial(s.initial);
    link.mutable_size()->Add(s.size.begin(), s.size.end());
    if (!s.all.empty()) link.set_all(s.all), op.add_output(s.all);
    if (!s.last.empty()) link.set_last(s.last), op.add_output(s.last);
  }
  for (const CellOutput& o : cell.outputs) {
    OutputLink& link = *def.add_output();
    link.set_inner(o.inner), link.set_outer(o.outer), op.add_output(o.outer);
  }
  if (cell.reverse) def.set_reverse(true);
  if (!cell.lengths.empty()) def.set_lengths(cell.lengths), add_input(cell.lengths);
  for (const std::string& name : cell.recompute) def.add_recompute(name);
  if (!cell.disabled_passes.empty()) *op.add_arg() = make_arg("disabled_passes", cell.disabled_passes);
  return net;
}

NetDef expanded_net(const Cell& cell, const Feeds& feeds) {
  NetDef net = recurrent_net(cell, feeds);
  expand_recurrent(net);
  return net;
}

std::vector<CellResults> run_in_turn(const NetDef& forward, const std::vector<CellData>& data, const RunContext& run) {
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
  use_test_device(net);
  Net bound(net, workspace);
  std::vector<CellResults> results;
  for (const CellData& d : data) {
    feed_all(workspace, d);
    results.push_back(run_once(bound, gradients, d.feeds, run));
  }
  return results;
}

CellResults run_with_gradients(const NetDef& forward, const Feeds& feeds, const Feeds& outside) {
  CellData poison = {feeds, outside};
  for (Feeds* all : {&poison.feeds, &poison.outside})
    for (auto& [name, value] : *all) value = poisoned(value);
  std::vector<CellData> data = {poison, {feeds, outside}};
  if (test_device().kind == DeviceKind::cuda) data.insert(data.end(), {poison, data[1]});  // captures, and replays
  return run_in_turn(forward, data).back();
}

namespace {

// What is differentiated: the outputs with their given gradients, with respect to all floating feeds.
GradientRequest request_of(NetDef& net, const Feeds& feeds, const Feeds& outside) {
  GradientRequest request;
  for (const auto& [output, g] : outside) {
    request.targets.emplace_back(output, given(output));
    net.add_external_input(given(output));
  }
  for (const auto& [name, value] : feeds)
    if (is_floating_feed(value)) request.wanted.insert(name);
  return request;
}

std::string direction_name(const std::string& feed) { return feed + "_direction"; }

// Runs twice, the first time on NaN. `of`: by feed, the name of what is shown as its gradient.
CellResults run_hessian_net(NetDef net, const std::map<std::string, std::string>& of, const Feeds& feeds,
                            const Feeds& outside, const Feeds& directions) {
  CellData data{feeds, outside};
  for (const auto& [name, value] : directions) data.feeds.emplace_back(direction_name(name), value);
  CellData poison = data;
  for (Feeds* all : {&poison.feeds, &poison.outside})
    for (auto& [name, value] : *all) value = poisoned(value);
  Workspace workspace;
  feed_all(workspace, data);
  use_test_device(net);
  Net bound(net, workspace);
  GradientResult shown;
  for (const auto& [feed, name] : of) shown.gradients[feed] = {.dense = name, .indices = "", .values = ""};
  feed_all(workspace, poison);
  run_once(bound, shown, feeds, {});
  feed_all(workspace, data);
  return run_once(bound, shown, feeds, {});
}

}  // namespace

CellResults run_hessian(const NetDef& forward, const Feeds& feeds, const Feeds& outside, const Feeds& directions) {
  NetDef net = forward;
  const GradientResult first = add_gradient_operators(net, request_of(net, feeds, outside));
  GradientRequest second;
  for (const auto& [name, value] : directions) {
    const auto gradient = first.gradients.find(name);
    if (gradient == first.gradients.end() || !gradient->second.defined()) continue;
    second.targets.emplace_back(gradient->second.dense, direction_name(name));
    net.add_external_input(direction_name(name));
  }
  for (const auto& [name, value] : feeds)
    if (is_floating_feed(value)) second.wanted.insert(name);
  std::map<std::string, std::string> of;
  try {
    for (const auto& [name, gradient] : add_gradient_operators(net, second).gradients) of[name] = gradient.dense;
  } catch (const NoDependence&) {  // gradients are constant
  }
  return run_hessian_net(net, of, feeds, outside, directions);
}

CellResults run_mixed_hessian(const NetDef& forward, const Feeds& feeds, const Feeds& outside, const Feeds& directions,
                              MixedMode mode) {
  NetDef net = forward;
  GradientRequest request = request_of(net, feeds, outside);
  TangentRequest tangents;
  for (const auto& [name, value] : directions) tangents.given[name] = direction_name(name);
  std::map<std::string, std::string> of;
  if (mode == MixedMode::forward_over_reverse) {
    const GradientResult first = add_gradient_operators(net, request);
    for (const auto& [name, value] : directions)
      if (const auto g = first.gradients.find(name); g != first.gradients.end())
        tangents.wanted.insert(g->second.dense);
    const TangentResult moved = add_tangent_operators(net, tangents);
    for (const auto& [name, gradient] : first.gradients)
      if (const auto tangent = moved.tangents.find(gradient.dense); tangent != moved.tangents.end())
        of[name] = tangent->second;
    return run_hessian_net(net, of, feeds, outside, directions);
  }
  for (const auto& [output, g] : outside) tangents.wanted.insert(output);
  const TangentResult moved = add_tangent_operators(net, tangents);
  request.targets.clear();
  for (const auto& [output, g] : outside)
    if (const auto tangent = moved.tangents.find(output); tangent != moved.tangents.end())
      request.targets.emplace_back(tangent->second, given(output));
  try {
    if (!request.targets.empty())
      for (const auto& [name, gradient] : add_gradient_operators(net, request).gradients) of[name] = gradient.dense;
  } catch (const NoDependence&) {  // tangents are constant
  }
  return run_hessian_net(net, of, feeds, outside, directions);
}

Feeds directions_of(const Feeds& feeds, uint64_t seed) {
  Feeds directions;
  for (const auto& [name, value] : feeds)
    if (is_floating_feed(value)) directions.emplace_back(name, normal<double>(value.shape(), seed + directions.size()));
  return directions;
}

CellResults run_unrolled_hessian(const Cell& cell, const Feeds& feeds, const Feeds& outside, const Feeds& directions) {
  Feeds along = directions;  // with the lengths, which say where padding is
  for (const auto& feed : feeds)
    if (!is_floating_feed(feed.second)) along.push_back(feed);
  return Unrolled(cell, feeds, outside).run_hessian_along(without_padding(cell, along));
}

CellResults run_recurrent(const Cell& cell, const Feeds& feeds, const Feeds& outside) {
  return run_with_gradients(expanded_net(cell, feeds), feeds, outside);
}

CellResults run_unrolled(const Cell& cell, const Feeds& feeds, const Feeds& outside) {
  return Unrolled(cell, feeds, outside).run();
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
