// The backward step net of a short form, derived from its operators' derivatives, and the links of its gradients (see
// recurrent/form/expansion.h); before that, the sums in it that are added up over time.
#include "recurrent/form/backward_net.h"

#include <algorithm>
#include <list>
#include <map>
#include <utility>

#include "core/nearest.h"
#include "core/net/dataflow.h"
#include "recurrent/form/expansion.h"
#include "recurrent/form/net_storage.h"
#include "recurrent/step/counters.h"
#include "stepnet/gradients.h"
#include "stepnet/op_spec.h"

namespace stepnet {
namespace {

// Not if it writes what it reads, which it does twice then.
bool can_be_split(const OpSpec& spec, const OperatorDef& op, const NetStorage& storage) {
  if (!spec.sums_rows) return false;
  for (int o = 0; o < op.output_size(); ++o) {
    const ParamSpec* output = spec.output_spec(o);
    if (!output || !output->uses) return false;
    const auto is_written = [&](const std::string& input) { return storage.of(input) == storage.of(op.output(o)); };
    if (!op.output(o).empty() && std::ranges::any_of(op.input(), is_written)) return false;
  }
  return true;
}

// The operator with those outputs alone that are totals, or are none.
OperatorDef with_outputs(const OperatorDef& op, const std::set<std::string>& totals, bool total) {
  OperatorDef part = op;
  for (std::string& name : *part.mutable_output())
    if ((totals.count(name) > 0) != total) name.clear();
  return part;
}

// The sums of a net, from the last to the first, while those of values that are added up over time are opened.
class OpenSums {
 public:
  OpenSums(NetDef& net, std::vector<SummedValue> values)
      : net_(net), storage_(net), gone_(net.op_size()), values_(values.begin(), values.end()) {
    size_t inputs = 0;
    for (int i = 0; i < net.op_size(); ++i) {
      for (const std::string& name : net.op(i).output()) first_writers_.emplace(name, i);
      for (const std::string& name : net.op(i).input()) readers_[name].push_back(i);
      inputs += static_cast<size_t>(net.op(i).input_size());
    }
    for (auto value = values_.begin(); value != values_.end(); ++value) by_name_[value->name].push_back(value);
    most_ = 64 + 4 * (values.size() + inputs);
  }

  std::vector<SummedValue> run() {
    for (int i = net_.op_size() - 1; i >= 0; --i)
      if (op_spec(net_.op(i).type()).role == Role::sum && can_be_opened(i)) open(i);
    NetDef net = net_;
    net.clear_op();
    for (int i = 0; i < net_.op_size(); ++i)
      if (!gone_[i]) net.add_op()->Swap(net_.mutable_op(i));
    net_ = std::move(net);
    return {values_.begin(), values_.end()};
  }

 private:
  using Place = std::list<SummedValue>::iterator;

  // Whether an operator behind this one is in the list, those that are gone left out.
  bool any_behind(std::vector<int>& operators, int index) const {
    while (!operators.empty() && gone_[operators.back()]) operators.pop_back();
    return !operators.empty() && operators.back() > index;
  }

  bool is_overwritten(const std::string& name, int index) {
    const auto [known, is_new] = writers_.try_emplace(storage_.of(name));
    if (is_new) known->second = storage_.writing(name);
    return any_behind(known->second, index);
  }

  // Whether the sum and its terms still have the values at the end of the step that they have at the sum, nobody else
  // sees the sum, and operators of the step net write all terms. Sums of sums can stand for more terms than a net of
  // some length can have.
  bool can_be_opened(int index) {
    const OperatorDef& sum = net_.op(index);
    const auto values = by_name_.find(sum.output(0));
    if (values == by_name_.end() || values->second.empty()) return false;
    if (values_.size() + values->second.size() * static_cast<size_t>(sum.input_size()) > most_) return false;
    if (any_behind(readers_[sum.output(0)], index) || is_overwritten(sum.output(0), index)) return false;
    return std::ranges::all_of(sum.input(), [&](const std::string& term) {
      const auto writer = first_writers_.find(term);
      return writer != first_writers_.end() && writer->second < index && !is_overwritten(term, index);
    });
  }

  void open(int index) {
    const OperatorDef& sum = net_.op(index);
    const std::vector<Place> places = std::exchange(by_name_[sum.output(0)], {});
    for (const Place place : places) {
      for (const std::string& term : sum.input())
        by_name_[term].push_back(values_.insert(place, {term, place->gradient}));
      values_.erase(place);
    }
    gone_[index] = true;
  }

  NetDef& net_;
  const NetStorage storage_;
  std::vector<bool> gone_;                           // operators
  std::map<std::string, int> first_writers_;         // by blob
  std::map<std::string, std::vector<int>> readers_;  // by blob, in order
  std::map<std::string, std::vector<int>> writers_;  // by storage, in order
  std::list<SummedValue> values_;
  std::map<std::string, std::vector<Place>> by_name_;
  size_t most_ = 0;  // values
};

}  // namespace

std::vector<SummedValue> open_sums(NetDef& net, std::vector<SummedValue> values) {
  return OpenSums(net, std::move(values)).run();
}

NetDef split_sums(const NetDef& net, const std::set<std::string>& totals) {
  const NetStorage storage(net);
  NetDef result = net;
  result.clear_op();
  for (const OperatorDef& op : net.op()) {
    const auto is_total = [&](const std::string& name) { return totals.count(name) > 0; };
    const auto is_other = [&](const std::string& name) { return !name.empty() && totals.count(name) == 0; };
    const bool mixed = std::ranges::any_of(op.output(), is_total) && std::ranges::any_of(op.output(), is_other);
    if (!mixed || !can_be_split(op_spec(op.type()), op, storage)) {
      *result.add_op() = op;
      continue;
    }
    *result.add_op() = with_outputs(op, totals, false);
    *result.add_op() = with_outputs(op, totals, true);
  }
  return result;
}

namespace {

// Of networks in a backward step net that is not run, the names of what they read and write.
void forget_inner_nets(OperatorDef& op) {
  for (Argument& arg : *op.mutable_arg()) {
    if (arg.name() != "backward_step_net") continue;
    for (OperatorDef& inner : *arg.mutable_n()->mutable_op())
      if (op_spec(inner.type()).blob_kernel) inner.clear_arg();
  }
}

// A nested network keeps what its gradient reads of one timestep alone, so it runs again. What it writes to places of
// the outer network is still there. That it has a backward step net tells it what to keep; the gradient has its own to
// run. With both in both, networks within networks would take the power of their depth.
OperatorDef nested_again(Expansion& e, OperatorDef op, const Names& linked) {
  forget_inner_nets(op);
  for (std::string& name : *op.mutable_output())
    if (linked.count(name) > 0) name = e.fresh(name + "_again");
  return op;
}

// Puts operators of the step net in front of the backward one, to make blobs that are not kept once more.
class Recomputation {
 public:
  explicit Recomputation(Expansion& e)
      : e_(e),
        wanted_(e.def.recompute().begin(), e.def.recompute().end()),
        linked_(e.state_output.begin(), e.state_output.end()),
        step_(e.step, {.fixed_storages = true}) {
    for (const BuiltOutput& output : e.outputs) linked_.insert(output.internal);
    for (int i = 0; i < e.step.op_size(); ++i)
      for (const int made : step_.flow.outputs(i)) makers_[made] = i;
  }

  void add() {
    for (const std::string& name : wanted_)
      require(e_.written.count(name) > 0, "\"recompute\" names \"{}\", which the step net does not write.{}", name,
              Nearest{name, e_.written});
    for (int i = 0; i < e_.step.op_size(); ++i) {
      const OperatorDef& op = e_.step.op(i);
      const bool nested = op_spec(op.type()).blob_kernel != nullptr;
      if (!nested && std::ranges::none_of(op.output(), [&](const auto& o) { return wanted_.count(o) > 0; })) continue;
      for (const std::string& output : op.output())
        require(nested || wanted_.count(output) > 0,
                "\"recompute\" has an output of {} but not \"{}\", which it writes too", op.type(), output);
      OperatorDef again = with_inputs_of(i);
      *e_.backward.add_op() = nested ? nested_again(e_, std::move(again), linked_) : std::move(again);
    }
  }

 private:
  // What the operator read may have been overwritten by the end of the step: then that is made once more, too, under a
  // name of its own. A blob that is made again anyway has its versions in the same order as in the step.
  OperatorDef with_inputs_of(int index) {
    for (int i = 0; i < e_.step.op(index).input_size(); ++i)
      if (is_missing(index, i)) make_again(read(index, i));
    return with_made_inputs(index);
  }

  int read(int index, int input) const { return step_.flow.inputs(index)[input]; }
  bool is_gone(int index, int input) const {
    const std::string& name = e_.step.op(index).input(input);
    return !name.empty() && wanted_.count(name) == 0 &&
           step_.flow.last(step_.flow.input_blobs(index)[input]) != read(index, input);
  }
  bool is_missing(int index, int input) const { return is_gone(index, input) && again_.count(read(index, input)) == 0; }

  OperatorDef with_made_inputs(int index) const {
    OperatorDef op = e_.step.op(index);
    for (int i = 0; i < op.input_size(); ++i)
      if (is_gone(index, i)) op.set_input(i, again_.at(read(index, i)));
    return op;
  }

  // Each operator after those that make what it reads. Not by recursion, which a long chain would take too deep.
  void make_again(int value) {
    struct Open {
      int op, input = 0;
    };
    std::vector<Open> open = {{maker_of(value)}};
    while (!open.empty()) {
      Open& last = open.back();
      const int inputs = e_.step.op(last.op).input_size();
      while (last.input < inputs && !is_missing(last.op, last.input)) ++last.input;
      if (last.input < inputs) {
        open.push_back({maker_of(read(last.op, last.input))});
        continue;
      }
      add_again(last.op);
      open.pop_back();
    }
  }

  int maker_of(int value) const {
    const auto found = makers_.find(value);
    require(found != makers_.end(),
            "\"{}\" is to be computed again, but what it was before an operator has written it is not known",
            step_.flow.name(step_.flow.value(value).blob));
    return found->second;
  }

  void add_again(int index) {
    const std::span<const int> made = step_.flow.outputs(index);
    OperatorDef op = with_made_inputs(index);
    op.SetExtension(draws_as, std::string(draw_name(e_.step.op(index))));
    for (int o = 0; o < op.output_size(); ++o) {
      if (op.output(o).empty()) continue;
      op.set_output(o, e_.fresh(op.output(o) + "_before"));
      again_[made[o]] = op.output(o);
    }
    *e_.backward.add_op() = std::move(op);
  }

  Expansion& e_;
  const Names wanted_;
  Names linked_;  // step blobs that states and outputs of the operator show
  const BoundNet step_;
  std::map<int, int> makers_;         // of values: the operator that writes each
  std::map<int, std::string> again_;  // by value
};

// What the outputs of the operator depend on, in this timestep or a later one, by storage.
class SeenStates {
 public:
  explicit SeenStates(const Expansion& e)
      : e_(e), storage_(e.step), reached_(e.step.op_size()), seen_(e.state_output.size()) {
    for (int i = 0; i < e.step.op_size(); ++i)
      for (const std::string& name : e.step.op(i).output()) writers_[storage_.of(name)].push_back(i);
    for (size_t i = 0; i < seen_.size(); ++i)
      states_[storage_.of(e.def.state(static_cast<int>(i)).input())].push_back(i);
  }

  // By state: whether an output shows it or depends on it. To others no gradient ever arrives.
  std::vector<bool> find() {
    std::map<std::string, size_t> numbers;
    for (size_t i = 0; i < seen_.size(); ++i) numbers[e_.state_name(static_cast<int>(i))] = i;
    for (const BuiltView& view : e_.views) see(numbers.at(view.state));
    for (const BuiltOutput& output : e_.outputs) need(output.internal);
    while (!open_.empty()) {
      const std::string storage = std::move(open_.back());
      open_.pop_back();
      for (const int op : writers_[storage]) need_inputs(op);
      writers_.erase(storage);
      for (const size_t state : states_[storage]) see(state);
    }
    return seen_;
  }

 private:
  void need(const std::string& name) {
    if (needed_.insert(storage_.of(name)).second) open_.push_back(storage_.of(name));
  }
  // Once for each operator: a SplitByRows may have thousands of outputs, and as many inputs.
  void need_inputs(int op) {
    if (reached_[op]) return;
    reached_[op] = true;
    for (const std::string& name : e_.step.op(op).input()) need(name);
  }
  void see(size_t state) {
    if (!seen_[state]) need(e_.state_output[state]);
    seen_[state] = true;
  }

  const Expansion& e_;
  const NetStorage storage_;
  std::map<std::string, std::vector<int>> writers_;    // by storage: operators of the step net
  std::map<std::string, std::vector<size_t>> states_;  // by storage: states that are read from it
  Names needed_;
  std::vector<std::string> open_;  // needed, and not gone on from yet
  std::vector<bool> reached_;      // by operator: its inputs are needed
  std::vector<bool> seen_;
};

GradientRequest request_of(Expansion& e) {
  GradientRequest request;
  const std::vector<bool> seen = SeenStates(e).find();
  for (size_t i = 0; i < seen.size(); ++i) {
    const std::string given = e.state_output[i] + "_grad";
    e.taken.insert(given);
    if (seen[i]) request.targets.emplace_back(e.state_output[i], given);
  }
  for (BuiltOutput& output : e.outputs) {
    output.gradient = output.internal + "_grad";
    e.taken.insert(output.gradient);
    request.targets.emplace_back(output.internal, output.gradient);
  }
  for (const StateLink& s : e.def.state()) request.wanted.insert(s.input());
  for (const SequenceLink& s : e.def.sequence()) request.wanted.insert(s.inner());
  request.wanted.insert(e.references.begin(), e.references.end());
  return request;
}

// Where nothing that the step net gives depends on what it reads, all gradients are zero and no operator is needed.
GradientResult gradient_operators(NetDef& net, const GradientRequest& request) {
  const NetDef forward = net;
  try {
    return add_gradient_operators(net, request);
  } catch (const NoDependence&) {
    net = forward;
    GradientResult none;
    none.first_gradient_op = net.op_size();
    return none;
  }
}

GradientResult derive(Expansion& e) {
  NetDef both = e.step;
  GradientRequest request = request_of(e);
  request.fixed_storages = true;
  // What arrives for an output belongs to others, and is not written; a state's is ours.
  for (const BuiltOutput& output : e.outputs) both.add_external_input(output.gradient);
  GradientResult result = gradient_operators(both, request);
  e.backward.set_name(e.scope + "/backward_step");
  for (int i = 0; i < e.step.op_size(); ++i) *e.step.mutable_op(i) = both.op(i);  // with what the gradients rely on
  Recomputation(e).add();
  for (int i = result.first_gradient_op; i < both.op_size(); ++i) {
    OperatorDef& op = *e.backward.add_op();
    op = both.op(i);
    // The gradient of a write that the builder added is the builder's too.
    const bool copies = op.type() == op_with_role(Role::copy).type;
    for (const std::string& name : e.spread)
      if (copies && op.input(0) == name + "_grad") op.set_name(kSpreadName);
    e.taken.insert(both.op(i).output().begin(), both.op(i).output().end());
  }
  return result;
}

const std::string& dense_gradient(const GradientResult& result, const std::string& blob) {
  static const std::string none;
  const auto it = result.gradients.find(blob);
  if (it == result.gradients.end()) return none;
  if (it->second.is_sparse())
    throw Error(fmt::format("the gradient of \"{}\" in the step net is sparse", blob),
                "give the operator that reads it the argument dense_gradient: 1");
  return it->second.dense;
}

// Gradients go to their destinations: each is linked once, and written once more for every other destination.
class GradientLinks {
 public:
  GradientLinks(Expansion& e, const GradientResult& result)
      : e_(e), result_(result), written_(written_names(e.backward)) {}

  // What arrives from outside or from the timestep after.
  void give(const std::string& gradient, const std::string& external, int offset) {
    e_.backward_links.push_back({gradient, external, offset});
    linked_.insert(gradient);
  }

  void lead(const std::string& blob, const std::string& external, int offset) {
    std::string gradient = dense_gradient(result_, blob);
    if (gradient.empty()) return;
    if (written_.count(gradient) == 0 || !linked_.insert(gradient).second) {
      const std::string own = e_.fresh(blob + "_grad");
      *e_.backward.add_op() = spread_op(gradient, own);
      gradient = own;
      linked_.insert(own);
    }
    e_.backward_links.push_back({gradient, external, offset});
  }

  void add_up(const std::string& reference) {
    std::string gradient = dense_gradient(result_, reference);
    if (gradient.empty()) return;
    if (written_.count(gradient) == 0 || !linked_.insert(gradient).second) {
      OperatorDef alias;
      alias.set_type(op_with_role(Role::alias).type);
      alias.add_input(gradient);
      gradient = e_.fresh(reference + "_grad");
      alias.add_output(gradient);
      *e_.backward.add_op() = alias;
    }
    e_.params.emplace_back(reference, gradient);
  }

 private:
  Expansion& e_;
  const GradientResult& result_;
  Names written_, linked_;
};

void link_gradients(Expansion& e, const GradientResult& result) {
  GradientLinks links(e, result);
  for (int i = 0; i < e.def.state_size(); ++i)
    links.give(e.state_output[i] + "_grad", e.state_name(i) + "_grad", e.row_after());
  for (const BuiltOutput& output : e.outputs) links.give(output.gradient, output.output + "_grad", 0);
  for (int i = 0; i < e.def.state_size(); ++i)
    links.lead(e.def.state(i).input(), e.state_name(i) + "_grad", e.row_before());
  for (const SequenceLink& s : e.def.sequence()) links.lead(s.inner(), s.outer() + "_grad", 0);
  for (const std::string& reference : e.references) links.add_up(reference);
}

void declare_backward_net(Expansion& e) {
  Names given;
  auto add = [&](const std::string& name) {
    if (!name.empty() && given.insert(name).second) e.backward.add_external_input(name);
  };
  for (const std::string& name : read_from_outside(e.backward)) add(name);
  for (const std::string& output : e.state_output) add(output + "_grad");
  for (const BuiltOutput& output : e.outputs) add(output.gradient);
}

}  // namespace

void build_backward(Expansion& e) {
  if (e.def.forward_only()) return;
  const GradientResult result = derive(e);
  link_gradients(e, result);
  declare_backward_net(e);
}

}  // namespace stepnet
